"""Long work in turns."""

from __future__ import annotations

from geminga.runtime import Turns, next_turn, spawn
from geminga.sim import run


def test_others_are_served_between_the_turns() -> None:
    async def story(world) -> None:
        served = 0

        async def other() -> None:
            nonlocal served
            while True:
                served += 1
                await next_turn()

        task = spawn(other(), name="other")
        turns = Turns(world.node("a").runtime.clock, steps_max=10)
        steps_in_turn = []
        for _ in range(95):
            if turns.is_over():
                steps_in_turn.append(served)
                await turns.next()
        task.cancel()
        assert turns.count == 10
        assert len(set(steps_in_turn)) == 9

    run(story, seed=1)
