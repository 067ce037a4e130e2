from __future__ import annotations

import asyncio
import errno
import gc as collector
import weakref

import pytest

from geminga.bookie.disk_io import HeldFiles, append, is_disk_full, read, unlink_if_there
from geminga.runtime import ReadRequest, next_turn
from support.clusters.bookie_node import BookieNode, run_bookie


def test_errors_that_mean_no_space():
    assert all(is_disk_full(OSError(code, "")) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    assert not is_disk_full(OSError(errno.EIO, ""))


def test_no_descriptor_is_as_passing_as_no_space():
    assert all(is_disk_full(OSError(code, "")) for code in (errno.EMFILE, errno.ENFILE))


def test_append_and_read_wait_for_the_disk():
    async def main(case: BookieNode) -> None:
        disk = case.node.runtime.disk
        file = await disk.open_file("/f", lane="a", create=True)
        await append(disk, file, 0, [b"one", b"two"], sync=True)
        await next_turn()
        assert await read(disk, [ReadRequest(file, 3, 9)], lane="b") == [b"two"]
        case.disk.inject("write", "/f")
        with pytest.raises(OSError, match="injected"):
            await append(disk, file, 6, [b"x"], sync=False)
        await unlink_if_there(disk, "/f")
        await unlink_if_there(disk, "/f")

    run_bookie(main, is_open=False)


def test_file_that_can_not_go_keeps_no_other_there_and_is_tried_again():
    async def main(case: BookieNode) -> None:
        disk = case.node.runtime.disk
        held = HeldFiles(disk)
        held.hold()
        for path in ("/a", "/b", "/c"):
            await disk.write_file(path, b"x")
            await held.unlink(path)
        case.disk.inject("unlink", "/b")
        with pytest.raises(OSError, match="injected"):
            await held.release()
        assert case.disk.paths() == ["/b"]
        held.hold()
        await held.release()
        assert case.disk.paths() == []

    run_bookie(main, is_open=False)


def test_what_could_not_be_written_waits_for_no_collector():
    """A full disk fails groups of the journal and halves of the cache: megabytes each."""

    async def main(case: BookieNode) -> None:
        disk = case.node.runtime.disk
        file = await disk.open_file("/f", lane="a", create=True)

        async def failing() -> weakref.ref[memoryview]:
            buffer = memoryview(b"x")
            case.disk.inject("write", "/f")
            with pytest.raises(OSError, match="injected"):
                await append(disk, file, 0, [buffer], sync=False)
            return weakref.ref(buffer)

        await failing()
        collector.disable()
        try:
            left = await failing()
            await next_turn()
            assert left() is None
        finally:
            collector.enable()

    run_bookie(main, is_open=False)


class ReadOnly:
    """A disk on which nothing can be unlinked."""

    async def unlink(self, path: str) -> None:
        raise OSError(errno.EROFS, "read-only", path)


def test_files_that_can_not_go_wait_for_no_collector():
    async def failing() -> weakref.ref[ReadOnly]:
        disk = ReadOnly()
        held = HeldFiles(disk)
        held.hold()
        await held.unlink("/a")
        with pytest.raises(OSError, match="read-only"):
            await held.release()
        return weakref.ref(disk)

    collector.disable()
    try:
        assert asyncio.run(failing())() is None
    finally:
        collector.enable()
