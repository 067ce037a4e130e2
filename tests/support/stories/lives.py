"""Lives of a simulated node that its story plans to end in a crash."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Protocol

from geminga.sim import NodeCrashedError, SimNode

Life = Callable[[SimNode], Coroutine[Any, Any, None]]


async def crashed_life(node: SimNode, live: Life, rng: Random, *, excused: tuple[type[Exception], ...] = ()) -> None:
    """One that ends in a crash: a planned one, or soon after its last step. It may fail with what is ``excused``."""
    node.start()
    try:
        await node.run(live)
    except NodeCrashedError:
        return
    except excused:
        pass
    await node.world.sleep(rng.uniform(0, 0.01))
    node.world.crash(node, power_loss=rng.random() < 0.7, reason="end of life")


async def restarted_life(node: SimNode, live: Life, *, crashes_max: int) -> None:
    """One after a crash, as often as crash points that are still armed strike: each does once, and so many are."""
    for crashes in range(crashes_max + 1):
        try:
            await node.world.restart(node, live)
            return
        except NodeCrashedError:
            assert crashes < crashes_max, "crashed more often than told to"


async def last_life(node: SimNode, live: Life, *, pause_s: float = 0) -> None:
    """One that ends by itself; begun again where a crash point that is still armed strikes, of which each does once."""
    while True:
        node.start()
        try:
            await node.run(live)
            return
        except NodeCrashedError:
            if pause_s:
                await node.world.sleep(pause_s)


class Told(Protocol):
    """A story that remembers what happened in it."""

    told: list[str]

    async def run(self) -> None: ...


async def tell(story: Told) -> None:
    """Run it; a failure has all that happened before."""
    try:
        await story.run()
    except BaseException as error:
        error.add_note("\n".join(story.told))
        raise
