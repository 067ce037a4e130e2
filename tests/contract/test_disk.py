"""One suite for every ``Disk``: in memory, simulated, and over real files, with and without syncs by the kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.runtime import Disk, MemoryDisk, ReadRequest, ThreadedDisk
from support.house.disks import append, read

Story = Callable[[Disk, str], Awaitable[None]]
Run = Callable[[Story], None]


def run_memory(story: Story, root: str) -> None:
    async def main():
        disk = MemoryDisk()
        await disk.make_dirs(root)
        await story(disk, root)
        await disk.close()

    asyncio.run(main())


def run_threads(story: Story, root: str, *, syncs_by_kernel: bool = True) -> None:
    async def main():
        disk = ThreadedDisk(syncs_by_kernel=syncs_by_kernel)
        try:
            await disk.make_dirs(root)
            await story(disk, root)
        finally:
            await disk.close()

    asyncio.run(main())


def run_sim(story: Story, root: str) -> None:
    async def on_node(node):
        await node.runtime.disk.make_dirs(root)
        await story(node.runtime.disk, root)
        await node.runtime.disk.close()

    async def scenario(world):
        await world.node("host").run(on_node)

    for seed in range(3):
        sim.run(scenario, seed)


def run_threads_alone(story: Story, root: str) -> None:
    run_threads(story, root, syncs_by_kernel=False)


@pytest.fixture(params=["memory", "sim", "threads", "threads alone"])
def run(request, tmp_path) -> Run:
    runners = {"memory": run_memory, "sim": run_sim, "threads": run_threads, "threads alone": run_threads_alone}
    return lambda story: runners[request.param](story, f"{tmp_path}/disk")


def test_append_of_several_buffers_reads_back_joined(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        await append(disk, file, 0, b"one", bytearray(b"two"), memoryview(b"xthreex")[1:6])
        await append(disk, file, 11, b"!")
        assert await read(disk, (file, 0, 100), (file, 3, 3), (file, 11, 1)) == [b"onetwothree!", b"two", b"!"]
        assert file.path == f"{root}/f"

    run(story)


@pytest.mark.parametrize(("count", "size_bytes"), [(3000, 10), (3000, 200), (5, 100_000), (1, 0)])
def test_append_of_many_or_large_buffers_reads_back_joined(run, count, size_bytes):
    async def story(disk, root):
        buffers = [bytes([i % 251]) * size_bytes for i in range(count)]
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        await append(disk, file, 5, *buffers)
        assert await read(disk, (file, 0, count * size_bytes + 5)) == [
            bytes(5) + b"".join(buffers) if size_bytes else b""
        ]

    run(story)


def test_appends_of_one_lane_complete_later_and_in_order(run):
    async def story(disk, root):
        first = await disk.open_file(f"{root}/a", lane="w", create=True)
        second = await disk.open_file(f"{root}/b", lane="w", create=True)
        finished = asyncio.get_running_loop().create_future()
        order = []

        def note(number):
            def done(error):
                order.append((number, error))
                if len(order) == 20:
                    finished.set_result(None)

            return done

        for number in range(20):
            disk.append((first, second)[number % 2], number, [b"x"], sync=number % 3 == 0, done=note(number))
        assert order == []
        await finished
        assert order == [(number, None) for number in range(20)]

    run(story)


def test_synced_append_has_its_lane_for_itself_until_it_is_done(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        order = []
        disk.append(file, 0, [b"first"], sync=True, done=lambda error: order.append(("first", error)))
        disk.append(file, 0, [b"again"], sync=True, done=lambda error: order.append(("again", error)))
        disk.append(file, 5, [b"!"], sync=False, done=lambda error: order.append(("more", error)))
        await append(disk, file, 6, b"?")
        assert order == [("first", None), ("again", None), ("more", None)]
        disk.append(file, 3, [b"lost"], sync=True, done=lambda error: order.append(("lost", error)))
        await disk.truncate(file, 3)
        assert await disk.read_file(f"{root}/f") == b"aga"
        # From within a completion, which is when the journal writes its next group.
        finished = asyncio.get_running_loop().create_future()
        disk.append(
            file, 0, [b"x"], sync=True, done=lambda _: disk.append(file, 1, [b"y"], sync=True, done=finished.set_result)
        )
        assert await finished is None
        assert await disk.read_file(f"{root}/f") == b"xya"

    run(story)


def test_read_completes_later_and_short_only_at_the_end(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        await append(disk, file, 0, b"0123456789")
        results = []
        future = asyncio.get_running_loop().create_future()
        disk.read(
            [ReadRequest(file, 8, 5), ReadRequest(file, 10, 5), ReadRequest(file, 50, 5), ReadRequest(file, 0, 0)],
            lane="reads",
            done=lambda got: (results.extend(got), future.set_result(None)),
        )
        assert results == []
        await future
        assert results == [b"89", b"", b"", b""]
        assert await read(disk) == []

    run(story)


def test_write_behind_the_end_leaves_zeros(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        await append(disk, file, 4, b"abc")
        await append(disk, file, 5, b"X")
        assert await disk.read_file(f"{root}/f") == b"\0\0\0\0aXc"

    run(story)


def test_open_of_a_missing_file_fails(run):
    async def story(disk, root):
        with pytest.raises(FileNotFoundError):
            await disk.open_file(f"{root}/f", lane="w")
        with pytest.raises(FileNotFoundError):
            await disk.open_file(f"{root}/missing/f", lane="w", create=True)
        with pytest.raises(FileNotFoundError):
            await disk.read_file(f"{root}/f")
        with pytest.raises(FileNotFoundError):
            await disk.file_size(f"{root}/f")

    run(story)


def test_create_of_an_existing_file_fails_and_keeps_it(run):
    async def story(disk, root):
        await disk.write_file(f"{root}/f", b"kept")
        with pytest.raises(FileExistsError):
            await disk.open_file(f"{root}/f", lane="w", create=True)
        assert await disk.read_file(f"{root}/f") == b"kept"

    run(story)


@pytest.mark.parametrize("is_written", [True, False])
def test_preallocated_file_is_zeros_of_that_size(run, is_written):
    async def story(disk, root):
        size = 2_500_000
        file = await disk.open_file(f"{root}/f", lane="w", create=True, preallocate_bytes=size, is_written=is_written)
        assert await disk.file_size(f"{root}/f") == 2_500_000
        await append(disk, file, 10, b"abc")
        again = await disk.open_file(f"{root}/f", lane="w", preallocate_bytes=100)
        assert await disk.file_size(f"{root}/f") == 2_500_000
        start, end = await read(disk, (again, 8, 7), (again, 2_499_990, 100))
        assert (start, end) == (b"\0\0abc\0\0", bytes(10))

    run(story)


def test_truncate_cuts_and_extends_with_zeros(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        await append(disk, file, 0, b"0123456789")
        await disk.truncate(file, 4)
        assert await disk.file_size(f"{root}/f") == 4
        await disk.truncate(file, 6)
        await disk.sync_file(file)
        assert await disk.read_file(f"{root}/f") == b"0123\0\0"

    run(story)


def test_write_file_replaces_and_leaves_nothing_else(run):
    async def story(disk, root):
        await disk.write_file(f"{root}/f", b"first")
        await disk.write_file(f"{root}/f", b"second")
        await disk.write_file(f"{root}/empty", b"")
        assert await disk.read_file(f"{root}/f") == b"second"
        assert await disk.read_file(f"{root}/empty") == b""
        assert await disk.list_dir(root) == ["empty", "f"]
        with pytest.raises(FileNotFoundError):
            await disk.write_file(f"{root}/missing/f", b"")

    run(story)


def test_list_dir_gives_files_and_directories_sorted(run):
    async def story(disk, root):
        await disk.make_dirs(f"{root}/c/deep")
        await disk.write_file(f"{root}/b", b"")
        await disk.write_file(f"{root}/a", b"")
        await disk.make_dirs(f"{root}/c/deep")
        assert await disk.list_dir(root) == ["a", "b", "c"]
        assert await disk.list_dir(f"{root}/c") == ["deep"]
        with pytest.raises(FileNotFoundError):
            await disk.list_dir(f"{root}/missing")
        with pytest.raises(FileExistsError):
            await disk.make_dirs(f"{root}/a")

    run(story)


def test_rename_replaces_the_target(run):
    async def story(disk, root):
        await disk.make_dirs(f"{root}/sub")
        await disk.write_file(f"{root}/a", b"A")
        await disk.write_file(f"{root}/b", b"B")
        await disk.rename(f"{root}/a", f"{root}/b")
        await disk.rename(f"{root}/b", f"{root}/sub/c")
        await disk.sync_dir(root)
        await disk.sync_dir(f"{root}/sub")
        assert await disk.list_dir(root) == ["sub"]
        assert await disk.read_file(f"{root}/sub/c") == b"A"
        with pytest.raises(FileNotFoundError):
            await disk.rename(f"{root}/a", f"{root}/b")

    run(story)


def test_unlinked_file_stays_readable_while_open(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        await append(disk, file, 0, b"data")
        await disk.unlink(f"{root}/f")
        assert await disk.list_dir(root) == []
        assert await read(disk, (file, 0, 10)) == [b"data"]
        with pytest.raises(FileNotFoundError):
            await disk.unlink(f"{root}/f")
        await disk.close_file(file)

    run(story)


def test_closed_file_gives_errors_and_other_reads_go_on(run):
    async def story(disk, root):
        closed = await disk.open_file(f"{root}/a", lane="w", create=True)
        other = await disk.open_file(f"{root}/b", lane="w", create=True)
        await append(disk, other, 0, b"fine")
        await disk.close_file(closed)
        await disk.close_file(closed)
        with pytest.raises(OSError, match="closed"):
            await append(disk, closed, 0, b"x")
        with pytest.raises(OSError, match="closed"):
            await disk.sync_file(closed)
        with pytest.raises(OSError, match="closed"):
            await disk.truncate(closed, 0)
        error, data = await read(disk, (closed, 0, 1), (other, 0, 4))
        assert isinstance(error, OSError)
        assert data == b"fine"

    run(story)


def test_close_file_waits_for_appends_and_reads_submitted_before(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        await append(disk, file, 0, b"0123")
        done = []
        for lane in ("r1", "r2"):
            disk.read([ReadRequest(file, 0, 4)], lane=lane, done=lambda results: done.extend(results))
        disk.append(file, 4, [b"4567"], sync=True, done=done.append)
        await disk.close_file(file)
        assert await disk.read_file(f"{root}/f") == b"01234567"
        assert None in done
        assert done.count(b"0123") == 2

    run(story)


def test_space_of_a_file_system_is_told(run):
    async def story(disk, root):
        assert 0 < await disk.free_bytes(root) <= await disk.total_bytes(root)

    run(story)


def test_lock_dir_twice_by_the_same_disk_is_fine(run):
    async def story(disk, root):
        await disk.lock_dir(root)
        await disk.lock_dir(root)
        with pytest.raises(FileNotFoundError):
            await disk.lock_dir(f"{root}/missing")

    run(story)


def test_lock_dir_of_another_process_is_refused_until_it_closes(tmp_path):
    async def main():
        first, second = ThreadedDisk(), ThreadedDisk()
        await first.lock_dir(str(tmp_path))
        with pytest.raises(BlockingIOError):
            await second.lock_dir(str(tmp_path))
        await first.close()
        await second.lock_dir(str(tmp_path))
        await second.close()

    asyncio.run(main())

    async def scenario(world):
        device = world.node("host").disk
        first, second = device.mount(), device.mount()
        await first.make_dirs("/data")
        await first.lock_dir("/data")
        with pytest.raises(BlockingIOError):
            await second.lock_dir("/data/")
        await first.close()
        await second.lock_dir("/data")

    sim.run(scenario)


def test_close_finishes_what_was_submitted(run):
    async def story(disk, root):
        file = await disk.open_file(f"{root}/f", lane="w", create=True)
        done = []
        for number in range(10):
            disk.append(file, number, [b"%d" % number], sync=False, done=done.append)
        await disk.close()
        assert done == [None] * 10

    run(story)
