"""Long work in turns."""

from __future__ import annotations

from geminga.runtime import Turns
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
