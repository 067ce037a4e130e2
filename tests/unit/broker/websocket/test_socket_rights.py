"""Rights of the sockets of a broker are asked about again and again, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga.broker.websocket.service import RIGHTS_S
from geminga.model.errors import AuthorizationError, UnavailableError
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import seconds
from support.worlds.socket_stories import SHARED, TOPIC, with_sockets
from support.worlds.web_sockets import SocketWorld


def test_socket_ends_when_its_right_is_gone_and_not_when_nobody_knows() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        answers: list[Exception | None] = [None, UnavailableError("metadata are away"), AuthorizationError("no more")]

        async def ask() -> None:
            answer = answers.pop(0)
            if answer is not None:
                raise answer

        admitted = sockets.admitted(ask_again=ask)
        session = await sockets.service.open_consumer(admitted, TOPIC, "s", SHARED)
        peer = await sockets.socket(session)
        await seconds(2 * RIGHTS_S)
        assert peer.protocol.close_rcvd is None
        assert await peer.ended() == (4006, "Client is not authorized: no more")

    with_sockets(story)


def test_every_socket_is_asked_about_again() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        asked = set[int]()

        def asking(number: int) -> Callable[[], Awaitable[None]]:
            async def ask() -> None:
                asked.add(number)

            return ask

        for number in range(250):
            await sockets.socket(sockets.service.open_ping(sockets.admitted(ask_again=asking(number))))  # type: ignore[arg-type]
        await seconds(2 * RIGHTS_S)
        assert asked == set(range(250))

    with_sockets(story, sockets_max=250)


def test_one_right_that_is_not_answered_holds_up_no_other_socket() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        asked_count = 0

        async def hang() -> None:
            nonlocal asked_count
            asked_count += 1
            if asked_count > 2:
                raise AuthorizationError("no more, it says at last")
            await asyncio.Event().wait()

        async def refuse() -> None:
            raise AuthorizationError("no more")

        late = await sockets.socket(sockets.service.open_ping(sockets.admitted(ask_again=hang)))
        peer = await sockets.socket(sockets.service.open_ping(sockets.admitted(ask_again=refuse)))
        assert await peer.ended() == (4006, "Client is not authorized: no more")
        assert late.protocol.close_rcvd is None
        assert await late.ended() == (4006, "Client is not authorized: no more, it says at last")
        assert asked_count == 3

    with_sockets(story)
