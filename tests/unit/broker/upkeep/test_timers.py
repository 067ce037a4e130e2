"""Repeated work of the broker."""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.broker.upkeep.timers import Timers
from support.worlds.policy_levels import seconds


def test_work_is_repeated_as_often_as_it_says_and_never_twice_at_a_time() -> None:
    times: list[float] = []

    async def main(world: sim.SimWorld) -> None:
        loop = asyncio.get_running_loop()
        timers = Timers()
        began = loop.time()

        async def work() -> float:
            times.append(loop.time() - began)
            await seconds(5)
            return 2.0

        timers.repeat("work", 3, work)
        await seconds(18)
        timers.close()
        await seconds(100)

    sim.run(main)
    assert times == [3, 10, 17]


def test_closed_timers_start_nothing() -> None:
    times: list[float] = []

    async def main(world: sim.SimWorld) -> None:
        timers = Timers()
        timers.close()

        async def work() -> float:
            times.append(0)
            return 1.0

        timers.repeat("work", 1, work)
        await seconds(10)

    sim.run(main)
    assert not times
