"""Reads of connections on a bookie that answers when the test says so: turns, and what goes with its asker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from geminga.bookie.serving import limits
from geminga.bookie.serving.long_polls import LongPolls
from geminga.bookie.serving.prompt_requests import PromptRequests
from geminga.bookie.serving.reads import QueuedRead, Reads
from geminga.model.bookie_port import EntryData
from geminga.model.errors import DiskIOError
from geminga.runtime import next_turn
from geminga.wire.bookkeeper.codes import ENTRY_ID_LAST, FRAME_BYTES_MAX
from geminga.wire.bookkeeper.requests import EntryReadRequest, Request
from support.processes.served_bookies import KEY, SlowReads

LEDGER = 3


class Asker:
    """A connection: what it was answered, and how many of its reads were dropped."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self.prompt = PromptRequests(lambda: True)
        self.may_read = True
        self.is_gone = False
        self.answered: list[Request] = []
        self.dropped_count = 0

    def answer(self, request: Request, *parts: EntryData) -> None:
        assert sum(map(len, parts)) > 0
        self.answered.append(request)
        self.prompt.over(request)

    def take_turn(self, requests: Sequence[QueuedRead], done: Callable[[], None]) -> None:
        self._reads.carry_out(self, requests, done)

    def dropped(self, count: int) -> None:
        self.dropped_count += count

    def ask(self, *requests: QueuedRead) -> None:
        for request in requests:
            self._reads.begin(self, request)


def run(story: Callable[[Reads, SlowReads], Awaitable[None]]) -> None:
    async def main() -> None:
        bookie = SlowReads()
        await story(Reads(bookie, LongPolls(), FRAME_BYTES_MAX), bookie)

    asyncio.run(main())


def entry(entry_id: int) -> EntryReadRequest:
    return EntryReadRequest(2, 0, LEDGER, entry_id)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await next_turn()


def test_each_has_one_group_a_turn_and_who_takes_no_answers_waits_until_it_does() -> None:
    async def story(reads: Reads, bookie: SlowReads) -> None:
        many, one, stalled = Asker(reads), Asker(reads), Asker(reads)
        stalled.may_read = False
        stalled.ask(entry(7))
        many.ask(*map(entry, range(2 * limits.GROUP_READS_MAX)))
        one.ask(entry(5))
        assert bookie.reads == [], "they begin on the next turn of the loop"
        await turns()
        assert [len(ids) for _, ids, _ in bookie.reads] == [limits.GROUP_READS_MAX, 1, limits.GROUP_READS_MAX]
        assert bookie.reads[1][1] == [5]
        assert reads.waiting_count == 1
        stalled.may_read = True
        reads.serve()
        await turns()
        assert bookie.reads[3][1] == [7]

    run(story)


def test_no_more_groups_are_under_way_than_may_be() -> None:
    async def story(reads: Reads, bookie: SlowReads) -> None:
        askers = [Asker(reads) for _ in range(limits.GROUPS_MAX + 1)]
        for asker in askers:
            asker.ask(entry(0))
        await turns()
        assert len(bookie.reads) == limits.GROUPS_MAX
        bookie.reads[0][2]([DiskIOError("x")])
        await turns()
        assert len(bookie.reads) == limits.GROUPS_MAX + 1
        assert [len(asker.answered) for asker in askers] == [1] + [0] * limits.GROUPS_MAX

    run(story)


def test_rest_of_a_group_that_was_too_large_is_next_unless_its_connection_went() -> None:
    async def story(reads: Reads, bookie: SlowReads) -> None:
        there, gone = Asker(reads), Asker(reads)
        for asker in (there, gone):
            asker.ask(*map(entry, range(3)))
        await turns()
        gone.is_gone = True
        for _, _, done in bookie.reads[:2]:
            done([DiskIOError("x")])
        await turns()
        assert [ids for _, ids, _ in bookie.reads[2:]] == [[1, 2]]
        assert (there.dropped_count, gone.dropped_count) == (0, 2)

    run(story)


def test_what_waits_for_a_turn_or_a_last_add_confirmed_is_counted_when_its_connection_goes() -> None:
    async def story(reads: Reads, bookie: SlowReads) -> None:
        asker, other = Asker(reads), Asker(reads)
        asker.may_read = other.may_read = False
        poll = EntryReadRequest(3, 1, LEDGER, 0, previous_lac=4, timeout_ms=60_000)
        asker.ask(entry(0), entry(1), poll)
        other.ask(entry(2))
        assert reads.forget(asker) == 3
        assert reads.waiting_count == 1
        assert reads.forget(asker) == 0

    run(story)


def test_urgent_reads_and_the_last_entry_wait_for_no_turn_and_a_fence_without_its_key_is_refused() -> None:
    async def story(reads: Reads, bookie: SlowReads) -> None:
        asker = Asker(reads)
        asker.may_read = False
        urgent, last = entry(1)._replace(high_priority=True), entry(ENTRY_ID_LAST)
        asker.ask(urgent, last, entry(2))
        assert [ids for _, ids, _ in bookie.reads] == [[1]]
        refused = last._replace(fence=True)
        asker.ask(refused)
        assert refused in asker.answered
        assert not bookie.is_fenced(LEDGER)
        asker.ask(refused._replace(master_key=KEY))
        await turns()
        assert bookie.is_fenced(LEDGER)

    run(story)
