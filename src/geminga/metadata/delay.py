"""Waiting a little on the loop's clock: how stores are slow when told to."""

from __future__ import annotations

from geminga.runtime import next_turn, wait_ms


async def delay(milliseconds: int) -> None:
    """Come back that much later; 0: on the loop's next turn."""
    if milliseconds:
        await wait_ms(milliseconds)
    else:
        await next_turn()
