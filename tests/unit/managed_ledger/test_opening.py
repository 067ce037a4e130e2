"""What a new process finds after a kill."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger import opening
from geminga.managed_ledger.shared.metadata_io import cursor_path, ledger_path
from geminga.model.errors import CorruptionError, DiskFullError, LedgerFencedError, StorageError
from geminga.model.position import EARLIEST
from support.house.orphans import collect_now
from support.worlds.ledger_world import NAME, append


def test_reopen_after_a_kill_finds_every_confirmed_entry(in_world):
    async def scenario(w):
        ml, positions = await w.filled(17)
        again = await w.reopen()
        assert again.extent.last_confirmed_position == positions[-1]
        assert [entry.position for entry in await again.reader.read(positions)] == positions
        # The old process is fenced: it can not append any more.
        (result,) = await append(ml, [b"late"])
        assert isinstance(result.error, LedgerFencedError)
        assert ml.tenure.is_fenced
        (result,) = await append(ml, [b"later"])
        assert isinstance(result.error, LedgerFencedError)
        assert (await w.fill(again, 1))[0] > positions[-1]

    in_world(scenario)


def test_reopen_after_a_close_needs_no_recovery(in_world):
    async def scenario(w):
        _, positions = await w.filled(3)
        await w.factory.close()
        w.bookie.fence_error = DiskFullError("no fencing")
        again = await w.reopen()
        assert again.extent.last_confirmed_position == positions[-1]
        assert again.ledgers.size_bytes == 6

    in_world(scenario)


def test_reopen_drops_an_empty_last_ledger_and_deletes_it_later(in_world):
    async def scenario(w):
        ml, _ = await w.filled(10)
        w.bookie.add_error = DiskFullError("full")
        await append(ml, [b"never"])
        w.bookie.add_error = None
        again = await w.reopen()
        assert [info.entries for info in again.ledgers.infos] == [10]
        await w.fill(again, 1)
        assert len(await w.factory.named_ledgers(NAME)) == 2
        assert not await collect_now(w.runtime, w.store, w.bookkeeper)

    in_world(scenario)


def test_cursors_come_back_together_in_their_order_and_some_at_a_time(in_world, monkeypatch):
    monkeypatch.setattr(opening, "CURSORS_AT_ONCE", 4)

    async def scenario(w):
        ml = await w.open()
        names = [f"c{number:02}" for number in range(10)]
        cursors = [await ml.open_cursor(name, initial=EARLIEST) for name in reversed(names)]
        positions = await w.fill(ml, 10)
        for cursor, position in zip(cursors, positions, strict=True):
            cursor.acknowledge_cumulative(position)
        await w.factory.close()
        w.new_process(is_shared=True)
        w.faults.delay_ms_max = 1000
        began_s = w.runtime.clock.monotonic()
        again = await w.open()
        # A window takes its slowest claim, of some 1.5 s; one after the other they took 15.
        assert w.runtime.clock.monotonic() - began_s < 10
        assert [*again.cursors] == names
        assert [again.cursors[name].mark_delete_position for name in reversed(names)] == positions
        w.faults.delay_ms_max = 0
        # Trimming knows of those that come and go from now on.
        again.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        filled = await w.fill(again, 30)
        late = await again.open_cursor("late", initial=filled[10])
        for name in names:
            again.cursors[name].acknowledge_cumulative(filled[-1])
        await again.trimmer.trim()
        assert filled[10].ledger_id in [info.ledger_id for info in again.ledgers.infos]
        assert late.backlog_count == 20

    in_world(scenario)


def test_a_cursor_that_can_not_come_back_keeps_the_ledger_shut_until_it_can(in_world):
    async def scenario(w):
        ml = await w.open()
        for number in range(3):
            await ml.open_cursor(f"c{number}", initial=EARLIEST)
        await w.factory.close()
        node = await w.store.get(cursor_path(NAME, "c1"))
        await w.store.put(cursor_path(NAME, "c1"), b"\xff", expected_version=None)
        w.new_process()
        with pytest.raises(CorruptionError):
            await w.open()
        await w.store.put(cursor_path(NAME, "c1"), node.value, expected_version=None)
        assert [*(await w.open()).cursors] == ["c0", "c1", "c2"]

    in_world(scenario)


async def stored(cursor, position) -> StorageError | None:
    """How an acknowledgment with a response ends."""
    future = asyncio.get_running_loop().create_future()
    cursor.acknowledge([position], done=future.set_result)
    return await future


@pytest.mark.parametrize("acknowledged_before", [0, 1, 2])
def test_an_owner_that_was_not_told_answers_for_no_acknowledgment_once_the_next_one_opened(
    in_world, acknowledged_before
):
    async def scenario(w):
        w.new_process(is_shared=True)
        ml = await w.open()
        cursor = await ml.open_cursor("c", initial=EARLIEST)
        positions = await w.fill(ml, 4)
        for position in positions[:acknowledged_before]:
            assert await stored(cursor, position) is None
        w.new_process(is_shared=True)
        again = await w.open()
        # Whatever it tries: its cursor ledger, a new one, or the node.
        assert isinstance(await stored(cursor, positions[2]), LedgerFencedError)
        assert isinstance(await stored(cursor, positions[3]), LedgerFencedError)
        with pytest.raises(LedgerFencedError):
            await ml.trimmer.trim()
            await ml.stored.set_properties({"a": "b"})
        # And it is in nobody's way.
        ours = again.cursors["c"]
        expected = positions[acknowledged_before - 1] if acknowledged_before else EARLIEST
        assert ours.mark_delete_position == expected
        for position in positions:
            assert await stored(ours, position) is None
        w.new_process(is_shared=True)
        assert (await w.open()).cursors["c"].mark_delete_position == positions[-1]

    in_world(scenario)


def test_an_owner_that_was_not_told_makes_no_cursor_once_the_next_one_opened(in_world):
    async def scenario(w):
        w.new_process(is_shared=True)
        ml = await w.open()
        w.new_process(is_shared=True)
        again = await w.open()
        with pytest.raises(LedgerFencedError):
            await ml.open_cursor("c", initial=EARLIEST)
        assert await w.factory.cursor_names(NAME) == []
        assert (await again.open_cursor("c", initial=EARLIEST)).name == "c"

    in_world(scenario)


def test_a_node_that_changes_while_it_is_claimed_is_claimed_as_it_is_then(in_world):
    async def scenario(w):
        w.new_process(is_shared=True)
        ml = await w.open()
        cursor = await ml.open_cursor("c", initial=EARLIEST)
        positions = await w.fill(ml, 2)
        w.faults.delay_ms_max = 50
        w.new_process(is_shared=True)
        opening = asyncio.ensure_future(w.open())
        error = await stored(cursor, positions[0])
        again = await opening
        mark_delete = again.cursors["c"].mark_delete_position
        # Answered for and seen, or refused.
        assert mark_delete == positions[0] if error is None else isinstance(error, LedgerFencedError)

    in_world(scenario)


def test_opening_what_nobody_shares_writes_nothing(in_world):
    async def scenario(w):
        ml = await w.open()
        await ml.open_cursor("c", initial=EARLIEST)
        before = [await w.store.get(path) for path in (ledger_path(NAME), cursor_path(NAME, "c"))]
        await w.reopen()
        assert [await w.store.get(path) for path in (ledger_path(NAME), cursor_path(NAME, "c"))] == before

    in_world(scenario)
