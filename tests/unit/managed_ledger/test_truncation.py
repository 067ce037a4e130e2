"""A truncated managed ledger: what goes, and what must not."""

from __future__ import annotations

import asyncio

import pytest

from geminga.model.errors import LedgerClosedError
from geminga.model.position import EARLIEST, LATEST
from geminga.runtime import spawn
from support.worlds.ledger_world import append, read_all


@pytest.mark.parametrize("has_cursor", [True, False])
def test_what_is_appended_meanwhile_stays_whatever_holds_it(in_world, has_cursor):
    async def scenario(w):
        ml = await w.open()
        ml.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
        cursor = await ml.open_cursor("s", initial=EARLIEST) if has_cursor else None
        await w.fill(ml, 24)
        w.bookie.holds_replies = True
        late = spawn(append(ml, [b"late0", b"late1"]), name="late")
        await w.world.sleep(0.01)
        truncating = spawn(ml.trimmer.truncate(), name="truncate")
        await w.world.sleep(0.01)
        # The ledger is left: these wait for the next one.
        later = spawn(append(ml, [b"later"]), name="later")
        await w.world.sleep(0.01)
        w.bookie.release()
        await asyncio.gather(late, later, truncating)
        entries = await ml.reader.read_range(ml.ledgers.first_position, 100, 1 << 20)
        assert [entry.data for entry in entries][-3:] == [b"late0", b"late1", b"later"]
        assert len(entries) <= 7
        if cursor is not None:
            assert await read_all(cursor) == [b"late0", b"late1", b"later"]

    in_world(scenario)


def test_no_more_goes_than_up_to_the_position_and_what_a_kept_cursor_has_left(in_world):
    async def scenario(w):
        ml = await w.open()
        ml.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
        moved = await ml.open_cursor("moved", initial=EARLIEST)
        kept = await ml.open_cursor("kept", initial=EARLIEST)
        positions = await w.fill(ml, 35)
        kept.acknowledge_cumulative(positions[12])
        await ml.trimmer.truncate(positions[24], kept=("kept",))
        assert moved.mark_delete_position == positions[24]
        assert kept.mark_delete_position == positions[12]
        assert ml.ledgers.first_position == positions[10]
        await ml.delete_cursor("kept")
        await ml.trimmer.truncate(positions[24])
        assert ml.ledgers.first_position == positions[20]
        assert moved.backlog_count == 10
        assert ml.reader.open_ledger
        await ml.trimmer.truncate()
        assert (ml.ledgers.entry_count, moved.backlog_count) == (0, 0)
        assert not ml.reader.open_ledger
        await ml.trimmer.truncate()

    in_world(scenario)


def test_a_cursor_that_was_set_back_meanwhile_keeps_what_it_was_promised(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        await w.fill(ml, 25)
        async with ml.stored.lock():
            truncating = spawn(ml.trimmer.truncate(LATEST), name="truncate")
            await w.world.sleep(0.01)
            await cursor.reset(EARLIEST)
        await truncating
        # Its ledgers are all there, or it was moved to the end after it was set back.
        assert len(await read_all(cursor)) in (0, 25)
        ml = await w.reopen()
        assert ml.cursors["s"].backlog_count in (0, ml.ledgers.entry_count)

    in_world(scenario)


def test_a_log_that_is_unloaded_meanwhile_is_not_truncated_behind_the_back_of_who_has_it_next(in_world):
    async def scenario(w):
        ml, _ = await w.filled(25)
        w.faults.delay_ms_max = 100
        truncation = asyncio.ensure_future(ml.trimmer.truncate())
        await w.world.sleep(0)
        # It is closing the open ledger; whoever unloads the log is next to have the list.
        await ml.close()
        again = await w.open()
        with pytest.raises(LedgerClosedError):
            await truncation
        assert [info.entries for info in again.ledgers.infos] == [10, 10, 5]
        assert len(await again.reader.read_range(EARLIEST, 100, 1 << 20)) == 25
        await w.fill(again, 1)

    in_world(scenario)
