"""Waiting: on the loop's own timer, so that the simulator owns it too, and for who answers by a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from geminga.model.errors import GemingaError

T = TypeVar("T")


async def wait_ms(milliseconds: float) -> None:
    """Until so many milliseconds are over; may be cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(milliseconds / 1000, _wake, future)
    try:
        await future
    finally:
        timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def next_turn() -> None:
    """Let everything else that is ready run once."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_soon(_wake, future)
    await future


async def delay(milliseconds: int) -> None:
    """Come back that much later; 0: on the loop's next turn."""
    if milliseconds:
        await wait_ms(milliseconds)
    else:
        await next_turn()


async def answer_of(ask: Callable[[Callable[[T | GemingaError], None]], object]) -> T:
    """What ``done`` is called with by ``ask(done)``, possibly within the call; an error is raised.

    Whoever is called off meanwhile is not told: a later answer goes unheard.
    """
    future: asyncio.Future[T | GemingaError] = asyncio.get_running_loop().create_future()

    def done(answer: T | GemingaError) -> None:
        if not future.done():
            future.set_result(answer)

    ask(done)
    answer = await future
    if isinstance(answer, GemingaError):
        raise answer
    return answer
