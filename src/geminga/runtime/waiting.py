"""Waiting on the loop's own timer, so that the simulator owns it too."""

from __future__ import annotations

import asyncio


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
