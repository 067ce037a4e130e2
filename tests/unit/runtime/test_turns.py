"""Long work in turns."""

from __future__ import annotations

import asyncio

import pytest

from geminga.runtime import Turns, next_turn
from geminga.sim import run
from support.house.turn_probe import other_turns


def test_others_are_served_between_the_turns() -> None:
    async def story(world) -> None:
        turns = Turns(world.node("a").runtime.clock, steps_max=10)
        steps_in_turn = []
        with other_turns() as others:
            for _ in range(95):
                if turns.is_over():
                    steps_in_turn.append(others.count)
                    await turns.next()
        assert turns.count == 10
        assert len(set(steps_in_turn)) == 9

    run(story, seed=1)


def test_work_in_steps_is_done_in_turns() -> None:
    async def story(world) -> None:
        def steps(count):
            for _ in range(count):
                yield
            return count

        turns = Turns(world.node("a").runtime.clock, steps_max=10)
        with other_turns() as others:
            assert await turns.through(steps(95)) == 95
        assert turns.count == 10
        assert others.count >= 9
        assert await turns.through(steps(0)) == 0

    run(story, seed=1)


def test_a_step_is_taken_with_each_though_one_fails_or_who_asked_is_called_off() -> None:
    async def story(world) -> None:
        clock = world.node("a").runtime.clock
        met: list[int] = []
        with other_turns() as others:
            await Turns(clock, steps_max=10).with_each(met.append, iter(range(35)))
        assert met == list(range(35))
        assert others.count >= 3

        def fail(number: int) -> None:
            met.append(number)
            if number == 3:
                raise ValueError(number)

        met.clear()
        with pytest.raises(ValueError, match="3"):
            await Turns(clock, steps_max=10).with_each(fail, range(35))
        assert met == list(range(35))
        met.clear()
        work = asyncio.ensure_future(Turns(clock, steps_max=10).with_each(met.append, range(35)))
        await next_turn()
        assert met == list(range(10))
        work.cancel()
        await asyncio.wait([work])
        assert work.cancelled()
        assert met == list(range(35))

    run(story, seed=1)
