"""Requests that wait for no turn: what a few bytes ask for is bounded by what the client takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from struct import pack

import pytest

from geminga.bookie.serving import BookieServer, limits
from geminga.bookie.serving.prompt_requests import PromptRequests
from geminga.bookkeeper import MemoryBookie
from geminga.model.bookie_port import LacDone, ReadDone
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper import v3
from geminga.wire.bookkeeper.answers import ReadAnswer
from geminga.wire.bookkeeper.codes import OperationType
from support.processes.served_bookies import KEY, Connect, pass_by, serve

#: Of the entry that is asked for.
SIZE = 1 << 20
ENTRY = pack(">qqqq", 3, 0, -1, 0) + b"x" * SIZE


class CountingBookie(MemoryBookie):
    """Answers within the call, as a bookie does for what is in memory, and counts what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.lookups = 0

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        self.lookups += 1
        super().read_lac(ledger_id, done=done)

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        self.lookups += 1
        super().read_entries(ledger_id, entry_ids, done, bytes_max=bytes_max)


def test_all_that_waits_is_carried_out_in_the_turn_in_which_the_client_takes_answers() -> None:
    async def story() -> None:
        done: list[int] = []
        takes = False
        requests = PromptRequests(lambda: takes)
        for number in range(3):
            requests.begin(object(), partial(done.append, number))
        assert done == []
        takes = True
        requests.go_on()
        assert done == [0, 1, 2]

    asyncio.run(story())


def read_lac(number: int) -> bytes:
    return v3.encode_request(OperationType.READ_LAC, number, readLacRequest=pb.ReadLacRequest(ledgerId=3))


def read_last(number: int) -> bytes:
    return v3.encode_read(number, 3, -1)


def read_first_of_high_priority(number: int) -> bytes:
    return v3.encode_read(number, 3, 0, high_priority=True)


def fence(number: int) -> bytes:
    return v3.encode_fence(number, 3, KEY)


def long_poll(number: int) -> bytes:
    read = pb.ReadRequest(ledgerId=3, entryId=-1, previousLAC=-1, flag=pb.ReadRequest.ENTRY_PIGGYBACK)
    return v3.encode_request(OperationType.READ_ENTRY, number, readRequest=read)


@pytest.mark.parametrize("encode", [read_lac, read_last, read_first_of_high_priority, fence])
def test_client_that_takes_no_answers_is_given_a_bounded_number_of_large_ones(encode: Callable[[int], bytes]):
    bookie = CountingBookie()

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        deaf, other = await connect(3), await connect(3)
        await other.ask(v3.encode_add(1, 3, 0, KEY, ENTRY, recovery=False))
        deaf.transport.pause_reading()
        count = 60
        deaf.transport.write(b"".join(encode(number) for number in range(count)))
        await pass_by(1)
        # What its transport takes before it says that it is behind, and what was under way.
        assert bookie.lookups <= 2 * (limits.OUTPUT_BYTES_MAX // SIZE) + 3 * limits.PROMPT_UNDER_WAY_MAX
        assert len(await other.ask(v3.encode_read(5, 3, 0))) == 1
        deaf.transport.resume_reading()
        assert sorted(answer.txn_id for answer in await deaf.answers(count)) == list(range(count))
        assert server.unanswered_bytes == 0

    serve(main, bookie)


def test_long_polls_that_end_together_are_answered_as_their_client_takes_the_entries():
    bookie = CountingBookie()

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        deaf, other = await connect(3), await connect(3)
        await other.ask(v3.encode_add(1, 3, 0, KEY, ENTRY, recovery=False))
        confirming = pack(">qqqq", 3, 1, 0, 0) + b"y" * 100
        await other.ask(v3.encode_add(2, 3, 1, KEY, confirming, recovery=False))
        deaf.transport.pause_reading()
        deaf.transport.write(b"".join(long_poll(number) for number in range(60)))
        await pass_by(1)
        assert bookie.lookups <= 4 * (limits.OUTPUT_BYTES_MAX // SIZE) + 6 * limits.PROMPT_UNDER_WAY_MAX
        deaf.transport.resume_reading()
        answers = await deaf.answers(60)
        assert {len(answer.entry or b"") for answer in answers if isinstance(answer, ReadAnswer)} == {len(ENTRY)}
        assert server.unanswered_bytes == 0

    serve(main, bookie)


def test_looks_through_a_ledger_are_one_a_turn():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        prompt = PromptRequests(lambda: True)
        turns = 0
        begun_in: list[int] = []
        are_over = loop.create_future()

        def tick() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(tick)

        def look(number: int) -> None:
            begun_in.append(turns)
            prompt.over(number)
            if len(begun_in) == 10:
                are_over.set_result(None)

        tick()
        for number in range(10):
            prompt.begin(number, partial(look, number), limits.PROMPT_TURN_COST_MAX)
        await are_over
        assert len(set(begun_in)) == 10

    asyncio.run(main())


def test_what_waits_when_its_connection_goes_is_counted_off():
    bookie = CountingBookie()

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        deaf, other = await connect(3), await connect(3)
        await other.ask(v3.encode_add(1, 3, 0, KEY, ENTRY, recovery=False))
        deaf.transport.pause_reading()
        deaf.transport.write(b"".join(encode(number) for number in range(30) for encode in (read_lac, fence)))
        await pass_by(1)
        assert server.unanswered_bytes > 0
        deaf.transport.abort()
        await pass_by(1)
        assert len(server.connections) == 1
        assert server.unanswered_bytes == 0

    serve(main, bookie)
