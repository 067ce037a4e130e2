"""The ``Disk`` port of one boot over a :class:`~geminga.sim.disk.SimDisk`.

What each operation does to the medium, step by step; the lanes (:mod:`~geminga.sim.disk_lanes`) carry them out.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from geminga.runtime.disk_threads import PATHS_LANE, TEMPORARY_SUFFIX
from geminga.runtime.ports import AppendDone, Buffer, DiskFile, ReadDone, ReadRequest
from geminga.sim.boot import Boot
from geminga.sim.disk import SimDisk, split
from geminga.sim.disk_lanes import READ_GROUP, DiskLanes, Step, Steps
from geminga.sim.disk_media import Directory, Inode, Resize, Write

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class SimFile:
    """An open file of a :class:`MountedDisk`."""

    #: The path it was opened with.
    path: str
    #: The lane of its appends.
    lane: str
    #: The file's images; outlives its name.
    inode: Inode
    is_open: bool = True


class MountedDisk:
    """See the module's docstring."""

    __slots__ = ("_device", "_files", "_lanes")

    def __init__(self, device: SimDisk, boot: Boot | None) -> None:
        self._device = device
        self._lanes = DiskLanes(device, boot)
        self._files: dict[SimFile, None] = {}

    # -- the port

    def append(self, file: DiskFile, offset: int, buffers: Sequence[Buffer], *, sync: bool, done: AppendDone) -> None:
        """Write ``buffers`` back to back from ``offset``, then sync if ``sync``."""
        assert isinstance(file, SimFile)
        data = b"".join(buffers)
        steps = self._append(file, offset, data, sync)
        self._lanes.submit(file.lane, f"append {file.path}", steps, lambda _, error: done(error))

    def read(self, requests: Sequence[ReadRequest], *, lane: str, done: ReadDone) -> None:
        """Carry out all reads on ``lane``."""
        # Whether a file is open counts now: closing waits for the reads submitted before.
        open_now = [isinstance(request.file, SimFile) and request.file.is_open for request in requests]
        self._lanes.submit(
            lane,
            "",
            self._read(requests, open_now),
            lambda results, error: done(results if error is None else [error] * len(requests)),
        )

    async def open_file(
        self, path: str, *, lane: str, create: bool = False, preallocate_bytes: int = 0, is_written: bool = True
    ) -> SimFile:
        """Open for reading and writing."""
        name = f"open {path}" if create or preallocate_bytes else ""
        return await self._lanes.call(lane, name, self._open(path, lane, create, preallocate_bytes))

    async def close_file(self, file: DiskFile) -> None:
        """Close after everything submitted before."""
        assert isinstance(file, SimFile)
        await self._lanes.call(file.lane, "", self._close(file))

    async def sync_file(self, file: DiskFile) -> None:
        """fdatasync."""
        assert isinstance(file, SimFile)
        await self._lanes.call(file.lane, f"sync_file {file.path}", self._sync(file))

    async def truncate(self, file: DiskFile, size_bytes: int) -> None:
        """Cut or extend."""
        assert isinstance(file, SimFile)
        await self._lanes.call(file.lane, f"truncate {file.path}", self._truncate(file, size_bytes))

    async def file_size(self, path: str) -> int:
        """Bytes; raises FileNotFoundError."""
        return len(await self._look("stat", path, lambda: self._device.inode(path).written))

    async def read_file(self, path: str) -> bytes:
        """The whole of a file."""
        return await self._lanes.call(PATHS_LANE, "", self._read_whole(path))

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace ``path`` atomically and durably."""
        await self._lanes.call(PATHS_LANE, f"write_file {path}", self._write_whole(path, data))

    async def make_dirs(self, path: str) -> None:
        """Create the directory and its parents, durably."""
        await self._lanes.call(PATHS_LANE, f"make_dirs {path}", self._make_dirs(path))

    async def list_dir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        return await self._look("list", path, lambda: sorted(self._device.directory(path).entries))

    async def sync_dir(self, path: str) -> None:
        """fsync the directory."""
        await self._lanes.call(PATHS_LANE, f"sync_dir {path}", self._sync_dir(path))

    async def rename(self, source: str, target: str) -> None:
        """Atomic replace."""
        await self._lanes.call(PATHS_LANE, f"rename {source}", self._rename(source, target))

    async def unlink(self, path: str) -> None:
        """Remove a file's name."""
        await self._lanes.call(PATHS_LANE, f"unlink {path}", self._unlink(path))

    async def free_bytes(self, path: str) -> int:
        """What is left of the capacity."""
        device = self._device
        return await self._look(
            "stat", path, lambda: max(0, device.capacity_bytes - device.used_bytes()), directory=True
        )

    async def total_bytes(self, path: str) -> int:
        """The capacity."""
        return await self._look("stat", path, lambda: self._device.capacity_bytes, directory=True)

    async def lock_dir(self, path: str) -> None:
        """Hold ``path`` for this mount; raises BlockingIOError if another one has it."""
        await self._look("stat", path, lambda: self._lock(path), directory=True)

    async def close(self) -> None:
        """Finish what was submitted, close every file and lock."""
        for file in list(self._files):
            await self.close_file(file)
        for lane in self._lanes.names:
            await self._lanes.call(lane, "", _no_steps())
        for path, holder in list(self._device.locks.items()):
            if holder is self:
                del self._device.locks[path]

    # -- operations

    async def _look(self, op: str, path: str, look: Callable[[], T], *, directory: bool = False) -> T:
        def steps() -> Steps[T]:
            yield Step(op, path, mutates=False)
            if directory:
                self._device.directory(path)
            return look()

        return await self._lanes.call(PATHS_LANE, "", steps())

    def _append(self, file: SimFile, offset: int, data: bytes, sync: bool) -> Steps[None]:
        _check_open(file)
        yield from self._write(file.inode, file.path, offset, data)
        if sync:
            yield from self._sync(file)

    def _write(self, inode: Inode, path: str, offset: int, data: bytes) -> Steps[None]:
        try:
            yield Step("write", path)
        except OSError:
            inode.change(Write(offset, self._device.share_of(data)))
            raise
        growth = max(0, offset + len(data) - len(inode.written))
        room = self._device.room_for(growth)
        if room < growth:
            fitting = data[: max(0, len(data) - (growth - room))]
            if fitting:
                inode.change(Write(offset, fitting))
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if data:
            inode.change(Write(offset, data))

    def _sync(self, file: SimFile) -> Steps[None]:
        _check_open(file)
        yield from self._sync_inode(file.inode, file.path)

    def _sync_inode(self, inode: Inode, path: str) -> Steps[None]:
        try:
            yield Step("sync", path)
        except OSError:
            self._device.sync_failed(inode)
            raise
        self._device.sync_inode(inode)

    def _read(self, requests: Sequence[ReadRequest], open_now: list[bool]) -> Steps[list[bytes | OSError]]:
        # Faults strike each request by itself; the group takes as long as its slowest.
        all_struck = [self._device.struck("read", request.file.path) for request in requests]
        if requests:
            extra_s = max(struck.latency_s for struck in all_struck)
            yield Step(READ_GROUP, "", mutates=False, extra_s=extra_s)
        results: list[bytes | OSError] = []
        for request, is_open, struck in zip(requests, open_now, all_struck, strict=True):
            file, offset, size_bytes = request
            assert isinstance(file, SimFile)
            if struck.error is not None:
                results.append(struck.error)
            elif not is_open:
                results.append(OSError(errno.EBADF, "the file is closed", file.path))
            else:
                data = bytes(memoryview(file.inode.written)[offset : offset + size_bytes])
                results.append(self._device.flipped(data) if struck.flip else data)
        return results

    def _read_whole(self, path: str) -> Steps[bytes]:
        struck = self._device.struck("read", path)
        yield Step(READ_GROUP, path, mutates=False, extra_s=struck.latency_s)
        if struck.error is not None:
            raise struck.error
        data = bytes(self._device.inode(path).written)
        return self._device.flipped(data) if struck.flip else data

    def _open(self, path: str, lane: str, create: bool, preallocate_bytes: int) -> Steps[SimFile]:
        if create:
            yield Step("create", path)
            inode = self._create(path, exclusive=True)
        else:
            yield Step("open", path, mutates=False)
            inode = self._device.inode(path)
        if preallocate_bytes > len(inode.written):
            try:
                yield Step("preallocate", path)
                growth = preallocate_bytes - len(inode.written)
                if self._device.room_for(growth) < growth:
                    raise OSError(errno.ENOSPC, "no space left on device", path)
            except OSError:
                if create:
                    directory, name = self._device.parent(path)
                    directory.change({name: None})
                raise
            inode.change(Resize(preallocate_bytes))
        file = SimFile(path, lane, inode)
        self._device.opened(inode)
        self._files[file] = None
        return file

    def _create(self, path: str, *, exclusive: bool) -> Inode:
        directory, name = self._device.parent(path)
        there = directory.entries.get(name)
        if there is None:
            inode = Inode()
            directory.change({name: inode})
            return inode
        if exclusive or isinstance(there, Directory):
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        return there

    def _close(self, file: SimFile) -> Steps[None]:
        if file.is_open:
            yield Step("close", file.path, mutates=False)
            file.is_open = False
            self._files.pop(file, None)
            self._device.closed(file.inode)

    def _truncate(self, file: SimFile, size_bytes: int) -> Steps[None]:
        _check_open(file)
        yield Step("truncate", file.path)
        growth = max(0, size_bytes - len(file.inode.written))
        if self._device.room_for(growth) < growth:
            raise OSError(errno.ENOSPC, "no space left on device", file.path)
        file.inode.change(Resize(size_bytes))

    def _write_whole(self, path: str, data: bytes) -> Steps[None]:
        temporary = path + TEMPORARY_SUFFIX
        yield Step("create", temporary)
        inode = self._create(temporary, exclusive=False)
        try:
            inode.change(Resize(0))
            yield from self._write(inode, temporary, 0, data)
            yield from self._sync_inode(inode, temporary)
        except OSError:
            directory, name = self._device.parent(temporary)
            directory.change({name: None})
            raise
        yield from self._rename(temporary, path)
        yield from self._sync_dir(posixpath.dirname(path) or "/")

    def _rename(self, source: str, target: str) -> Steps[None]:
        yield Step("rename", source)
        inode = self._device.inode(source)
        source_dir, source_name = self._device.parent(source)
        target_dir, target_name = self._device.parent(target)
        if isinstance(target_dir.entries.get(target_name), Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        if source_dir is target_dir:
            if source_name != target_name:
                source_dir.change({source_name: None, target_name: inode})
        else:
            target_dir.change({target_name: inode})
            source_dir.change({source_name: None})

    def _unlink(self, path: str) -> Steps[None]:
        yield Step("unlink", path)
        self._device.inode(path)
        directory, name = self._device.parent(path)
        directory.change({name: None})

    def _sync_dir(self, path: str) -> Steps[None]:
        yield Step("sync_dir", path)
        self._device.sync_directory(self._device.directory(path))

    def _make_dirs(self, path: str) -> Steps[None]:
        names = split(path)
        for depth in range(1, len(names) + 1):
            directory, name = self._device.parent("/".join(names[:depth]))
            there = directory.entries.get(name)
            if isinstance(there, Inode):
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            if there is None:
                yield Step("make_dir", "/" + "/".join(names[:depth]))
                directory.change({name: Directory()})
                yield from self._sync_dir("/" + "/".join(names[: depth - 1]))

    def _lock(self, path: str) -> None:
        key = "/".join(split(path))
        holder = self._device.locks.setdefault(key, self)
        if holder is not self:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)


def _check_open(file: SimFile) -> None:
    if not file.is_open:
        raise OSError(errno.EBADF, "the file is closed", file.path)


def _no_steps() -> Steps[None]:
    yield from ()
