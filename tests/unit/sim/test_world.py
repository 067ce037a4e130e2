"""Nodes: what a crash stops and keeps, restarts, pauses, crash points, clocks."""

from __future__ import annotations

import asyncio
import gc

import pytest

from geminga import sim
from geminga.runtime import crash_point, is_halted, sometimes, spawn
from geminga.sim.clock import EPOCH_MS


def test_crash_runs_no_finally_and_stops_timers_and_tasks():
    seen = []

    async def child():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("child finally")

    async def main(node):
        loop = asyncio.get_running_loop()
        spawn(child(), name="child")
        loop.call_later(5, seen.append, "timer")
        try:
            async with asyncio.timeout(100):
                await loop.create_future()
        finally:
            seen.append("main finally")

    async def scenario(world):
        node = world.node("a")
        ended = node.run(main)
        await world.sleep(1)
        world.crash(node)
        with pytest.raises(sim.NodeCrashedError, match="node a: crashed"):
            await ended
        await world.sleep(1000)
        gc.collect()
        assert seen == []
        return world

    sim.run(scenario)


def test_crashed_coroutines_that_await_in_finally_are_disposed_of_quietly(recwarn):
    async def stubborn(node):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await node.runtime.disk.sync_dir("/")
            spawn(asyncio.get_running_loop().create_future(), name="never")

    async def scenario(world):
        node = world.node("a")
        node.run(stubborn)
        await world.sleep(1)
        world.crash(node)

    sim.run(scenario)
    gc.collect()
    assert not recwarn.list


def test_code_between_a_crash_point_and_the_next_await_changes_nothing():
    done = []

    async def main(node):
        disk = node.runtime.disk
        crash_point("here")
        assert is_halted()
        done.append("ran on")
        await disk.write_file("/f", b"late")
        done.append("came back")

    async def scenario(world):
        world.crash_at("here")
        node = world.node("a")
        with pytest.raises(sim.NodeCrashedError, match="crash point here"):
            await node.run(main)
        await world.sleep(10)
        assert done == ["ran on"]
        assert node.disk.paths() == []
        assert not is_halted()

    sim.run(scenario)


def test_crash_point_in_a_callback_freezes_the_disk_at_once():
    async def main(node):
        loop = asyncio.get_running_loop()
        disk = node.runtime.disk
        file = await disk.open_file("/f", lane="w", create=True)
        await disk.sync_dir("/")

        def callback():
            crash_point("in callback")
            disk.append(file, 0, [b"late"], sync=True, done=print)
            loop.call_soon(print, "never")
            loop.call_later(3600, print, "never")

        loop.call_later(1, callback)
        await loop.create_future()

    async def scenario(world):
        node = world.node("a")
        world.crash_at("in callback")
        with pytest.raises(sim.NodeCrashedError):
            await node.run(main)
        await world.sleep(1)
        assert node.disk.contents("/f") == b""

    sim.run(scenario)


def test_timers_set_after_a_crash_point_do_not_move_time():
    async def main(node):
        crash_point("here")
        asyncio.get_running_loop().call_later(3600, print)
        await asyncio.get_running_loop().create_future()

    async def scenario(world):
        node = world.node("a")
        world.crash_at("here")
        node.run(main)
        await world.loop.create_future()

    with pytest.raises(sim.SimDeadlockError, match=r"virtual time 0\.0"):
        sim.run(scenario)


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


def test_paused_node_stands_still_and_goes_on_in_order():
    seen = []

    async def main(node):
        loop = asyncio.get_running_loop()
        for second in range(1, 6):
            loop.call_at(second, seen.append, (second, node.world))
        await node.world.sleep(6)
        return loop.time()

    async def scenario(world):
        node = world.node("a")
        ended = node.run(main)
        await world.sleep(1.5)
        world.pause(node)
        await world.sleep(3)
        assert [second for second, _ in seen] == [1]
        world.resume(node)
        await world.sleep(0.1)
        assert [second for second, _ in seen] == [1, 2, 3, 4]
        world.pause(node, 10)
        await ended
        assert [second for second, _ in seen] == [1, 2, 3, 4, 5]
        return world.now

    assert sim.run(scenario) == pytest.approx(14.6)


def test_paused_node_can_be_crashed():
    async def main(node):
        await node.world.sleep(1)
        raise AssertionError("ran after the crash")

    async def scenario(world):
        node = world.node("a")
        ended = node.run(main)
        world.pause(node)
        await world.sleep(2)
        world.crash(node)
        world.resume(node)
        world.pause(node)
        with pytest.raises(sim.NodeCrashedError):
            await ended

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


def test_threads_are_refused_or_run_inline():
    async def main(node):
        threads = node.runtime.threads
        answer = await threads.call("lane", lambda: 42)
        with pytest.raises(ZeroDivisionError):
            await threads.call("lane", lambda: 1 // 0)
        results = []
        threads.submit("lane", lambda: results.append("ran"), results.append)
        assert results == ["ran"]
        await node.world.sleep(0)
        assert results == ["ran", None]
        await threads.close()
        return answer

    async def scenario(world):
        node = world.node("a")
        with pytest.raises(sim.SimEscapeError, match="lane"):
            await node.run(main)
        world.crash(node)
        node.inline_threads = True
        assert await world.restart(node, main) == 42

    sim.run(scenario)


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


async def turn():
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    await event.wait()
