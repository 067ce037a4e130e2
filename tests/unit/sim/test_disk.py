"""The simulated disk under faults: power loss through the port, planted defects, errors, a full disk, exact steps."""

from __future__ import annotations

import errno

import pytest

from geminga import sim
from support.house.disks import append, idle, new_file, states_after


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
