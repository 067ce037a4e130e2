"""The runner: seeds in failures, and a quiet end for coroutines that were lost."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from geminga import sim
from geminga.runtime import crash_point, is_halted, spawn


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


def test_what_disposed_coroutines_begin_in_finally_is_left_in_no_loop(monkeypatch):
    """Without one that refuses, asyncio makes a real loop for it: that, and what never ran, would meet a later test."""
    made = []
    before, policy = asyncio.get_event_loop_policy(), asyncio.DefaultEventLoopPolicy()
    monkeypatch.setattr(policy, "new_event_loop", lambda: made.append(1) or asyncio.SelectorEventLoop())

    async def nothing():
        pass

    async def stuck():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.gather(nothing(), nothing())

    async def scenario(world):
        spawn(stuck(), name="stuck")
        await world.sleep(1)

    asyncio.set_event_loop_policy(policy)
    try:
        sim.run(scenario)
    finally:
        asyncio.set_event_loop_policy(before)
    assert made == []


def test_world_is_not_kept_after_its_run():
    async def scenario(world):
        world.node("a").run(lambda node: node.world.sleep(1000))
        await world.sleep(1)
        world.crash(world.node("a"))
        return weakref.ref(world)

    reference = sim.run(scenario)
    gc.collect()
    assert reference() is None


def test_failure_tells_its_seed_time_and_last_events(capsys):
    async def scenario(world):
        await world.node("a").runtime.disk.make_dirs("/d")
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as failure:
        sim.run(scenario, 77)
    notes = "\n".join(failure.value.__notes__)
    assert "seed=77" in notes
    assert "a make_dir /d" in notes
    assert "seed=77" in capsys.readouterr().err


def test_result_of_the_scenario_is_that_of_run_and_hooks_are_gone_after_it():
    async def scenario(world):
        spawn(world.sleep(1000), name="left over")
        return world.seed

    assert sim.run(scenario, 5) == 5
    crash_point("outside of a run")
    assert not is_halted()
