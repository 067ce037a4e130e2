"""Faults of the simulated disk: which operation they strike, how often, and what they leave behind."""

from __future__ import annotations

import errno

import pytest

from geminga import sim
from support.house.disks import append, idle, new_file, read, states_after


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
