"""The check whether a peer is there: one PING for all who ask, one answer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga import sim
from geminga.broker.connection.liveness import LivenessCheck

TIMEOUT_S = 5.0


class Peer:
    """What a check does to a connection."""

    def __init__(self) -> None:
        self.check = LivenessCheck(asyncio.get_running_loop())
        self.events: list[str] = []

    def ask(self) -> asyncio.Future[bool]:
        return self.check.ask(lambda: self.events.append("ping"), self._timed_out, TIMEOUT_S)

    def _timed_out(self) -> None:
        self.events.append("timed out")
        self.check.answer(False)


def run(scenario: Callable[[Peer], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        await scenario(Peer())

    sim.run(main, seed=1)


def test_all_who_ask_share_one_ping_and_its_answer() -> None:
    async def scenario(peer: Peer) -> None:
        first, second = peer.ask(), peer.ask()
        assert peer.check.is_under_way
        assert peer.events == ["ping"]
        peer.check.answer(True)
        assert await first
        assert await second
        assert not peer.check.is_under_way
        third = peer.ask()  # a new question
        assert peer.events == ["ping", "ping"]
        peer.check.answer(True)
        assert await third

    run(scenario)


def test_silence_ends_the_check_once() -> None:
    async def scenario(peer: Peer) -> None:
        start_s = asyncio.get_running_loop().time()
        assert not await peer.ask()
        assert asyncio.get_running_loop().time() - start_s == TIMEOUT_S
        assert peer.events == ["ping", "timed out"]

    run(scenario)


def test_answer_that_came_is_not_followed_by_a_timeout() -> None:
    async def scenario(peer: Peer) -> None:
        answer = peer.ask()
        peer.check.answer(True)
        assert await answer
        over = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(2 * TIMEOUT_S, over.set_result, None)
        await over
        assert peer.events == ["ping"]

    run(scenario)


def test_who_gave_up_does_not_keep_the_others_from_their_answer() -> None:
    async def scenario(peer: Peer) -> None:
        first, second = peer.ask(), peer.ask()
        first.cancel()
        peer.check.answer(False)
        assert not await second
        assert await peer.check.known(True)

    run(scenario)
