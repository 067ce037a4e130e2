"""What waits for a new ledger is sent to its bookies while the list that names it is written."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import BadVersionError, DiskFullError, LedgerFencedError, MetadataError, UnknownOutcomeError
from geminga.model.position import EARLIEST
from geminga.runtime import next_turn
from geminga.wire.bookkeeper.ledger_path import ledger_path as path_of_ledger
from support.worlds.ledger_world import NAME, append, read_all

LIST = ledger_path(NAME)


class HeldLists(MemoryMetadataStore):
    """Writes of the list wait until they are let go."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.held: list[asyncio.Future[None]] | None = None
        #: Instead of the write.
        self.error: MetadataError | None = None
        #: The write is carried out without an answer, and what the list has can not be read.
        self.has_no_answer = False

    async def put(self, path, value, **options):
        if path == LIST and self.held is not None:
            self.held.append(asyncio.get_running_loop().create_future())
            await self.held[-1]
            if self.error is not None:
                raise self.error
        result = await super().put(path, value, **options)
        if path == LIST and self.has_no_answer:
            raise UnknownOutcomeError("lost")
        return result

    async def get(self, path):
        if path == LIST and self.has_no_answer:
            raise MetadataError("away")
        return await super().get(path)

    async def hold(self) -> None:
        self.held = []

    async def until_held(self) -> None:
        while not self.held:
            await next_turn()

    def let_go(self) -> None:
        assert self.held is not None
        held, self.held = self.held, None
        for each in held:
            each.set_result(None)


async def held_log(w, monkeypatch):
    """A log whose list can be held."""
    monkeypatch.setattr("support.worlds.ledger_world.MemoryMetadataStore", HeldLists)
    w.new_process()
    ml = await w.open()
    await w.store.hold()
    return ml


def test_first_entries_are_stored_while_the_list_is_written_and_confirmed_behind_it(in_world, monkeypatch):
    async def scenario(w):
        ml = await held_log(w, monkeypatch)
        cursor = ml.new_non_durable_cursor("r", EARLIEST)
        first = asyncio.ensure_future(append(ml, [b"0", b"1"]))
        await w.store.until_held()
        # One comes while the list is written: it is behind what was sent.
        second = asyncio.ensure_future(append(ml, [b"2"]))
        for _ in range(20):
            await next_turn()
        assert w.bookie.add_calls == 1
        assert (first.done(), second.done(), len(ml.ledgers)) == (False, False, 0)
        assert not cursor.reading.has_more_entries
        w.store.let_go()
        (both,), (third,) = await first, await second
        assert (both.first_entry_id, both.count, third.first_entry_id, third.error) == (0, 2, 2, None)
        for log in (ml, await w.reopen()):
            assert await read_all(log.new_non_durable_cursor("all", EARLIEST)) == [b"0", b"1", b"2"]

    in_world(scenario)


def test_more_than_the_ledger_takes_waits_for_the_next(in_world):
    async def scenario(w):
        ml = await w.open()
        results = await append(ml, [b"%d" % i for i in range(25)])
        assert [(r.index, r.count, r.first_entry_id) for r in results] == [(0, 10, 0), (10, 10, 0), (20, 5, 0)]

    in_world(scenario)


def test_who_appends_when_he_is_told_comes_behind_those_who_wait(in_world, monkeypatch):
    async def scenario(w):
        ml = await held_log(w, monkeypatch)
        told = []

        def again(result) -> None:
            told.append(result.error)
            ml.append([b"later"], lambda result: told.append(result.error))

        ml.append([b"early"], again)
        await w.store.until_held()
        ml.append([b"waits"], lambda result: told.append(result.error))
        for _ in range(20):
            await next_turn()
        assert told == []
        w.store.let_go()
        await w.world.sleep(1)
        assert told == [None, None, None]
        assert await read_all(ml.new_non_durable_cursor("r", EARLIEST)) == [b"early", b"waits", b"later"]

    in_world(scenario)


