"""Operations on a disk's lanes: in order on each, several lanes at the same time, and none once the boot is dead."""

from __future__ import annotations

import errno

from geminga.sim import run
from geminga.sim.disk_lanes import DiskLanes, Step


def steps(log, name, count=2):
    for number in range(count):
        yield Step("write", f"/{name}")
        log.append(f"{name}{number}")
    return name


def test_a_lane_is_carried_out_in_order_and_two_lanes_beside_each_other() -> None:
    async def story(world):
        disk = world.node("a").disk
        lanes, log, done = DiskLanes(disk, None), [], []
        disk.latency_factor = 1.0
        for lane, name in (("one", "a"), ("one", "b"), ("two", "c")):
            lanes.submit(lane, name, steps(log, name), lambda result, error: done.append((result, error)))
        assert (log, done) == ([], []), "nothing takes effect within the call"
        await world.sleep(1)
        assert [each for each in log if each[0] in "ab"] == ["a0", "a1", "b0", "b1"]
        assert log.index("c0") < log.index("b0")
        assert sorted(done) == [("a", None), ("b", None), ("c", None)]
        assert lanes.names == ["one", "two"]

    run(story, seed=2)


def test_fault_is_thrown_into_the_operation_and_the_lane_goes_on() -> None:
    async def story(world):
        disk = world.node("a").disk
        lanes, log, done = DiskLanes(disk, None), [], []
        disk.inject("write", "/a", error=errno.ENOSPC)
        for name in "ab":
            lanes.submit("one", name, steps(log, name), lambda result, error: done.append((result, error)))
        await world.sleep(1)
        assert log == ["b0", "b1"]
        assert (done[0][1].errno, done[1]) == (errno.ENOSPC, ("b", None))

    run(story, seed=2)


def test_nothing_takes_effect_once_the_boot_is_dead() -> None:
    async def story(world):
        node = world.node("a")
        assert node.runtime
        assert node.boot is not None
        lanes, log, done = DiskLanes(node.disk, node.boot), [], []
        lanes.submit("one", "a", steps(log, "a"), lambda *result: done.append(result))
        world.crash(node)
        lanes.submit("one", "b", steps(log, "b"), lambda *result: done.append(result))
        await world.sleep(1)
        assert (log, done) == ([], [])

    run(story, seed=2)
