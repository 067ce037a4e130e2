"""Waiting for time and for turns, on the loop's own timer."""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.runtime import next_turn, spawn
from geminga.runtime.waiting import wait_ms


def test_time_is_the_loops_own() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await wait_ms(1500)
        assert loop.time() - start_s == 1.5
        given_up = spawn(wait_ms(1_000_000), name="given up")
        await next_turn()
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        assert loop.time() - start_s == 1.5

    sim.run(scenario, seed=1)


def test_turn_lets_run_what_was_ready_and_takes_no_time() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        ran: list[int] = []
        for number in range(3):
            loop.call_soon(ran.append, number)
        await next_turn()
        assert ran == [0, 1, 2]
        assert loop.time() == start_s

    sim.run(scenario, seed=1)
