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
