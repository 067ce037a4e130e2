"""Requests of an asynchronous client: one that nobody waits for any more holds no other one up."""

from __future__ import annotations

import asyncio
import threading  # noqa: TID251 - requests are answered on threads
from collections.abc import Mapping
from typing import Any

import pytest

from geminga.admin import connect
from geminga.admin._calling import REQUESTS_MAX, Lanes, Request
from geminga.runtime import next_turn


class Holding:
    """A broker that answers ``/held`` when it is told to, and everything else at once."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.held = 0

    def request(self, method: str, path: str, *_: Any) -> tuple[bytes, Mapping[str, str]]:
        if path == "/held":
            self.held += 1
            assert self.go_on.wait(60), "nobody told it to go on"
        return b"1", {}

    def errand(self) -> Holding:
        return self

    def give_up(self) -> None:
        pass

    def close(self) -> None:
        pass


HELD, PROMPT = Request[Any]("GET", "/held"), Request[Any]("GET", "/prompt")


async def cut_off(lanes: Lanes, broker: Holding, count: int) -> None:
    """So many requests that are being answered, whose askers are gone."""
    asking = [asyncio.ensure_future(lanes.ask(HELD)) for _ in range(count)]
    while broker.held < count:
        await next_turn()
    for one in asking:
        one.cancel()
    await asyncio.wait(asking)
    assert all(one.cancelled() for one in asking)


def run(story: Any) -> None:
    async def bounded() -> None:
        broker = Holding()
        lanes = Lanes(broker)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(30):
                await story(lanes, broker)
        finally:
            broker.go_on.set()
            await lanes.close()

    asyncio.run(bounded())


def test_a_request_does_not_wait_for_one_that_was_cut_off() -> None:
    async def story(lanes: Lanes, broker: Holding) -> None:
        await cut_off(lanes, broker, 3)
        answered = asyncio.ensure_future(lanes.ask(PROMPT))
        await asyncio.wait([answered], timeout=10)
        assert answered.done()
        assert await answered == 1

    run(story)


def test_a_client_says_so_where_nobody_would_hear_of_an_answer() -> None:
    """On the second loop of a program, as of its tests, the first request waited for ever."""
    broker = Holding()
    lanes = Lanes(broker)  # type: ignore[arg-type]
    assert asyncio.run(lanes.ask(PROMPT)) == 1

    async def elsewhere() -> None:
        async with asyncio.timeout(10):
            with pytest.raises(ValueError, match="belongs to the loop"):
                await lanes.ask(PROMPT)
            await lanes.close()

    asyncio.run(elsewhere())


@pytest.mark.parametrize("before", [0, 1])
def test_a_request_that_was_cut_off_is_waited_for_by_nobody(before: int) -> None:
    """A service that was told to stop waited half a minute for a broker that hung. ``before``: on a kept connection."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked.append(head)
                if len(asked) > before:
                    hangs.set()
                    await reader.read()
                    return
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        finally:
            writer.close()
            await writer.wait_closed()
            ended.set()

    async def story() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, asyncio.timeout(30), connect(f"http://127.0.0.1:{port}", timeout_s=600) as admin:
            for _ in range(before):
                assert await admin.tenants.list() == []
            asking = asyncio.ensure_future(admin.tenants.list())
            await hangs.wait()
            asking.cancel()
            await asyncio.wait([asking])
            assert asking.cancelled()
            # It is hung up on, and not asked again.
            await ended.wait()
        assert len(asked) == before + 1

    hangs, ended = asyncio.Event(), asyncio.Event()
    asyncio.run(story())


def test_requests_that_were_cut_off_count_until_they_are_answered() -> None:
    async def story(lanes: Lanes, broker: Holding) -> None:
        await cut_off(lanes, broker, REQUESTS_MAX)
        asked = asyncio.ensure_future(lanes.ask(HELD))
        for _ in range(20):
            await next_turn()
        assert broker.held == REQUESTS_MAX
        broker.go_on.set()
        assert await asked == 1
        assert await lanes.ask(PROMPT) == 1

    run(story)
