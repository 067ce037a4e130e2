"""Long work of administrators: in turns, until a stop."""

from __future__ import annotations

import pytest

from geminga.model.errors import UnavailableError
from geminga.runtime import next_turn, spawn
from geminga.runtime.turns import TURN_STEPS_MAX
from support.worlds.broker_world import BrokerWorld, run_with_broker


def test_steps_let_others_in_between_and_end_with_a_stop() -> None:
    async def scenario(world: BrokerWorld) -> None:
        turns = done = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await next_turn()

        async def work() -> None:
            nonlocal done
            steps = world.broker.admin_steps()
            while True:
                await steps.next()
                done += 1
                if done == 5 * TURN_STEPS_MAX:
                    world.broker.begin_stop()

        task = spawn(other(), name="other")
        with pytest.raises(UnavailableError, match="stopping"):
            await work()
        task.cancel()
        assert done == 5 * TURN_STEPS_MAX
        assert turns >= 4

    run_with_broker(scenario)
