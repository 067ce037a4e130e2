"""What only the threaded disk does: short writes, vectors, lanes, batched completions."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from geminga.runtime import ReadRequest, ThreadedDisk
from geminga.runtime.disk_threads import IOV_MAX, JOIN_BYTES_MAX


async def append(disk, file, offset, *buffers, sync=False):
    future = asyncio.get_running_loop().create_future()
    disk.append(file, offset, buffers, sync=sync, done=future.set_result)
    return await future


def on_disk(story, *, syncs_by_kernel=True):
    async def main():
        disk = ThreadedDisk(syncs_by_kernel=syncs_by_kernel)
        try:
            await story(disk)
        finally:
            await disk.close()

    asyncio.run(main())


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real_pwrite, real_pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real_pwrite(fd, memoryview(data)[:7], offset))
    # Stops in the middle of the second buffer.
    monkeypatch.setattr(
        os,
        "pwritev",
        lambda fd, buffers, offset: real_pwritev(
            fd, [buffers[0], memoryview(buffers[1])[: len(buffers[1]) // 2]], offset
        ),
    )

    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        assert await append(disk, file, 0, b"0123456789" * 3) is None
        large = [bytes([i]) * (JOIN_BYTES_MAX // 2000) for i in range(100)] * 40
        assert await append(disk, file, 30, *large) is None
        assert (tmp_path / "f").read_bytes() == b"0123456789" * 3 + b"".join(large)

    on_disk(story)


def test_append_of_more_buffers_than_one_call_takes_is_split(tmp_path):
    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        buffers = [b"%08d" % i * 20 for i in range(2 * IOV_MAX + 3)]
        assert await append(disk, file, 0, *buffers, sync=True) is None
        assert (tmp_path / "f").read_bytes() == b"".join(buffers)

    on_disk(story)


def test_failed_write_is_told_as_oserror(tmp_path, monkeypatch):
    def full(fd, data, offset):
        raise OSError(errno.ENOSPC, "full")

    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        monkeypatch.setattr(os, "pwrite", full)
        error = await append(disk, file, 0, b"x")
        assert error.errno == errno.ENOSPC
        error = await append(disk, file, 0, "not bytes")
        assert error.errno == errno.ENOSPC
        monkeypatch.undo()
        error = await append(disk, file, 0, "not bytes")
        assert error.errno == errno.EIO

    on_disk(story)


def test_failed_sync_is_told_as_oserror(tmp_path, monkeypatch):
    def broken(fd):
        raise OSError(errno.EIO, "broken")

    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        monkeypatch.setattr(os, "fdatasync", broken)
        assert (await append(disk, file, 0, b"x", sync=True)).errno == errno.EIO
        with pytest.raises(OSError, match="broken"):
            await disk.sync_file(file)
        assert await append(disk, file, 0, b"x", sync=False) is None

    on_disk(story, syncs_by_kernel=False)


def test_write_file_that_fails_leaves_the_old_and_no_temporary(tmp_path, monkeypatch):
    def broken(fd):
        raise OSError(errno.EIO, "broken")

    async def story(disk):
        await disk.write_file(f"{tmp_path}/f", b"old")
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="broken"):
            await disk.write_file(f"{tmp_path}/f", b"new")
        assert os.listdir(tmp_path) == ["f"]
        assert (tmp_path / "f").read_bytes() == b"old"

    on_disk(story)


def test_failed_preallocation_removes_the_new_file(tmp_path, monkeypatch):
    def full(fd, offset, size):
        raise OSError(errno.ENOSPC, "full")

    async def story(disk):
        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="full"):
            await disk.open_file(f"{tmp_path}/f", lane="w", create=True, preallocate_bytes=10)
        assert os.listdir(tmp_path) == []

    on_disk(story)


def test_read_that_the_kernel_cuts_short_is_continued(tmp_path, monkeypatch):
    real_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: real_pread(fd, min(size, 3), offset))

    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        await append(disk, file, 0, b"0123456789")
        future = asyncio.get_running_loop().create_future()
        disk.read([ReadRequest(file, 1, 8), ReadRequest(file, 5, 50)], lane="r", done=future.set_result)
        assert await future == [b"12345678", b"56789"]

    on_disk(story)


def test_completions_that_gather_wake_the_loop_once(tmp_path):
    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        loop = asyncio.get_running_loop()
        wakes = []
        real = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args, **kwargs: (wakes.append(1), real(*args, **kwargs))
        done = []
        for i in range(50):
            disk.append(file, i, [b"x"], sync=False, done=done.append)
        await disk.close_file(file)
        del loop.call_soon_threadsafe
        assert done == [None] * 50
        assert len(wakes) <= 51

    on_disk(story)


def test_make_dirs_syncs_again_what_a_failed_attempt_left(tmp_path, monkeypatch):
    synced: list[str] = []

    def fsync(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        if len(synced) == 2:
            raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(os, "fsync", fsync)

    async def story(disk):
        with pytest.raises(OSError, match="injected"):
            await disk.make_dirs(f"{tmp_path}/a/b")
        assert (tmp_path / "a").is_dir()
        await disk.make_dirs(f"{tmp_path}/a/b")
        assert synced[2:] == [str(tmp_path), str(tmp_path / "a")]
        await disk.make_dirs(f"{tmp_path}/a/b")
        assert synced[4:] == [str(tmp_path / "a")]

    on_disk(story)


def test_write_file_whose_name_may_not_be_durable_is_an_io_error_even_when_the_disk_is_full(tmp_path, monkeypatch):
    def fsync(fd):
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "injected")

    monkeypatch.setattr(os, "fsync", fsync)

    async def story(disk):
        with pytest.raises(OSError, match="durable") as failure:
            await disk.write_file(f"{tmp_path}/f", b"new")
        # Whether the old or the new file counts after a crash is not known: nothing to be tried again.
        assert failure.value.errno == errno.EIO

    on_disk(story)


def failing(*args, **kwargs):
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        ("fdatasync", lambda disk, file: append(disk, file, 0, b"x", sync=True)),
        ("pwrite", lambda disk, file: append(disk, file, 0, b"x")),
        ("pwritev", lambda disk, file: append(disk, file, 0, bytes(JOIN_BYTES_MAX), b"x")),
        ("fdatasync", lambda disk, file: disk.sync_file(file)),
        ("ftruncate", lambda disk, file: disk.truncate(file, 1)),
        ("fsync", lambda disk, file: disk.write_file(file.path, b"x")),
        ("posix_fallocate", lambda disk, file: disk.open_file(file.path, lane="r", preallocate_bytes=9)),
        ("listdir", lambda disk, file: disk.list_dir(file.path)),
        ("statvfs", lambda disk, file: disk.free_bytes(file.path)),
    ],
)
def test_error_of_the_disk_names_its_file(tmp_path, monkeypatch, call, operation):
    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/open", lane="w", create=True)
        monkeypatch.setattr(os, call, failing)
        try:
            error = await operation(disk, file)
        except OSError as raised:
            error = raised
        monkeypatch.undo()
        assert str(error) == f"[Errno 5] Input/output error: '{file.path}'"

    on_disk(story, syncs_by_kernel=False)


def test_error_of_a_read_and_of_the_kernels_sync_names_its_file(tmp_path, monkeypatch):
    async def story(disk):
        file = await disk.open_file(f"{tmp_path}/f", lane="w", create=True)
        monkeypatch.setattr(os, "pread", failing)
        done = asyncio.get_running_loop().create_future()
        disk.read([ReadRequest(file, 0, 1)], lane="r", done=done.set_result)
        assert str((await done)[0]) == f"[Errno 5] Input/output error: '{file.path}'"
        monkeypatch.setattr(os, "pwrite", failing)
        # On the loop itself, where the kernel takes syncs.
        assert str(await append(disk, file, 0, b"x", sync=True)) == f"[Errno 5] Input/output error: '{file.path}'"
        monkeypatch.undo()
        assert await append(disk, file, 0, b"x", sync=True) is None

    on_disk(story)


@pytest.mark.parametrize(("umask", "directory_mode", "file_mode"), [(0, 0o700, 0o600), (0o222, 0o500, 0o400)])
def test_what_is_made_is_the_users_alone_and_a_stricter_umask_holds(tmp_path, umask, directory_mode, file_mode):
    async def story(disk):
        await disk.make_dirs(f"{tmp_path}/a/b" if not umask else f"{tmp_path}/a")
        await disk.open_file(f"{tmp_path}/made", lane="w", create=True)
        await disk.write_file(f"{tmp_path}/replaced", b"x")

    before = os.umask(umask)
    try:
        on_disk(story)
    finally:
        os.umask(before)
    for name in ("a", "a/b")[: 1 if umask else 2]:
        assert (tmp_path / name).stat().st_mode & 0o777 == directory_mode, name
    for name in ("made", "replaced"):
        assert (tmp_path / name).stat().st_mode & 0o777 == file_mode, name
