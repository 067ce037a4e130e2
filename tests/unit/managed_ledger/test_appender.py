"""The append path: rollover, failed writes, unknown outcomes."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.shared.metadata_io import ledger_path as list_path
from geminga.metadata.cas import CAS_ATTEMPTS_MAX
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import (
    DiskFullError,
    LedgerClosedError,
    MetadataError,
)
from geminga.model.position import EARLIEST, Position
from geminga.runtime import next_turn
from geminga.wire.bookkeeper.ledger_path import ledger_path
from support.worlds.ledger_world import NAME, append, read_all


def test_append_over_a_rollover_is_split_and_completed_in_order(in_world):
    async def scenario(w):
        ml = await w.open()
        results = await append(ml, [b"%d" % i for i in range(25)])
        assert [(r.index, r.count, r.first_entry_id) for r in results] == [(0, 10, 0), (10, 10, 0), (20, 5, 0)]
        assert [info.entries for info in ml.ledgers.infos] == [10, 10, 5]
        assert ml.extent.last_confirmed_position == Position(results[-1].ledger_id, 4)
        entries = await ml.reader.read_range(ml.ledgers.first_position, 100, 1 << 20)
        assert [entry.data for entry in entries] == [b"%d" % i for i in range(25)]

    in_world(scenario)


def test_appends_that_wait_for_a_ledger_are_written_in_their_order(in_world):
    async def scenario(w):
        ml = await w.open()
        # The first one needs three ledgers.
        first, second = (append(ml, entries) for entries in ([b"%d" % i for i in range(25)], [b"25"]))
        await asyncio.gather(first, second)
        assert await read_all(ml.new_non_durable_cursor("r", EARLIEST)) == [b"%d" % i for i in range(26)]

    in_world(scenario)


def test_append_that_waits_for_a_ledger_fails_when_the_log_is_closed_before_its_turn(in_world):
    async def scenario(w):
        ml = await w.open()
        w.faults.delay_ms_max = 100
        # Has the list to itself while the append comes and the log is closed.
        busy = asyncio.ensure_future(ml.stored.set_properties({"name": "value"}))
        await w.world.sleep(0.001)
        waiting = asyncio.ensure_future(append(ml, [b"waiting"]))
        await w.world.sleep(0.001)
        closing = asyncio.ensure_future(ml.close())
        (result,) = await asyncio.wait_for(waiting, 10)
        assert isinstance(result.error, LedgerClosedError)
        await asyncio.gather(busy, closing)

    in_world(scenario)


def test_append_by_size_rolls_behind_the_entry_that_crosses_the_limit(in_world):
    async def scenario(w):
        ml = await w.open()
        results = await append(ml, [bytes(600_000)] * 5)
        assert [r.count for r in results] == [2, 2, 1]

    in_world(scenario, ManagedLedgerConfig(max_size_per_ledger_mb=1, min_rollover_minutes=0))


def test_append_before_the_minimum_age_does_not_roll(in_world):
    async def scenario(w):
        ml, _ = await w.filled(35)
        assert len(ml.ledgers) == 1
        # The timer looks once a minute.
        await w.world.sleep(121)
        assert len(ml.ledgers) == 2

    in_world(scenario, ManagedLedgerConfig(max_entries_per_ledger=10, min_rollover_minutes=1))


def test_ledger_past_its_maximum_age_rolls_by_itself_and_an_empty_one_does_not(in_world):
    async def scenario(w):
        ml, _ = await w.filled(1)
        await w.world.sleep(5 * 60)
        assert len(ml.ledgers) == 2
        await w.world.sleep(20 * 60)
        assert len(ml.ledgers) == 2
        await w.factory.close()

    in_world(scenario, ManagedLedgerConfig(min_rollover_minutes=0, max_rollover_minutes=3))


def test_failed_write_is_reported_and_later_appends_go_to_a_new_ledger(in_world):
    async def scenario(w):
        ml, _ = await w.filled(3)
        w.bookie.add_error = DiskFullError("full")
        (result,) = await append(ml, [b"lost"])
        assert isinstance(result.error, DiskFullError)
        w.bookie.add_error = None
        (position,) = await w.fill(ml, 1, "next")
        assert [info.entries for info in ml.ledgers.infos] == [3, 1]
        again = await w.reopen()
        cursor = again.new_non_durable_cursor("r", EARLIEST)
        assert await read_all(cursor) == [b"m0", b"m1", b"m2", b"next0"]
        assert position == again.extent.last_confirmed_position

    in_world(scenario)


def test_what_waits_for_a_ledger_behind_a_failed_write_fails_as_well(in_world):
    async def scenario(w):
        ml, _ = await w.filled(8)
        w.bookie.add_error, w.bookie.holds_replies = DiskFullError("full"), True
        # Two fill the ledger, and the others wait for the next one.
        first = asyncio.ensure_future(append(ml, [b"lost%d" % i for i in range(5)]))
        second = asyncio.ensure_future(append(ml, [b"later"]))
        await w.world.sleep(0.1)
        assert not first.done()
        w.bookie.add_error = None
        w.bookie.release()
        results = [*await first, *await second]
        assert [(r.index, r.count) for r in results] == [(0, 2), (2, 3), (0, 1)]
        assert all(isinstance(r.error, DiskFullError) for r in results)
        await w.fill(ml, 1, "next")
        again = await w.reopen()
        assert await read_all(again.new_non_durable_cursor("r", EARLIEST)) == [
            *(b"m%d" % i for i in range(8)),
            b"next0",
        ]

    in_world(scenario)


def test_what_comes_before_a_refusal_was_told_is_refused_too(in_world):
    async def scenario(w):
        ml = await w.open()
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * 2 * CAS_ATTEMPTS_MAX)
        (result,) = await append(ml, [b"no ledger"])
        assert isinstance(result.error, MetadataError)
        w.faults.next_writes.clear()
        results = []
        ml.append([b"refused"], results.append)
        # In the same turn of the loop it could be written again.
        ml._appender._retry_ms = 0
        ml.append([b"behind it"], results.append)
        await w.world.sleep(0.1)
        assert [isinstance(result.error, MetadataError) for result in results] == [True, True]
        await w.fill(ml, 1)

    in_world(scenario)


def test_failed_write_that_was_stored_is_not_in_the_log(in_world):
    async def scenario(w):
        ml, _ = await w.filled(1)
        w.bookie.stores_before_error = True
        w.bookie.add_error = DiskFullError("full")
        (result,) = await append(ml, [b"stored"])
        assert result.error is not None
        w.bookie.add_error = None
        await w.fill(ml, 1, "next")
        for log in (ml, await w.reopen()):
            assert await read_all(log.new_non_durable_cursor("r", EARLIEST)) == [b"m0", b"next0"]

    in_world(scenario)


def test_failed_ledger_is_closed_before_the_list_says_where_it_ends(in_world):
    """Whoever reads the list must find no other end in the ledger, be it only until the next step."""

    async def scenario(w):
        ml, _ = await w.filled(2)
        changed = []

        def look(path):
            w.store.watch_node(path, lambda notification: changed.append(notification.path))

        look(list_path(NAME))
        look(ledger_path(ml.ledgers.infos[0].ledger_id))
        look(ledger_path(ml.ledgers.infos[0].ledger_id + 1))
        w.bookie.add_error, w.bookie.stores_before_error = DiskFullError("full"), True
        await append(ml, [b"failed"])
        w.bookie.add_error = None
        await w.fill(ml, 1)
        first, second = (info.ledger_id for info in ml.ledgers.infos)
        assert [info.entries for info in ml.ledgers.infos] == [2, 1]
        paths = (ledger_path(first), ledger_path(second), list_path(NAME))
        # The last one is told of when the append is done.
        await next_turn()
        assert [path for path in changed if path in paths] == list(paths)

    in_world(scenario)


def test_failed_ledger_that_can_not_be_closed_ends_where_recovery_finds(in_world):
    async def scenario(w):
        ml, _ = await w.filled(2)
        w.bookie.add_error, w.bookie.stores_before_error = DiskFullError("full"), True
        # What closing tries is lost again and again; recovery, right after it, succeeds and finds the entry.
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        await append(ml, [b"stored all the same"])
        w.bookie.add_error = None
        await w.fill(ml, 1)
        assert [info.entries for info in ml.ledgers.infos] == [3, 1]
        for again in (ml, await w.reopen()):
            entries = await again.reader.read_range(again.ledgers.first_position, 10, 1 << 20)
            assert [entry.data for entry in entries] == [b"m0", b"m1", b"stored all the same", b"m0"]

    in_world(scenario)


def test_end_of_a_failed_ledger_is_fixed_on_demand_and_of_no_other(in_world):
    async def scenario(w):
        ml, _ = await w.filled(2)
        await ml.roll(only_failed=True)
        assert [info.closed_ms for info in ml.ledgers.infos] == [0]
        w.bookie.add_error, w.bookie.stores_before_error = DiskFullError("full"), True
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        await append(ml, [b"stored all the same"])
        w.bookie.add_error = None
        await ml.roll(only_failed=True)
        (info,) = ml.ledgers.infos
        assert info.closed_ms
        assert info.entries == 3
        assert ml.extent.last_confirmed_position == Position(info.ledger_id, 2)
        await w.fill(ml, 1)

    in_world(scenario)


@pytest.mark.parametrize("is_switch", [False, True])
def test_end_of_a_ledger_that_failed_while_it_was_being_left_is_fixed_on_demand(in_world, is_switch):
    """Its last writes were under way when the next ledger was to be begun."""

    async def scenario(w):
        ml, _ = await w.filled(2)
        w.bookie.add_error, w.bookie.stores_before_error = DiskFullError("full"), True
        w.bookie.holds_replies = True
        written = asyncio.ensure_future(append(ml, [b"stored all the same"]))
        await w.world.sleep(0.01)
        leaving = asyncio.ensure_future(append(ml, [b"next"]) if is_switch else ml.roll())
        await w.world.sleep(0.01)
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        w.bookie.add_error, w.bookie.holds_replies = None, False
        w.bookie.release()
        (result,) = await written
        assert isinstance(result.error, DiskFullError)
        await ml.roll(only_failed=True)
        first = ml.ledgers.infos[0]
        assert first.closed_ms
        assert first.entries == 3
        assert ml.extent.last_confirmed_position == Position(first.ledger_id, 2)
        await leaving
        await w.fill(ml, 1)
        # What began meanwhile had not failed, and is gone on with.
        await ml.roll(only_failed=True)
        assert [info.entries for info in ml.ledgers.infos] == [3, 1]

    limits = {"max_entries_per_ledger": 3, "min_rollover_minutes": 0} if is_switch else {}
    in_world(scenario, ManagedLedgerConfig(**limits))


def test_a_close_that_is_cut_off_leaves_who_waits_for_the_same_writes_waiting(in_world):
    async def scenario(w):
        ml, _ = await w.filled(1)
        w.bookie.holds_replies = True
        written = asyncio.ensure_future(append(ml, [b"under way"]))
        await w.world.sleep(0.01)
        leaving = asyncio.ensure_future(ml.roll())
        closing = asyncio.ensure_future(ml.close())
        await w.world.sleep(0.01)
        closing.cancel()
        await w.world.sleep(0.01)
        assert (closing.cancelled(), leaving.done()) == (True, False)
        w.bookie.holds_replies = False
        w.bookie.release()
        (result,) = await written
        assert result.error is None
        await leaving

    in_world(scenario)


def test_no_new_ledger_fails_appends_and_recovers_when_there_are_bookies_again(in_world):
    async def scenario(w):
        ml = await w.open()
        w.bookie.is_writable = False
        (result,) = await append(ml, [b"a"])
        assert result.error is not None
        assert result.error.retriable
        w.bookie.is_writable = True
        await w.world.sleep(1)
        await w.fill(ml, 1)

    in_world(scenario)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_AFTER, WriteFault.UNKNOWN_BEFORE])
def test_list_change_with_unknown_outcome_is_settled(in_world, fault):
    async def scenario(w):
        ml = await w.open()
        for _ in range(3):
            await w.fill(ml, 10)
            await ml.roll()
            # The new ledger's own node comes first, then the list.
            w.faults.next_writes.extend([WriteFault.NONE, fault])
        await w.fill(ml, 1)
        assert not ml.tenure.is_fenced
        assert [info.entries for info in (await w.reopen()).ledgers.infos] == [10, 10, 10, 1]

    in_world(scenario)


@pytest.mark.parametrize("is_dead", [False, True])
def test_roll_that_fails_leaves_no_append_unanswered(in_world, is_dead):
    async def scenario(w):
        ml, _ = await w.filled(1)
        w.bookie.holds_replies = True
        if is_dead:
            w.bookie.add_error = DiskFullError("full")
        written = asyncio.ensure_future(append(ml, [b"written"]))
        await w.world.sleep(0.01)
        rolling = asyncio.ensure_future(ml.roll())
        await w.world.sleep(0.01)
        waiting = asyncio.ensure_future(append(ml, [b"waiting"]))
        await w.world.sleep(0.01)
        await w.store.close()
        w.bookie.holds_replies = False
        w.bookie.release()
        with pytest.raises(MetadataError):
            await rolling
        (first,) = await written
        assert isinstance(first.error, DiskFullError if is_dead else type(None))
        (second,) = await asyncio.wait_for(waiting, 10)
        assert isinstance(second.error, DiskFullError if is_dead else MetadataError)
        (third,) = await asyncio.wait_for(append(ml, [b"later"]), 10)
        assert isinstance(third.error, MetadataError)

    in_world(scenario)


def test_a_ledger_that_is_opened_without_an_append_takes_the_next_ones(in_world):
    async def scenario(w):
        ml = await w.open()
        opening = [asyncio.ensure_future(ml.open_ledger()) for _ in range(3)]
        await asyncio.gather(append(ml, [b"a"]), *opening)
        await ml.open_ledger()
        (info,) = ml.ledgers.infos
        assert (info.entries, ml.extent.last_confirmed_position) == (1, Position(info.ledger_id, 0))
        await ml.terminate()
        await ml.open_ledger()
        await ml.close()
        await ml.open_ledger()
        assert [each.ledger_id for each in ml.ledgers.infos] == [info.ledger_id]

    in_world(scenario)


def test_a_ledger_that_can_not_be_opened_without_an_append_is_no_error(in_world):
    async def scenario(w):
        ml = await w.open()
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        await ml.open_ledger()
        assert len(ml.ledgers) == 0
        # It is not tried again at once.
        await ml.open_ledger()
        assert len(ml.ledgers) == 0
        await w.world.sleep(1)
        await ml.open_ledger()
        assert len(ml.ledgers) == 1

    in_world(scenario)
