"""A node's clocks."""

from __future__ import annotations

from geminga import sim
from geminga.sim.clock import EPOCH_MS


def test_wall_clock_jumps_and_drifts_and_monotonic_does_not():
    async def scenario(world):
        node = world.node("a")
        clock = node.runtime.clock
        assert (clock.wall_ms(), clock.monotonic()) == (EPOCH_MS, 0)
        clock.jump(-5000)
        await world.sleep(10)
        assert (clock.wall_ms(), clock.monotonic()) == (EPOCH_MS + 5000, 10)
        clock.set_drift(1000)
        await world.sleep(100)
        assert clock.wall_ms() == EPOCH_MS + 105_100
        clock.set_drift(0)
        await world.sleep(100)
        assert clock.wall_ms() == EPOCH_MS + 205_100
        assert world.node("b").runtime.clock.wall_ms() == EPOCH_MS + 210_000

    sim.run(scenario)
