"""Requests to ZooKeeper: groups, limits, and what becomes of them without a connection; kazoo's thread is played."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kazoo import exceptions as zk

from geminga.metadata.zookeeper import requests as module
from geminga.metadata.zookeeper.kazoo_thread import AsyncResult, Inbox
from geminga.metadata.zookeeper.requests import Requests
from geminga.model.errors import MetadataUnavailableError, SessionExpiredError, UnknownOutcomeError
from geminga.runtime import next_turn


class Place:
    """Groups as they were handed over; each is answered by hand."""

    def __init__(self) -> None:
        self.groups: list[list[tuple[Any, AsyncResult]]] = []
        self.requests = Requests(Inbox(asyncio.get_running_loop()), lambda group: self.groups.append(list(group)))

    def ask(self, payload: str, *, is_write: bool = False, size_bytes: int = 0) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.requests.ask(payload, payload, is_write=is_write, size_bytes=size_bytes))

    @property
    def sent(self) -> list[str]:
        return [payload for group in self.groups for payload, _ in group]

    def answer_all(self, error: Exception | None = None) -> None:
        groups, self.groups = self.groups, []
        for payload, answer in (one for group in groups for one in group):
            if error is None:
                answer.set(f"{payload}!")
            else:
                answer.set_exception(error)


def run(main: Callable[[Place], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main(Place())

    asyncio.run(bounded())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await next_turn()


def test_requests_of_a_turn_are_one_group_in_their_order_and_so_many_at_once() -> None:
    async def main(place: Place) -> None:
        place.requests.connected("sync")
        asked = [place.ask(f"r{i}") for i in range(module.IN_FLIGHT_MAX + 10)]
        await turns()
        assert [len(group) for group in place.groups] == [1, module.IN_FLIGHT_MAX - 1]
        assert place.sent[:3] == ["sync", "r0", "r1"]
        place.answer_all()
        await turns()
        assert len(place.sent) == 11
        place.answer_all()
        assert [await one for one in asked] == [f"r{i}!" for i in range(module.IN_FLIGHT_MAX + 10)]

    run(main)


def test_answers_that_come_together_wake_the_loop_once() -> None:
    async def main(place: Place) -> None:
        place.requests.connected("sync")
        asked = [place.ask(f"r{i}") for i in range(50)]
        await turns()
        loop = asyncio.get_running_loop()
        wakes, wake = [], loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *call: (wakes.append(call), wake(*call))[1]  # type: ignore[method-assign]
        place.answer_all()
        assert len(wakes) == 1
        assert await asyncio.gather(*asked) == [f"r{i}!" for i in range(50)]

    run(main)


def test_lost_connection_makes_writes_unknown_and_asks_reads_again_in_their_order() -> None:
    async def main(place: Place) -> None:
        place.requests.connected("sync")
        reads, write = [place.ask("r0"), place.ask("r1")], place.ask("w", is_write=True)
        await turns()
        place.answer_all(zk.ConnectionLoss())
        late = place.ask("late", is_write=True)
        with pytest.raises(UnknownOutcomeError, match="w: connection lost before the reply"):
            await write
        await turns()
        assert place.sent == []
        place.requests.connected("sync")
        await turns()
        assert place.sent == ["sync", "r0", "r1", "late"]
        place.answer_all()
        assert await asyncio.gather(*reads, late) == ["r0!", "r1!", "late!"]

    run(main)


def test_read_whose_connection_is_lost_each_time_ends() -> None:
    async def main(place: Place) -> None:
        asked = place.ask("r")
        for _ in range(module.READ_ATTEMPTS_MAX):
            place.requests.connected("sync")
            await turns()
            place.answer_all(zk.ConnectionLoss())
            await turns()
        with pytest.raises(MetadataUnavailableError):
            await asked

    run(main)


def test_what_waits_too_long_or_for_a_session_that_is_over_fails_until_the_next_connection() -> None:
    async def main(place: Place) -> None:
        waiting = place.ask("w", is_write=True)
        await turns()
        place.requests.refuse(lambda: MetadataUnavailableError("away"), with_sent=True)
        for failed in (waiting, place.ask("next")):
            with pytest.raises(MetadataUnavailableError, match="away"):
                await failed
        place.requests.refuse(lambda: SessionExpiredError("over"))
        with pytest.raises(SessionExpiredError):
            await place.ask("r")
        place.requests.connected("sync")
        asked, expired = place.ask("r"), place.ask("w", is_write=True)
        await turns()
        (_, sync), (_, read), (_, write) = (one for group in place.groups for one in group)
        sync.set(None)
        read.set("found")
        write.set_exception(zk.SessionExpiredError())
        assert await asked == "found"
        with pytest.raises(SessionExpiredError, match="w: the metadata session is over"):
            await expired

    run(main)


def test_too_many_requests_and_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED_REQUESTS_MAX", 3)
    monkeypatch.setattr(module, "QUEUED_BYTES_MAX", 100)

    async def main(place: Place) -> None:
        asked = [place.ask(f"w{i}", is_write=True, size_bytes=50) for i in range(3)]
        await turns()
        with pytest.raises(MetadataUnavailableError, match="2 metadata requests are waiting"):
            await asked[2]
        place.ask("r")
        await turns()
        with pytest.raises(MetadataUnavailableError, match="3 metadata requests are waiting"):
            await place.ask("one too many")
        place.requests.connected("sync")
        await turns()
        place.answer_all()
        assert await asyncio.gather(*asked[:2]) == ["w0!", "w1!"]
        assert await asyncio.wait_for(asyncio.shield(settled(place)), 5) == "again!"

    async def settled(place: Place) -> str:
        asked = place.ask("again", size_bytes=100)
        await turns()
        place.answer_all()
        return str(await asked)

    run(main)
