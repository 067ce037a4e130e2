"""A node: boots from its disk, hands on results and failures, draws its own randomness."""

from __future__ import annotations

import asyncio

import pytest

from geminga import sim
from geminga.runtime import crash_point, spawn


def test_restart_boots_from_the_disk_only():
    async def write(node):
        await node.runtime.disk.write_file("/state", b"kept")
        await asyncio.get_running_loop().create_future()

    async def read(node):
        return await node.runtime.disk.read_file("/state")

    async def scenario(world):
        node = world.node("a")
        node.run(write)
        await world.sleep(1)
        before = node.runtime
        assert await world.restart(node, read) == b"kept"
        assert node.runtime is not before
        assert node.boot.number == 2
        world.crash(node)
        world.crash(node)
        assert not node.is_up
        with pytest.raises(sim.NodeCrashedError, match="is down"):
            node.runtime  # noqa: B018
        with pytest.raises(sim.NodeCrashedError, match="is down"):
            node.run(read)
        assert await node.crashed() == "down"

    sim.run(scenario)


def test_exception_of_a_node_reaches_who_awaits_it():
    async def fail(node):
        raise ValueError("boom")

    async def scenario(world):
        with pytest.raises(ValueError, match="boom"):
            await world.node("a").run(fail)

    sim.run(scenario)


def test_exception_of_a_node_that_nobody_awaits_fails_the_run():
    async def fail(node):
        raise ValueError("boom")

    async def scenario(world):
        world.node("a").run(fail)
        await world.sleep(1)

    with pytest.raises(ValueError, match="boom"):
        sim.run(scenario)


def test_fatal_error_of_a_component_goes_to_the_handler_or_fails_the_run():
    async def fail():
        raise ValueError("boom")

    async def main(node):
        node.runtime.on_fatal("journal", OSError("sync failed"))
        spawn(fail(), name="task")
        await node.world.sleep(1)

    async def expecting(world):
        node = world.node("a")
        fatal = []
        node.on_fatal = lambda part, error: fatal.append(part)
        await node.run(main)
        return fatal

    async def unexpecting(world):
        await world.node("a").run(main)

    assert sim.run(expecting) == ["journal", "task"]
    with pytest.raises(OSError, match="sync failed"):
        sim.run(unexpecting)


def test_randomness_of_nodes_and_lives_differs_and_repeats():
    async def draw(node):
        rng = node.runtime.rng
        return rng.token(), rng.below(1000), rng.random()

    async def scenario(world):
        one, two = world.node("one"), world.node("two")
        draws = [await one.run(draw), await two.run(draw), await world.restart(one, draw)]
        assert len(set(draws)) == 3
        return draws, world.rng("x").random()

    assert sim.run(scenario, 1) == sim.run(scenario, 1) != sim.run(scenario, 2)


def test_node_call_soon_runs_in_the_node_and_not_when_down():
    seen = []

    async def scenario(world):
        node = world.node("a")
        node.call_soon(crash_point, "in node")
        world.crash_at("in node")
        assert await node.crashed() == "crash point in node"
        node.call_soon(seen.append, 1)
        await world.sleep(1)
        assert seen == []

    sim.run(scenario)
