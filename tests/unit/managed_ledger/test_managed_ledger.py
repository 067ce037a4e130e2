"""Managed ledgers: notification, ending, properties."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger.shared.metadata_io import UNKNOWN_ATTEMPTS_MAX
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import (
    LedgerClosedError,
    TopicTerminatedError,
    UnknownOutcomeError,
)
from geminga.model.position import EARLIEST, LATEST, Position
from support.worlds.ledger_world import NAME, append, read_all


def test_ledger_that_is_new_is_empty_and_has_no_ledger(in_world):
    async def scenario(w):
        ml = await w.open()
        assert ml.extent.last_confirmed_position == EARLIEST
        assert (ml.ledgers.entry_count, ml.ledgers.size_bytes, len(ml.ledgers)) == (0, 0, 0)
        assert w.bookie.add_calls == 0
        assert await w.factory.encoded_names("public/default/persistent") == [NAME.rpartition("/")[2]]

    in_world(scenario)


def test_tail_listener_is_called_once_a_group_until_removed(in_world):
    async def scenario(w):
        ml = await w.open()
        calls = []
        remove = ml.tail.add_listener(lambda: calls.append(ml.extent.last_confirmed_position))
        await w.fill(ml, 5)
        await w.world.sleep(0.01)
        assert calls == [Position(ml.ledgers.last.ledger_id, 4)]
        remove()
        await w.fill(ml, 1)
        await w.world.sleep(0.01)
        assert len(calls) == 1

    in_world(scenario)


def test_truncate_empties_the_log_whatever_holds_it(in_world):
    async def scenario(w):
        ml = await w.open()
        ml.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        await w.fill(ml, 25)
        await ml.trimmer.truncate()
        assert (ml.ledgers.entry_count, cursor.backlog_count) == (0, 0)
        await w.fill(ml, 2, "n")
        assert await read_all(cursor) == [b"n0", b"n1"]

    in_world(scenario)


def test_terminated_log_refuses_appends_for_ever(in_world):
    async def scenario(w):
        ml, positions = await w.filled(3)
        assert await ml.terminate() == positions[-1]
        assert await ml.terminate() == positions[-1]
        for log in (ml, await w.reopen()):
            assert log.stored.terminated_position == positions[-1]
            (result,) = await append(log, [b"x"])
            assert isinstance(result.error, TopicTerminatedError)
            assert len(await log.reader.read(positions)) == 3

    in_world(scenario)


def test_closed_log_refuses_appends(in_world):
    async def scenario(w):
        ml = await w.open()
        await ml.close()
        await ml.close()
        (result,) = await append(ml, [b"x"])
        assert isinstance(result.error, LedgerClosedError)

    in_world(scenario)


def test_properties_survive(in_world):
    async def scenario(w):
        ml = await w.open()
        await ml.stored.set_properties({"a": "1"})
        assert (await w.reopen()).stored.properties == {"a": "1"}

    in_world(scenario)


def test_latest_of_a_trimmed_log_is_behind_everything(in_world):
    async def scenario(w):
        ml, _ = await w.filled(3)
        reader = ml.new_non_durable_cursor("r", LATEST)
        assert not reader.reading.has_more_entries
        await w.fill(ml, 1, "n")
        assert await read_all(reader) == [b"n0"]

    in_world(scenario)


def test_close_while_a_cursor_is_being_deleted_lets_go_of_the_log(in_world):
    async def scenario(w):
        ml = await w.open()
        await ml.open_cursor("s")
        w.faults.delay_ms_max = 50
        deleting = asyncio.ensure_future(ml.delete_cursor("s"))
        await w.world.sleep(0.0001)
        await ml.close()
        await deleting
        again = await w.open()
        assert again is not ml
        assert "s" not in again.cursors

    in_world(scenario)


def test_termination_that_fails_leaves_the_log_open(in_world):
    async def scenario(w):
        ml, _ = await w.filled(2)
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * UNKNOWN_ATTEMPTS_MAX)
        terminating = asyncio.ensure_future(ml.terminate())
        await w.world.sleep(0)
        meanwhile = asyncio.ensure_future(append(ml, [b"meanwhile"]))
        with pytest.raises(UnknownOutcomeError):
            await terminating
        assert ml.stored.terminated_position is None
        assert [result.error for result in await asyncio.wait_for(meanwhile, 10)] == [None]
        await w.fill(ml, 1)
        position = await ml.terminate()
        assert position == ml.extent.last_confirmed_position
        (refused,) = await append(ml, [b"late"])
        assert isinstance(refused.error, TopicTerminatedError)

    in_world(scenario)
