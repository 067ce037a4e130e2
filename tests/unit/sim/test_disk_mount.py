"""The simulated disk's port: steps, lanes, the life it belongs to, paths and locks."""

from __future__ import annotations

import pytest

from geminga import sim
from support.house.disks import new_file


def test_write_file_crashed_at_each_step_leaves_old_or_new():
    """1. Count the steps of a replacing write_file. 2. Crash at each of them, with several seeds."""

    async def first(node):
        await node.runtime.disk.write_file("/f", b"old" * 1000)

    async def second(node):
        await node.runtime.disk.write_file("/f", b"new" * 1000)

    async def count(world):
        node = world.node("a")
        await node.run(first)
        before = node.disk.steps
        labels = []
        node.disk.on_step = labels.append
        await node.run(second)
        assert node.disk.steps - before == len(labels)
        return labels

    labels = sim.run(count)
    assert labels == [
        "create /f.tmp",
        "write /f.tmp",
        "sync /f.tmp",
        "rename /f.tmp",
        "sync_dir /",
        "done write_file /f",
    ]

    async def crash(world, nth):
        node = world.node("a")
        await node.run(first)
        world.crash_at_disk_step(node, nth)
        with pytest.raises(sim.NodeCrashedError, match=f"disk step {nth}: {labels[nth - 1]}"):
            await node.run(second)
        return node.disk.contents("/f")

    old, new = b"old" * 1000, b"new" * 1000
    found = {nth: {sim.run(lambda w, nth=nth: crash(w, nth), seed) for seed in range(20)} for nth in range(1, 7)}
    assert found == {1: {old}, 2: {old}, 3: {old}, 4: {old}, 5: {old, new}, 6: {new}}


def test_operations_of_a_dead_life_neither_act_nor_complete():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        file = await new_file(disk, "/f")
        done = []
        disk.append(file, 0, [b"in flight"], sync=True, done=done.append)
        world.crash(node)
        disk.append(file, 0, [b"after"], sync=True, done=done.append)
        node.start()
        await world.sleep(10)
        assert done == []
        assert node.disk.contents("/f") == b""

    sim.run(scenario)


def test_lanes_do_not_wait_for_each_other():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        slow = await disk.open_file("/slow", lane="one", create=True)
        quick = await disk.open_file("/quick", lane="two", create=True)
        node.disk.slow("sync", "/slow", 60.0)
        order = []
        disk.append(slow, 0, [b"x"], sync=True, done=lambda error: order.append("slow"))
        disk.append(slow, 1, [b"x"], sync=False, done=lambda error: order.append("behind slow"))
        disk.append(quick, 0, [b"x"], sync=True, done=lambda error: order.append("quick"))
        await disk.close()
        assert order == ["quick", "slow", "behind slow"]
        assert world.now > 60

    sim.run(scenario)


def test_locks_end_with_the_life_that_holds_them():
    async def lock(node):
        await node.runtime.disk.make_dirs("/data")
        await node.runtime.disk.lock_dir("/data")

    async def scenario(world):
        node = world.node("a")
        await node.run(lock)
        with pytest.raises(BlockingIOError):
            await node.disk.mount().lock_dir("/data")
        await world.restart(node, lock)

    sim.run(scenario)


def test_wrong_kinds_of_paths_are_refused():
    async def scenario(world):
        disk = world.node("a").runtime.disk
        await disk.make_dirs("/d")
        await disk.write_file("/f", b"")
        for wrong in (
            disk.read_file("/d"),
            disk.list_dir("/f"),
            disk.list_dir("/f/x"),
            disk.rename("/f", "/d"),
            disk.open_file("/d", lane="w", create=True),
            disk.read_file("/"),
        ):
            with pytest.raises(OSError, match=r"directory|exists"):
                await wrong

    sim.run(scenario)
