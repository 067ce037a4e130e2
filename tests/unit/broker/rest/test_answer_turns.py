"""Long answers are made one after the other, short ones beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from geminga.broker.statistics.answer_turns import STEPS_BESIDE_MAX, AnswerTurns
from geminga.runtime import next_turn, spawn
from geminga.sim import SimWorld, run


class Answers:
    """What is being made."""

    def __init__(self, world: SimWorld) -> None:
        self.clock = world.node("a").runtime.clock
        self.place = asyncio.Lock()
        self.steps = [0] * 10

    def _made(self, number: int, count: int) -> Generator[None, None, int]:
        for _ in range(count):
            self.steps[number] += 1
            yield
        return number

    async def make(self, number: int, count: int, then: asyncio.Event | None = None) -> int:
        async with AnswerTurns(self.clock, self.place) as turns:
            found = await turns.through(self._made(number, count))
            if then is not None:
                await then.wait()
            return found


async def turns() -> None:
    for _ in range(20):
        await next_turn()


def test_of_long_answers_one_is_made_at_a_time_and_short_ones_do_not_wait() -> None:
    async def story(world: SimWorld) -> None:
        answers, go_on = Answers(world), asyncio.Event()
        long = STEPS_BESIDE_MAX + 5
        first = spawn(answers.make(0, long, go_on), name="long")
        await turns()
        others = [spawn(answers.make(number, long), name="long") for number in (1, 2, 3)]
        await turns()
        # They have begun, and go no further while the first is held.
        assert answers.steps[:4] == [long, *[STEPS_BESIDE_MAX] * 3]
        assert await answers.make(4, STEPS_BESIDE_MAX - 1) == 4
        # One who is called off while he waits, or while he has the place, leaves it to the next.
        others[0].cancel()
        first.cancel()
        await turns()
        assert await asyncio.gather(*others[1:]) == [2, 3]
        assert not answers.place.locked()

    run(story, seed=1)


def test_an_error_gives_the_place_back() -> None:
    async def story(world: SimWorld) -> None:
        answers = Answers(world)

        async def fail() -> None:
            async with AnswerTurns(answers.clock, answers.place) as turns:
                await turns.through(answers._made(0, STEPS_BESIDE_MAX * 2))
                assert answers.place.locked()
                raise ValueError

        with pytest.raises(ValueError):
            await fail()
        assert await answers.make(1, STEPS_BESIDE_MAX * 2) == 1

    run(story, seed=1)
