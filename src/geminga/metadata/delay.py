"""Waiting a little on the loop's clock: how stores are slow when told to."""

from __future__ import annotations

import asyncio


async def delay(milliseconds: int) -> None:
    """Come back that much later; 0: on the loop's next turn."""
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()
    handle = (
        loop.call_later(milliseconds / 1000.0, _arrive, arrived) if milliseconds else loop.call_soon(_arrive, arrived)
    )
    try:
        await arrived
    finally:
        handle.cancel()


def _arrive(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
