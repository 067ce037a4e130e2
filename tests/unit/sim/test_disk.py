"""The simulated disk under faults: power loss through the port, planted defects, errors, a full disk, exact steps."""

from __future__ import annotations

import asyncio
import errno

import pytest

from geminga import sim
from geminga.runtime import ReadRequest


async def append(disk, file, offset, *buffers, sync=True):
    future = asyncio.get_running_loop().create_future()
    disk.append(file, offset, buffers, sync=sync, done=future.set_result)
    error = await future
    if error is not None:
        raise error


async def read(disk, *requests):
    future = asyncio.get_running_loop().create_future()
    disk.read([ReadRequest(*request) for request in requests], lane="reads", done=future.set_result)
    return list(await future)


async def new_file(disk, path, *, durable=True):
    file = await disk.open_file(path, lane="w", create=True)
    if durable:
        await disk.sync_dir("/")
    return file


async def idle():
    await asyncio.get_running_loop().create_future()


def states_after(main, path, seeds=60, *, power_loss=True, prepare=None):
    """What is found in ``path`` after ``main`` stood still and the node crashed, over many seeds."""

    async def scenario(world):
        node = world.node("a")
        if prepare:
            prepare(node.disk)
        node.run(main)
        await world.sleep(10)
        world.crash(node, power_loss=power_loss)
        node.start()
        return node.disk.contents(path) if path in node.disk.paths() else None

    return {sim.run(scenario, seed) for seed in range(seeds)}


async def write_synced_and_unsynced(node):
    disk = node.runtime.disk
    file = await new_file(disk, "/f")
    await append(disk, file, 0, b"synced", sync=True)
    await append(disk, file, 6, b"-unsynced", sync=False)
    await idle()


def test_power_loss_keeps_synced_and_may_lose_unsynced():
    states = states_after(write_synced_and_unsynced, "/f")
    assert {b"synced", b"synced-unsynced"} <= states
    assert all(state.startswith(b"synced") for state in states)


def test_killed_process_keeps_what_it_wrote():
    assert states_after(write_synced_and_unsynced, "/f", 10, power_loss=False) == {b"synced-unsynced"}


def test_page_cache_of_a_killed_process_is_still_unsynced():
    async def scenario(world):
        node = world.node("a")
        node.run(write_synced_and_unsynced)
        await world.sleep(10)
        world.crash(node, power_loss=False)
        node.start()
        world.crash(node)
        return node.disk.contents("/f")

    assert {b"synced", b"synced-unsynced"} <= {sim.run(scenario, seed) for seed in range(60)}


def test_name_of_a_new_file_is_lost_unless_its_directory_is_synced():
    async def main(node):
        file = await new_file(node.runtime.disk, "/f", durable=False)
        await append(node.runtime.disk, file, 0, b"synced", sync=True)
        await idle()

    assert states_after(main, "/f") == {None, b"synced"}


def test_write_file_and_make_dirs_are_durable_at_once():
    async def main(node):
        await node.runtime.disk.make_dirs("/a/b/c")
        await node.runtime.disk.write_file("/a/b/c/f", b"one")
        await node.runtime.disk.write_file("/a/b/c/f", b"two")
        await idle()

    assert states_after(main, "/a/b/c/f") == {b"two"}


def test_planted_ignored_file_sync_loses_synced_bytes():
    def plant(disk):
        disk.ignore_file_sync = True

    states = states_after(write_synced_and_unsynced, "/f", prepare=plant)
    assert b"" in states


def test_planted_ignored_directory_sync_loses_names():
    def plant(disk):
        disk.ignore_dir_sync = True

    assert None in states_after(write_synced_and_unsynced, "/f", prepare=plant)


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


def test_injected_error_strikes_where_and_as_often_as_asked():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        file, other = await new_file(disk, "/journal-1"), await new_file(disk, "/other")
        fault = node.disk.inject("write", "/journal*", error=errno.EIO, after=1, times=2)
        await append(disk, other, 0, b"x")
        await append(disk, file, 0, b"x")
        for _ in range(2):
            with pytest.raises(OSError, match="injected: Input/output error") as failure:
                await append(disk, file, 1, b"y")
            assert failure.value.errno == errno.EIO
            assert failure.value.filename == "/journal-1"
        await append(disk, file, 1, b"z")
        assert node.disk.contents("/journal-1") == b"xz"
        assert fault.hits == 2

    sim.run(scenario)


@pytest.mark.parametrize(
    ("op", "act"),
    [
        ("create", lambda d: d.open_file("/new", lane="w", create=True)),
        ("open", lambda d: d.open_file("/f", lane="w")),
        ("preallocate", lambda d: d.open_file("/new", lane="w", create=True, preallocate_bytes=5)),
        ("sync_dir", lambda d: d.sync_dir("/")),
        ("rename", lambda d: d.rename("/f", "/g")),
        ("unlink", lambda d: d.unlink("/f")),
        ("make_dir", lambda d: d.make_dirs("/d")),
        ("stat", lambda d: d.file_size("/f")),
        ("list", lambda d: d.list_dir("/")),
        ("read", lambda d: d.read_file("/f")),
        ("sync", lambda d: d.write_file("/f", b"new")),
    ],
)
def test_every_kind_of_operation_can_fail_and_then_works(op, act):
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        await disk.write_file("/f", b"f")
        fault = node.disk.inject(op, error=errno.ENOSPC)
        with pytest.raises(OSError, match="injected"):
            await act(disk)
        assert fault.hits == 1
        assert node.disk.paths() == ["/f"]
        assert node.disk.contents("/f") == b"f"
        await act(disk)

    sim.run(scenario)


