"""Deleting ledgers that nobody needs."""

from __future__ import annotations

import asyncio

import pytest

from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import (
    NoSuchLedgerError,
)
from geminga.model.position import EARLIEST
from support.house.planted_defects import planted
from support.worlds.ledger_world import NAME, acknowledge_cumulative, read_all


def test_trim_deletes_what_every_cursor_passed(in_world):
    async def scenario(w):
        ml = await w.open(retention_ms=0)
        slow = await ml.open_cursor("slow", initial=EARLIEST)
        fast = await ml.open_cursor("fast", initial=EARLIEST)
        positions = await w.fill(ml, 35)
        await acknowledge_cumulative(fast, positions[32])
        await acknowledge_cumulative(slow, positions[12])
        await w.let_background_persist()
        assert [info.entries for info in ml.ledgers.infos] == [10, 10, 5]
        assert ml.first_position == positions[10]
        assert [entry.position for entry in await ml.read(positions[8:12])] == positions[10:12]
        with pytest.raises(NoSuchLedgerError):
            await w.bookkeeper.open_ledger(positions[0].ledger_id)
        assert [info.entries for info in (await w.reopen()).ledgers.infos] == [10, 10, 5]

    in_world(scenario)


def test_trim_keeps_what_retention_holds(in_world):
    async def scenario(w):
        ml = await w.open()
        ml.set_retention(retention_ms=60_000, retention_bytes=-1)
        await w.fill(ml, 25)
        await ml.trim()
        assert ml.entry_count == 25
        await w.world.sleep(61)
        await ml.trim()
        assert ml.entry_count == 5

    in_world(scenario)


def test_trim_keeps_everything_until_the_owner_says_what_retention_is(in_world):
    """A cursor that comes back, or a ledger that is closed, trims before the policies are read."""

    async def scenario(w):
        ml = await w.factory.open(NAME)
        await w.fill(ml, 35)
        await ml.trim()
        assert ml.entry_count == 35, "trimmed under a retention that nobody had read yet"
        ml.set_retention(retention_ms=0, retention_bytes=0)
        await ml.trim()
        assert ml.entry_count == 5

    in_world(scenario)


def test_trim_goes_by_the_policy_at_the_moment_of_the_list(in_world):
    """The policy changes while a trim makes cursors durable."""

    async def scenario(w):
        ml = await w.open()
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        positions = await w.fill(ml, 35)
        await w.world.sleep(2)
        ml.set_retention(retention_ms=0, retention_bytes=0)
        w.faults.delay_ms_max = 100
        # Begins a cursor ledger, for which the store takes its time.
        cursor.acknowledge_cumulative(positions[-1])
        trim = asyncio.ensure_future(ml.trim())
        await w.world.sleep(0.001)
        assert cursor.store.persisted_mark_delete < positions[-1]
        ml.set_retention(retention_ms=-1, retention_bytes=-1)
        await trim
        assert cursor.store.persisted_mark_delete == positions[-1]
        assert ml.entry_count == 35, "trimmed by a policy that was replaced before the list was written"

    in_world(scenario)


def test_trim_of_everything_leaves_an_empty_log_and_ids_that_ascend(in_world):
    async def scenario(w):
        ml = await w.open(retention_ms=0)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        positions = await w.fill(ml, 5)
        await acknowledge_cumulative(cursor, positions[-1])
        await ml.roll()
        await ml.trim()
        assert (len(ml.ledgers), ml.last_confirmed_position) == (0, EARLIEST)
        again = await w.reopen()
        (position,) = await w.fill(again, 1)
        assert position > positions[-1]
        assert await read_all(again.cursors["s"]) == [b"m0"]

    in_world(scenario)


def test_trim_that_deletes_before_the_list_loses_the_log_at_a_failure(in_world):
    """The planted defect does what it says: the list still names ledgers that are gone."""

    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 25)
        await w.world.sleep(0.1)
        ml.set_retention(retention_ms=0, retention_bytes=0)
        w.faults.next_writes.extend([WriteFault.NONE, WriteFault.NONE, *[WriteFault.UNKNOWN_BEFORE] * 8])
        with pytest.raises(Exception, match="without an answer"):
            await ml.trim()
        again = await w.reopen()
        with pytest.raises(NoSuchLedgerError):
            await again.read(positions[:1])

    with planted("ledgers are deleted before the list without them is written"):
        in_world(scenario)
