"""Lives of a simulated node that its story plans to end in a crash."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from geminga.sim import NodeCrashedError, SimNode


async def last_life(node: SimNode, live: Callable[[SimNode], Coroutine[Any, Any, None]]) -> None:
    """One that ends by itself; begun again where a crash point that is still armed strikes, of which each does once."""
    while True:
        node.start()
        try:
            await node.run(live)
            return
        except NodeCrashedError:
            continue
