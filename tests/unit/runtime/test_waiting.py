"""Waiting for time and for turns, on the loop's own timer."""

from __future__ import annotations

import asyncio

import pytest

from geminga import sim
from geminga.model.errors import StorageError
from geminga.runtime import answer_of, next_turn, spawn
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


def test_answer_comes_within_the_call_or_later_and_an_error_is_raised() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        loop = asyncio.get_running_loop()
        assert await answer_of(lambda done: done(7)) == 7
        assert await answer_of(lambda done: loop.call_soon(done, 8)) == 8
        with pytest.raises(StorageError, match="no"):
            await answer_of(lambda done: done(StorageError("no")))

    sim.run(scenario)


def test_answer_for_who_was_called_off_goes_unheard() -> None:
    async def scenario(world: sim.SimWorld) -> None:
        asked = []
        waiting = spawn(answer_of(asked.append), name="waiting")
        await next_turn()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        asked[0](1)

    sim.run(scenario)
