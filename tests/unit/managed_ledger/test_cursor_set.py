"""The cursors of a managed ledger: made, found again, deleted."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger.shared.metadata_io import UNKNOWN_ATTEMPTS_MAX, cursor_path, ledger_path
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import LedgerClosedError, SessionExpiredError, UnknownOutcomeError
from geminga.model.position import EARLIEST, LATEST
from geminga.runtime import next_turn
from support.worlds.ledger_world import NAME, read_all


def test_cursor_of_a_name_is_one_however_often_it_is_opened(in_world):
    async def scenario(w):
        ml = await w.open()
        first, second = await asyncio.gather(ml.open_cursor("s"), ml.open_cursor("s", initial=EARLIEST))
        assert first is second
        await first.close()
        assert await ml.open_cursor("s") is first
        assert not first.is_closed
        assert dict(ml.cursors) == {"s": first}

    in_world(scenario)


def test_deleted_cursor_is_gone_with_its_node_and_another_may_have_its_name(in_world):
    async def scenario(w):
        ml, cursor, _ = await w.with_cursor(3)
        await ml.delete_cursor("s")
        await ml.delete_cursor("s")
        assert (cursor.is_closed, ml.cursors, await w.store.get(cursor_path(NAME, "s"))) == (True, {}, None)
        again = await ml.open_cursor("s", initial=EARLIEST)
        assert again is not cursor
        assert len(await read_all(again)) == 3

    in_world(scenario)


def test_cursors_in_memory_are_known_until_they_are_closed(in_world):
    async def scenario(w):
        ml = await w.open()
        readers = [ml.new_non_durable_cursor("r", LATEST) for _ in range(2)]
        assert set(ml.cursor_set.non_durable) == set(readers)
        await readers[0].close()
        assert set(ml.cursor_set.non_durable) == {readers[1]}
        assert ml.cursors == {}

    in_world(scenario)


def test_no_cursor_is_made_in_a_managed_ledger_that_is_closed(in_world):
    async def scenario(w):
        ml = await w.open()
        before = await ml.open_cursor("before")
        await ml.close()
        for name in ("s", "before"):
            with pytest.raises(LedgerClosedError):
                await ml.open_cursor(name)
        assert before.is_closed
        assert await w.store.get(cursor_path(NAME, "s")) is None

    in_world(scenario)


@pytest.mark.parametrize("turns", range(0, 30, 3))
def test_cursor_that_is_opened_while_its_name_is_being_deleted_is_one_that_stays(in_world, turns):
    async def scenario(w):
        ml, _ = await w.filled(3)
        before = await ml.open_cursor("s", initial=EARLIEST)
        w.faults.delay_ms_max = 5
        deleting = asyncio.ensure_future(ml.delete_cursor("s"))
        await w.world.sleep(turns / 3000)
        again = await ml.open_cursor("s", initial=EARLIEST)
        await deleting
        assert (ml.cursors, again.is_closed) == ({"s": again}, False)
        assert again is not before
        assert len(await read_all(again)) == 3
        assert await w.store.get(cursor_path(NAME, "s")) is not None

    in_world(scenario)


def test_closed_cursor_that_is_opened_while_its_deletion_fails_is_open(in_world):
    async def scenario(w):
        ml, cursor, _ = await w.with_cursor(3)
        await cursor.close()
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * UNKNOWN_ATTEMPTS_MAX)
        deleting = asyncio.ensure_future(ml.delete_cursor("s"))
        await next_turn()
        opened = await ml.open_cursor("s")
        with pytest.raises(UnknownOutcomeError):
            await deleting
        assert opened is cursor
        assert not opened.is_closed
        assert len(await read_all(opened)) == 3

    in_world(scenario)


def test_cursor_whose_deletion_failed_is_there(in_world):
    async def scenario(w):
        ml = await w.open()
        cursor = await ml.open_cursor("s")
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * UNKNOWN_ATTEMPTS_MAX)
        with pytest.raises(UnknownOutcomeError):
            await ml.delete_cursor("s")
        assert await ml.open_cursor("s") is cursor
        await ml.delete_cursor("s")
        assert ml.cursors == {}

    in_world(scenario)


@pytest.mark.parametrize("is_shared", [False, True])
def test_cursor_whose_creation_had_no_answer_is_taken_over_by_the_next_attempt(in_world, is_shared):
    async def scenario(w):
        w.new_process(is_shared=is_shared)
        ml, _ = await w.filled(3)
        # The node is there, and then the store is away: whether it is can not be asked.
        end = w.store.watch_node(cursor_path(NAME, "s"), lambda _: w.store.expire_session(1000))
        w.faults.next_writes.append(WriteFault.UNKNOWN_AFTER)
        with pytest.raises(SessionExpiredError):
            await ml.open_cursor("s", initial=LATEST)
        end()
        assert (ml.cursors, (await _node_after(w)) is not None) == ({}, True)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert not ml.tenure.is_fenced
        assert len(await read_all(cursor)) == 3
        await w.fill(ml, 1)
        await ml.close()
        assert (await w.reopen()).cursors["s"].backlog_count == 4

    in_world(scenario)


async def _node_after(w):
    await w.world.sleep(2)
    return await w.store.get(cursor_path(NAME, "s"))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_cursor_whose_creation_had_no_answer_goes_when_it_or_the_log_is_deleted(in_world, is_deleted):
    async def scenario(w):
        ml = await w.open()
        end = w.store.watch_node(cursor_path(NAME, "s"), lambda _: w.store.expire_session(1000))
        w.faults.next_writes.append(WriteFault.UNKNOWN_AFTER)
        with pytest.raises(SessionExpiredError):
            await ml.open_cursor("s")
        end()
        assert await _node_after(w) is not None
        if is_deleted:
            await w.factory.delete(NAME)
        else:
            await ml.delete_cursor("s")
            await ml.delete_cursor("s")
            assert not ml.tenure.is_fenced
        assert await w.store.get(cursor_path(NAME, "s")) is None
        assert await w.store.exists(ledger_path(NAME)) is not is_deleted

    in_world(scenario)


@pytest.mark.parametrize("steps", range(5))
def test_cursor_whose_creator_was_called_off_is_made_by_the_next(in_world, steps):
    async def scenario(w):
        ml = await w.open()
        w.faults.delay_ms_max = 20
        cut = asyncio.ensure_future(ml.open_cursor("s"))
        await w.world.sleep(steps * 0.005)
        cut.cancel()
        await asyncio.wait([cut])
        cursor = await ml.open_cursor("s")
        assert (ml.cursors, ml.tenure.is_fenced) == ({"s": cursor}, False)

    in_world(scenario)