@pytest.mark.parametrize("is_stored", [False, True])
def test_write_that_fails_while_the_list_is_written_fails_what_is_behind_it_and_ends_the_ledger(
    in_world, monkeypatch, is_stored
):
    async def scenario(w):
        ml = await held_log(w, monkeypatch)
        w.bookie.add_error, w.bookie.stores_before_error = DiskFullError("full"), is_stored
        first = asyncio.ensure_future(append(ml, [b"lost"]))
        await w.store.until_held()
        second = asyncio.ensure_future(append(ml, [b"behind it"]))
        await next_turn()
        w.bookie.add_error = None
        w.store.let_go()
        assert [type(result.error) for (result,) in (await first, await second)] == [DiskFullError] * 2
        await w.fill(ml, 1)
        for log in (ml, await w.reopen()):
            assert await read_all(log.new_non_durable_cursor("r", EARLIEST)) == [b"m0"]

    in_world(scenario)


@pytest.mark.parametrize("error", [MetadataError("no"), BadVersionError("another owner")])
def test_what_was_sent_into_a_ledger_that_no_list_names_failed_and_does_not_come_back(in_world, monkeypatch, error):
    async def scenario(w):
        ml = await held_log(w, monkeypatch)
        w.store.error = error
        sent = asyncio.ensure_future(append(ml, [b"early", b"too"]))
        await w.store.until_held()
        behind = asyncio.ensure_future(append(ml, [b"behind"]))
        ledger_id = await w.bookkeeper._ids.next_id() - 1
        w.store.let_go()
        expected = LedgerFencedError if isinstance(error, BadVersionError) else MetadataError
        (first,), (second,) = await sent, await behind
        assert (type(first.error), first.count, first.ledger_id) == (expected, 2, -1)
        assert isinstance(second.error, expected)
        w.store.error = None
        await w.world.sleep(10)
        # Another owner may have it: it is not ours to delete then.
        assert await w.store.exists(path_of_ledger(ledger_id)) is (expected is LedgerFencedError)
        if expected is MetadataError:
            await w.fill(ml, 1)
            await ml.close()
        read = await read_all((await w.reopen()).new_non_durable_cursor("r", EARLIEST))
        assert read == ([b"m0"] if expected is MetadataError else [])

    in_world(scenario)


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_failed_leaves_with_the_next_list_where_nobody_knew_whether_the_first_was_written(
    in_world, monkeypatch, is_closed
):
    async def scenario(w):
        ml = await held_log(w, monkeypatch)
        w.store.has_no_answer = True
        sent = asyncio.ensure_future(append(ml, [b"failed"]))
        await w.store.until_held()
        ledger_id = await w.bookkeeper._ids.next_id() - 1
        w.store.let_go()
        (result,) = await sent
        assert isinstance(result.error, MetadataError)
        assert ml.stored.is_in_doubt
        w.store.has_no_answer = False
        await w.world.sleep(10)
        # The list names it: it is not deleted behind the back of who may have read that by now.
        assert await w.store.exists(path_of_ledger(ledger_id))
        if not is_closed:
            await w.fill(ml, 1)
        await ml.close()
        again = await w.reopen()
        assert await read_all(again.new_non_durable_cursor("r", EARLIEST)) == ([] if is_closed else [b"m0"])

    in_world(scenario)


def test_log_that_is_closed_meanwhile_has_what_was_sent(in_world, monkeypatch):
    async def scenario(w):
        ml = await held_log(w, monkeypatch)
        sent = asyncio.ensure_future(append(ml, [b"early"]))
        await w.store.until_held()
        closing = asyncio.ensure_future(ml.close())
        await next_turn()
        w.store.let_go()
        (result,) = await sent
        await closing
        assert result.error is None
        assert await read_all((await w.reopen()).new_non_durable_cursor("r", EARLIEST)) == [b"early"]

    in_world(scenario)


def test_answer_to_what_was_given_up_is_not_taken_for_that_of_what_came_later(in_world, monkeypatch):
    async def scenario(w):
        ml = await held_log(w, monkeypatch)
        w.bookie.holds_replies, w.store.error = True, MetadataError("no")
        sent = asyncio.ensure_future(append(ml, [b"early"]))
        await w.store.until_held()
        w.store.let_go()
        (result,) = await sent
        assert isinstance(result.error, MetadataError)
        w.store.error = None
        await w.world.sleep(1)
        later = asyncio.ensure_future(append(ml, [b"later", b"too"]))
        await w.world.sleep(0.1)
        w.bookie.release()
        (result,) = await later
        assert (result.error, result.count, result.ledger_id) == (None, 2, ml.ledgers.infos[0].ledger_id)
        assert await read_all((await w.reopen()).new_non_durable_cursor("r", EARLIEST)) == [b"later", b"too"]

    in_world(scenario)
