"""Runs of entries, and handles of closed ledgers."""

from __future__ import annotations

from geminga.managed_ledger.log.reads import READ_HANDLES_MAX, READ_RUN_ENTRIES_MAX, LedgerReads, Run, runs_of
from geminga.model.byte_budget import ByteBudget
from geminga.model.errors import NoSuchLedgerError
from geminga.model.position import Position


def test_runs_cover_neighbours_once_in_order():
    positions = [Position(2, 1), Position(1, 5), Position(1, 4), Position(1, 5), Position(1, 7), Position(2, 0)]
    assert runs_of(positions) == [Run(1, 4, 5), Run(1, 7, 7), Run(2, 0, 1)]
    assert runs_of([]) == []


def test_runs_have_a_limit():
    runs = runs_of([Position(1, i) for i in range(READ_RUN_ENTRIES_MAX + 1)])
    assert [run.last - run.first + 1 for run in runs] == [READ_RUN_ENTRIES_MAX, 1]


def test_reads_of_many_ledgers_share_opens_and_keep_few_handles(in_world):
    async def scenario(w):
        ml, _ = await w.filled(10 * (READ_HANDLES_MAX + 3))
        reads = LedgerReads(lambda info: w.bookkeeper.open_ledger(info.ledger_id), ByteBudget(0), 100)
        results = []
        for info in ml.ledgers.infos[:-1]:
            for entry_id in (0, 9):
                reads.read(info, entry_id, entry_id, 1000, results.append, handle=None)
        await w.world.sleep(1)
        assert len(results) == 2 * (READ_HANDLES_MAX + 2)
        assert len(reads._handles) == READ_HANDLES_MAX
        assert sorted(payload for result in results for payload in result)[:2] == [b"m0", b"m10"]

    in_world(scenario)


def test_reads_of_a_missing_ledger_give_the_error_to_all_who_wait(in_world):
    async def scenario(w):
        ml, _ = await w.filled(11)
        info = ml.ledgers.infos[0]
        await w.world.sleep(0.1)
        await w.bookkeeper.delete_ledger(info.ledger_id)
        reads = LedgerReads(lambda info: w.bookkeeper.open_ledger(info.ledger_id), ByteBudget(0), 100)
        results = []
        reads.read(info, 0, 0, 1000, results.append, handle=None)
        reads.read(info, 1, 1, 1000, results.append, handle=None)
        await w.world.sleep(0.1)
        assert [type(result) for result in results] == [NoSuchLedgerError] * 2

    in_world(scenario)
