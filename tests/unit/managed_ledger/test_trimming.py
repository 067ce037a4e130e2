"""Deleting ledgers that nobody needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.metadata_io import MetadataNode
from geminga.managed_ledger.trimming import Trimmer
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import NoSuchLedgerError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import spawn
from geminga.wire.managed_ledger import ManagedLedgerRecord
from support.house.planted_defects import planted
from support.worlds.ledger_world import NAME, LedgerWorld, acknowledge_cumulative, read_all


def stored_list(
    w: LedgerWorld,
    *,
    fenced: Callable[[StorageError], object] = lambda error: None,
    forget: Callable[[int], object] = lambda ledger_id: None,
) -> StoredList:
    """Of a log without ledgers."""
    node, record = MetadataNode(), ManagedLedgerRecord()
    return StoredList(NAME, node, record, metadata=w.store, ledgers=w.bookkeeper, fenced=fenced, forget=forget)


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
        assert ml.ledgers.first_position == positions[10]
        assert [entry.position for entry in await ml.reader.read(positions[8:12])] == positions[10:12]
        with pytest.raises(NoSuchLedgerError):
            await w.bookkeeper.open_ledger(positions[0].ledger_id)
        assert [info.entries for info in (await w.reopen()).ledgers.infos] == [10, 10, 5]

    in_world(scenario)


@pytest.mark.parametrize("whole", [False, True])
def test_the_list_is_free_while_ledgers_that_left_it_are_deleted(in_world, whole):
    """Each takes a turn of the metadata: who subscribes meanwhile does not wait for hundreds of them."""

    async def scenario(w):
        ml, _ = await w.filled(405)
        await w.let_background_persist()  # and what the last full ledger brought on
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        w.faults.delay_ms_max = 1000
        trim = spawn(ml.trimmer.truncate() if whole else ml.trimmer.trim(), name="trim")
        while len(ml.ledgers) > 2:
            await w.world.sleep(0.1)
        began_s = w.world.now
        await ml.open_cursor("late")
        assert w.world.now - began_s < 3
        assert not trim.done(), "it is deleting still"
        await trim
        w.faults.delay_ms_max = 0
        assert len(await w.store.children("/ledgers/00/0000")) <= 3

    in_world(scenario)


def test_trim_keeps_what_retention_holds(in_world):
    async def scenario(w):
        ml = await w.open()
        ml.trimmer.set_retention(retention_ms=60_000, retention_bytes=-1)
        await w.fill(ml, 25)
        await ml.trimmer.trim()
        assert ml.ledgers.entry_count == 25
        await w.world.sleep(61)
        await ml.trimmer.trim()
        assert ml.ledgers.entry_count == 5

    in_world(scenario)


def test_trim_keeps_everything_until_the_owner_says_what_retention_is(in_world):
    """A cursor that comes back, or a ledger that is closed, trims before the policies are read."""

    async def scenario(w):
        ml = await w.factory.open(NAME)
        await w.fill(ml, 35)
        await ml.trimmer.trim()
        assert ml.ledgers.entry_count == 35, "trimmed under a retention that nobody had read yet"
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await ml.trimmer.trim()
        assert ml.ledgers.entry_count == 5

    in_world(scenario)


def test_trim_goes_by_the_policy_at_the_moment_of_the_list(in_world):
    """The policy changes while a trim makes cursors durable."""

    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 35)
        await w.world.sleep(2)
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        w.faults.delay_ms_max = 100
        # Begins a cursor ledger, for which the store takes its time.
        cursor.acknowledge_cumulative(positions[-1])
        trim = asyncio.ensure_future(ml.trimmer.trim())
        await w.world.sleep(0.001)
        assert cursor.store.persisted_mark_delete < positions[-1]
        ml.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
        await trim
        assert cursor.store.persisted_mark_delete == positions[-1]
        assert ml.ledgers.entry_count == 35, "trimmed by a policy that was replaced before the list was written"

    in_world(scenario)


def test_trim_of_everything_leaves_an_empty_log_and_ids_that_ascend(in_world):
    async def scenario(w):
        ml = await w.open(retention_ms=0)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        positions = await w.fill(ml, 5)
        await acknowledge_cumulative(cursor, positions[-1])
        await ml.roll()
        await ml.trimmer.trim()
        assert (len(ml.ledgers), ml.extent.last_confirmed_position) == (0, EARLIEST)
        again = await w.reopen()
        (position,) = await w.fill(again, 1)
        assert position > positions[-1]
        assert await read_all(again.cursors["s"]) == [b"m0"]

    in_world(scenario)


def test_trim_that_deletes_before_the_list_loses_the_log_at_a_failure(in_world):
    """The planted defect does what it says: the list still names ledgers that are gone."""

    async def scenario(w):
        ml, positions = await w.filled(25)
        await w.world.sleep(0.1)
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        w.faults.next_writes.extend([WriteFault.NONE, WriteFault.NONE, *[WriteFault.UNKNOWN_BEFORE] * 8])
        with pytest.raises(Exception, match="without an answer"):
            await ml.trimmer.trim()
        again = await w.reopen()
        with pytest.raises(NoSuchLedgerError):
            await again.reader.read(positions[:1])

    with planted("ledgers are deleted before the list without them is written"):
        in_world(scenario)


class _Holding:
    """A cursor that notes when it was asked to be durable."""

    is_closed = False

    def __init__(self, mark_delete_position, said):
        self.mark_delete_position = mark_delete_position
        self._said = said

    async def flush(self):
        self._said.append("flushed")

    async def clear_backlog(self, through):
        self.mark_delete_position = max(self.mark_delete_position, through)


def test_trimmer_alone_flushes_then_writes_the_list_then_deletes(in_world):
    """The order is the promise: a kill between two steps leaves ledgers that nobody names, and none that is missing."""

    async def scenario(w):
        said = []
        stored = stored_list(w, fenced=said.append, forget=lambda ledger_id: said.append(("deleted", ledger_id)))
        for _ in range(3):
            made = await w.bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            stored.ledgers.append(LedgerInfo(made.ledger_id, 2, 20, closed_ms=1))
        await stored.put(stored.ledgers.infos)
        first, second, third = (info.ledger_id for info in stored.ledgers.infos)
        stored.extent.listed()
        cursors = {"s": _Holding(Position(first, 1), said)}

        class Log:
            def on_trimmed(self, ledger_ids):
                said.append(("listed", tuple(ledger_ids)))
                stored.ledgers.remove(ledger_ids)
                stored.extent.listed()

            async def roll(self):
                said.append("rolled")

        tenure = Tenure(NAME)
        trimmer = Trimmer(Log(), tenure, stored, cursors, w.factory._services)
        await trimmer.trim()
        assert said == []  # nobody said yet what is retained
        trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await trimmer.trim()
        assert said == ["flushed", ("listed", (first,)), ("deleted", first)]
        said.clear()
        await trimmer.truncate(Position(second, 1))
        assert said == ["flushed", ("listed", (second,)), ("deleted", second)]
        assert cursors["s"].mark_delete_position == (second, 1)
        cursors["s"].mark_delete_position = Position(third, 1)
        tenure.is_closed = True
        said.clear()
        await trimmer.trim()
        assert said == []

    in_world(scenario)


class _CountedId(int):
    """How often any two of them were compared by their numbers."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other):
        _CountedId.compared += 1
        return int(self) == other


def test_trim_of_a_thousand_ledgers_looks_for_none_of_them_among_all_others(in_world):
    """Of ten thousand that took eleven seconds, in which the process served nobody."""

    async def scenario(w):
        stored = stored_list(w)
        for number in range(1000):
            stored.ledgers.append(LedgerInfo(_CountedId(10**9 + number), 1, closed_ms=1))
        stored.extent.listed()
        kept = stored.ledgers.infos[-1].ledger_id

        class Log:
            def on_trimmed(self, ledger_ids):
                stored.ledgers.remove(ledger_ids)

        cursors = {"s": _Holding(Position(kept - 1, 0), [])}
        trimmer = Trimmer(Log(), Tenure(NAME), stored, cursors, w.factory._services)
        trimmer.set_retention(retention_ms=0, retention_bytes=0)
        _CountedId.compared = 0
        await trimmer.trim()
        assert [info.ledger_id for info in stored.ledgers.infos] == [kept]
        assert _CountedId.compared < 20_000

    in_world(scenario)
