"""Nodes: what a crash stops and keeps, restarts, pauses, crash points, clocks."""

from __future__ import annotations

import asyncio
import gc

import pytest

from geminga import sim
from geminga.runtime import crash_point, is_halted, spawn


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
