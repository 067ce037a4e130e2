"""Crash points and sometimes under simulation: counting, arming, chance."""

from __future__ import annotations

import asyncio

import pytest

from geminga import sim
from geminga.runtime import crash_point, sometimes, spawn


def test_crash_at_counts_hits_by_label_and_node():
    async def main(node):
        for _ in range(10):
            crash_point("a.x")
            crash_point("a.y")
            await asyncio.wait([spawn(turn(), name="turn")])
        return "survived"

    async def scenario(world):
        one, two = world.node("one"), world.node("two")
        world.crash_at("a.x", 3, node=two)
        assert await one.run(main) == "survived"
        with pytest.raises(sim.NodeCrashedError):
            await two.run(main)
        assert world.points.hits == {"a.x": 13, "a.y": 12}
        assert world.points.crashes == {"a.x": 1}
        assert world.crashes == 1
        assert await world.restart(two, main) == "survived"

    sim.run(scenario)


def test_armed_crash_point_outside_a_node_is_an_error():
    async def scenario(world):
        world.crash_at("here")
        with pytest.raises(sim.SimError, match="outside a node"):
            crash_point("here")

    sim.run(scenario)


def test_crash_percent_crashes_somewhere_by_seed():
    async def main(node):
        for _ in range(1000):
            crash_point("anywhere")

    async def scenario(world):
        world.points.crash_percent = 1
        node = world.node("a")
        ended = node.run(main)
        assert "crash point anywhere" in await node.crashed()
        with pytest.raises(sim.NodeCrashedError):
            await ended
        return world.points.hits["anywhere"]

    hits = [sim.run(scenario, seed) for seed in range(4)]
    assert len(set(hits)) > 1
    assert hits == [sim.run(scenario, seed) for seed in range(4)]


def test_sometimes_is_seeded_and_counted():
    async def scenario(world):
        answers = [sometimes("rare", 20) for _ in range(500)]
        sometimes("never asked twice", 0)
        assert world.points.fired["rare"] == sum(answers)
        assert 40 < sum(answers) < 170
        assert "never asked twice" in world.points.fired
        world.points.sometimes_factor = 0
        assert not any(sometimes("rare", 100) for _ in range(10))
        return answers

    assert sim.run(scenario, 5) == sim.run(scenario, 5) != sim.run(scenario, 6)


async def turn():
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    await event.wait()
