from __future__ import annotations

import asyncio
import errno

from geminga.bookie import readmission
from geminga.bookie.core.index import IndexRun
from geminga.model.errors import DiskFullError, LedgerFencedError, NoSuchEntryError, NoSuchLedgerError, StorageError
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie

KEY = b"key"


async def readmit(case: BookieNode, ledger_id: int) -> StorageError | None:
    answer: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
    case.bookie.readmit(ledger_id, master_key=KEY, done=answer.set_result)
    return await answer


async def with_deleted(case: BookieNode) -> None:
    """Ledgers 1 to 6 in runs of the index, of which 2 and 4 are deleted."""
    for ledger_id in range(1, 7):
        assert await case.add(ledger_id, 0, entries_of(ledger_id, 0, 10, size=100)) is None
        if ledger_id % 3 == 0:
            await case.bookie.flush()
    case.ledgers.live = {1, 3, 5, 6}
    assert (await case.bookie.collect_garbage(compact_below=0.0)).deleted_ledgers == 2


def test_no_row_of_a_readmitted_ledger_is_left_and_the_others_are_whole():
    async def main(case: BookieNode) -> None:
        await with_deleted(case)
        case.ledgers.live = {1, 2, 3, 5, 6}
        assert await readmit(case, 2) is None
        for _ in range(2):
            runs = case.bookie.storage.index.runs
            assert all(2 not in run.ledger_ids for run in runs)
            assert isinstance((await case.read(2, 0))[0], NoSuchEntryError)
            assert isinstance(await case.add(2, 0, [b"late"]), LedgerFencedError)
            assert isinstance(await case.add(4, 0, [b"late"]), NoSuchLedgerError)
            for ledger_id in (1, 3, 5, 6):
                assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)
            await case.reopen()

    run_bookie(main)


def test_list_that_can_not_be_read_or_lacks_it_refuses_and_nothing_changes():
    async def main(case: BookieNode) -> None:
        await with_deleted(case)
        for live in (None, {1, 3}):
            case.ledgers.live = live
            refused = await readmit(case, 2)
            assert refused is not None
            assert "not taken again" in str(refused)
            assert isinstance(await case.add(2, 0, [b"late"]), NoSuchLedgerError)

    run_bookie(main)


def test_full_disk_refuses_and_a_later_call_takes_it():
    async def main(case: BookieNode) -> None:
        await with_deleted(case)
        case.ledgers.live = {1, 2, 3, 5, 6}
        case.disk.inject("write", "*checkpoint*", error=errno.ENOSPC, times=1)
        assert isinstance(await readmit(case, 2), DiskFullError)
        assert isinstance(await case.add(2, 0, [b"late"]), NoSuchLedgerError | DiskFullError)
        case.disk.clear_faults()
        await case.bookie.probe_disk()
        assert await readmit(case, 2) is None
        assert isinstance(await case.add(2, 0, [b"late"]), LedgerFencedError)

    run_bookie(main)


def test_readmission_whose_checkpoint_finds_no_room_leaves_no_index_run_behind():
    async def main(case: BookieNode) -> None:
        await with_deleted(case)
        case.ledgers.live = {1, 2, 3, 5, 6}
        for _ in range(3):
            # The flush in front of it has its checkpoint.
            case.disk.inject("write", "*/checkpoint.tmp", error=errno.ENOSPC, after=1)
            assert isinstance(await readmit(case, 2), DiskFullError)
            assert len(case.files(".index")) == len(case.bookie.storage.index.runs)
        assert await readmit(case, 2) is None
        assert len(case.files(".index")) == len(case.bookie.storage.index.runs)

    run_bookie(main)


def test_run_without_a_ledger_keeps_the_rows_and_states_of_others():
    run = IndexRun()
    run.state_ids.extend([1, 2])
    assert list(readmission._without(run, 2).state_ids) == [1]