def test_cleared_and_removed_faults_strike_no_more():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        file = await new_file(disk, "/f")
        node.disk.inject("write", times=None).remove()
        node.disk.inject("*", times=None)
        node.disk.clear_faults()
        await append(disk, file, 0, b"x")
        half = node.disk.inject("write", times=None, percent=50)
        failed = 0
        for _ in range(100):
            try:
                await append(disk, file, 0, b"x", sync=False)
            except OSError:
                failed += 1
        assert failed == half.hits
        assert 20 < failed < 80

    sim.run(scenario)


def test_failed_sync_is_not_healed_by_the_next_one():
    async def main(node):
        disk = node.runtime.disk
        file = await new_file(disk, "/f")
        node.disk.inject("sync", "/f")
        with pytest.raises(OSError, match="injected"):
            await append(disk, file, 0, b"a" * 100)
        await disk.sync_file(file)
        await append(disk, file, 100, b"b" * 100)
        assert await disk.read_file("/f") == b"a" * 100 + b"b" * 100
        await idle()

    states = states_after(main, "/f")
    assert all(state[100:] == b"b" * 100 for state in states)
    assert bytes(100) + b"b" * 100 in states


def test_flipped_bit_shows_on_that_read_only():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        await disk.write_file("/f", bytes(100))
        file = await disk.open_file("/f", lane="w")
        node.disk.flip_bits("/f", times=2)
        wrong, right = await read(disk, (file, 0, 100), (file, 0, 0))
        assert sum(byte.bit_count() for byte in wrong) == 1
        assert right == b""
        assert await disk.read_file("/f") == bytes(100)
        node.disk.flip_bits("/f")
        assert await disk.read_file("/f") != bytes(100)

    sim.run(scenario)


def test_failing_read_fails_alone_in_its_group():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        for name in "abc":
            await disk.write_file(f"/{name}", name.encode())
        files = [await disk.open_file(f"/{name}", lane="w") for name in "abc"]
        node.disk.inject("read", "/b")
        results = await read(disk, *((file, 0, 1) for file in files))
        assert results[0::2] == [b"a", b"c"]
        assert results[1].errno == errno.EIO

    sim.run(scenario)


def test_full_disk_writes_what_fits_and_works_again_with_more_space():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        file = await new_file(disk, "/f")
        node.disk.capacity_bytes = 1000
        assert await disk.total_bytes("/") == 1000
        await append(disk, file, 0, b"x" * 900)
        assert await disk.free_bytes("/") == 100
        with pytest.raises(OSError, match="no space") as failure:
            await append(disk, file, 900, b"y" * 200)
        assert failure.value.errno == errno.ENOSPC
        assert node.disk.contents("/f") == b"x" * 900 + b"y" * 100
        await append(disk, file, 500, b"z" * 500)
        with pytest.raises(OSError, match="no space"):
            await disk.write_file("/g", b"1")
        with pytest.raises(OSError, match="no space"):
            await disk.open_file("/h", lane="w", create=True, preallocate_bytes=1)
        with pytest.raises(OSError, match="no space"):
            await disk.truncate(file, 1001)
        assert node.disk.paths() == ["/f"]
        node.disk.capacity_bytes = 2000
        await disk.write_file("/g", b"1" * 1000)
        await disk.unlink("/f")
        assert await disk.free_bytes("/") == 0
        await disk.close_file(file)
        assert await disk.free_bytes("/") == 1000

    sim.run(scenario)


def test_latency_is_virtual_and_slow_operations_are_slower():
    async def scenario(world):
        node = world.node("a")
        disk = node.runtime.disk
        file = await new_file(disk, "/f")
        start = world.now
        await append(disk, file, 0, b"x")
        assert 0 < world.now - start < 0.1
        node.disk.slow("sync", "/f", 5.0)
        node.disk.slow("read", "/f", 7.0, times=1)
        start = world.now
        await append(disk, file, 0, b"x")
        assert 5 < world.now - start < 5.1
        start = world.now
        await read(disk, (file, 0, 1))
        assert 7 < world.now - start < 7.1
        node.disk.clear_faults()
        node.disk.latency_factor = 0
        start = world.now
        await append(disk, file, 0, b"x")
        assert world.now == start

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


def test_damage_is_on_the_medium():
    async def scenario(world):
        node = world.node("a")
        await node.runtime.disk.write_file("/f", b"0123456789")
        node.disk.damage("/f", 3, b"XX")
        with pytest.raises(sim.SimError, match="past the end"):
            node.disk.damage("/f", 9, b"XX")
        world.crash(node)
        node.start()
        assert await node.runtime.disk.read_file("/f") == b"012XX56789"
        assert node.disk.synced_contents("/f") == b"012XX56789"

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
