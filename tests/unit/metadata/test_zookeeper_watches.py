"""Watches that fire once under those of the port; the server is played, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo import exceptions as zk

from geminga.metadata.ports import Notification
from geminga.metadata.zookeeper import armed_watches as module
from geminga.metadata.zookeeper.armed_watches import ArmedWatches
from geminga.metadata.zookeeper.kazoo_thread import AsyncResult, Inbox
from geminga.metadata.zookeeper.requests import Requests
from geminga.model.errors import MetadataUnavailableError
from geminga.runtime import next_turn

Payload = tuple[str, str]


class PlayedArming:
    """Requests as words."""

    def exists(self, path: str) -> Payload:
        return "exists", path

    def children(self, path: str) -> Payload:
        return "children", path

    def disarm(self, path: str, *, of_children: bool) -> Payload:
        return "end of children" if of_children else "end", path


class Place:
    def __init__(self) -> None:
        self.asked: list[tuple[Payload, AsyncResult]] = []
        self.told: list[tuple[str, str]] = []
        self.requests = Requests(Inbox(asyncio.get_running_loop()), self.asked.extend)
        self.armed = ArmedWatches(self.requests, PlayedArming(), self._tell)

    def _tell(self, notifications: list[Notification]) -> None:
        self.told += [(one.kind.value, one.path) for one in notifications]

    def watch(self, path: str, *, of_children: bool = False) -> Callable[[], None]:
        return self.armed.watch(path, lambda: None, of_children=of_children)

    async def connect(self) -> None:
        self.requests.connected(("sync", "/"))
        self.armed.connected()
        await self.answer(("sync", "/"), None)

    async def answer(self, payload: Payload, value: Any) -> None:
        """Answer the first request, which is this one."""
        await turns()
        (asked, answer), *self.asked[:] = self.asked
        assert asked == payload
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set(value)
        await turns()


async def turns() -> None:
    for _ in range(4):
        await next_turn()


def stat(czxid: int, last: int) -> SimpleNamespace:
    return SimpleNamespace(czxid=czxid, mzxid=last, pzxid=last)


def run(main: Callable[[Place], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main(Place())

    asyncio.run(bounded())


def test_change_while_the_connection_was_away_is_told_and_nothing_else() -> None:
    async def main(place: Place) -> None:
        await place.connect()
        for path in ("/same", "/changed", "/gone", "/anew"):
            place.watch(path)
            await place.answer(("exists", path), stat(1, 1))
        place.watch("/come")
        await place.answer(("exists", "/come"), None)
        place.requests.lost()
        place.armed.connection_lost()
        await place.connect()
        found = {"same": stat(1, 1), "changed": stat(1, 2), "gone": None, "anew": stat(3, 3), "come": stat(4, 4)}
        for name, now in found.items():
            await place.answer(("exists", f"/{name}"), now)
        assert place.told == [
            ("modified", "/changed"),
            ("deleted", "/gone"),
            ("created", "/anew"),
            ("created", "/come"),
        ]

    run(main)


def test_watch_that_fired_is_armed_before_it_is_told() -> None:
    async def main(place: Place) -> None:
        await place.connect()
        place.watch("/a")
        await place.answer(("exists", "/a"), None)
        place.armed.fired("/a", of_children=False)
        await turns()
        assert place.told == []
        # Made and deleted again in between: that is told as well.
        await place.answer(("exists", "/a"), None)
        assert place.told == [("deleted", "/a")]

    run(main)


def test_children_of_a_node_that_is_not_there_are_watched_by_its_coming() -> None:
    async def main(place: Place) -> None:
        await place.connect()
        end = place.watch("/a", of_children=True)
        await place.answer(("children", "/a"), zk.NoNodeError())
        # It comes between the two looks.
        await place.answer(("exists", "/a"), stat(1, 1))
        await place.answer(("children", "/a"), zk.NoNodeError())
        await place.answer(("exists", "/a"), None)
        place.armed.fired("/a", of_children=False)
        await place.answer(("children", "/a"), ([], stat(2, 2)))
        assert place.told == []
        place.armed.fired("/a", of_children=True)
        await place.answer(("children", "/a"), (["b"], stat(2, 3)))
        assert place.told == [("children_changed", "/a")]
        end()
        await place.answer(("end of children", "/a"), True)

    run(main)


def test_watch_that_was_refused_is_tried_again_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)

    async def main(place: Place) -> None:
        await place.connect()
        place.watch("/a")
        await place.answer(("exists", "/a"), zk.NoAuthError())
        while not place.asked:
            await next_turn()
        await place.answer(("exists", "/a"), stat(1, 1))
        assert place.told == [("modified", "/a")]

    run(main)


def test_watch_that_nobody_listens_to_is_ended_at_the_server_also_before_it_stands() -> None:
    async def main(place: Place) -> None:
        await place.connect()
        first, second = place.watch("/a"), place.watch("/a")
        await place.answer(("exists", "/a"), stat(1, 1))
        first()
        first()
        await turns()
        assert place.asked == []
        second()
        await place.answer(("end", "/a"), zk.NoNodeError())
        place.watch("/a")()
        await place.answer(("exists", "/a"), stat(1, 1))
        await place.answer(("end", "/a"), True)
        assert (len(place.armed), place.asked, place.told) == (0, [], [])

    run(main)


def test_many_are_armed_again_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ARMED_PER_TURN_MAX", 3)

    async def main(place: Place) -> None:
        paths = [f"/{number}" for number in range(7)]
        ends = [place.watch(path) for path in paths]
        await turns()
        place.requests.refuse(lambda: MetadataUnavailableError("away"))
        place.requests.connected(("sync", "/"))
        place.armed.connected()
        assert [request.payload[1] for request in place.requests._queue] == ["/", "/0", "/1", "/2"]
        ends[6]()
        await turns()
        assert [path for (_, path), _ in place.asked] == ["/", *paths[:6]]

    run(main)


def test_more_than_are_kept_are_refused_and_do_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCHED_MAX", 2)

    async def main(place: Place) -> None:
        place.watch("/a")
        place.watch("/a", of_children=True)
        place.watch("/a")
        ended: list[str] = []
        with pytest.raises(MetadataUnavailableError, match="2 metadata nodes are watched already"):
            place.armed.watch("/b", lambda: ended.append("/b"), of_children=False)
        assert ended == ["/b"]

    run(main)
