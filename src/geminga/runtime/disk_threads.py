"""The ``Disk`` port over the operating system: one daemon thread a lane, one hop a group.

A small synced append needs no thread where the kernel takes syncs as requests (``kernel_sync``): the loop writes, which
is a copy into the page cache as long as ``core.direct_writes`` finds it so, and the kernel tells when it is durable.
Such an append has its lane for itself, so that the order is the same. Everything else hops.

The hop loop -> lane -> loop is what group commit pays per group beside the fdatasync itself. An append hands one
tuple to the lane's queue and comes back through one shared deque, with one wake-up of the loop for all that has
gathered (see ``lanes``). Measured on 2 cores:
one at a time a hop costs 80 to 95 us (two thread wake-ups), pipelined 6 us (uvloop) to 8 us (asyncio) of the loop's
and the lane's time together.
Many small buffers go out joined, many or large ones with ``pwritev`` (measured on ext4, page cache: 1,000 x 200 B
42 us against 91 us joined; 16 x 1,100 B 2.8 us against 2.2 us joined; joining loses once the joined buffer is
large enough for malloc to map fresh pages for it).

Errors are OSErrors, and name their file: the kernel's own do not where a descriptor was used. Path operations run on a
lane of their own, ``paths``. Where no descriptor is free, opening waits :data:`DESCRIPTOR_WAIT_S` for one, on its lane;
nothing was changed yet when it fails for want of one.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar, overload

from geminga.runtime.core.direct_writes import DirectWrites
from geminga.runtime.kernel_sync import KernelSyncs
from geminga.runtime.lanes import Lanes
from geminga.runtime.local_file import DIRECTORY_MODE, FILE_MODE, named, naming
from geminga.runtime.ports import AppendDone, Buffer, DiskFile, ReadDone, ReadRequest

T = TypeVar("T")

#: Buffers one ``pwritev`` takes.
IOV_MAX: Final = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 1024
#: Below this total, joining is quicker than ``pwritev``: glibc's malloc serves it without mapping pages.
JOIN_BYTES_MAX: Final = 128 * 1024
#: Synced appends up to this size are written by the loop itself: a copy of some 5 us.
DIRECT_BYTES_MAX: Final = 32 * 1024
#: Preallocated space is zeroed in chunks of this size.
ZERO_CHUNK_BYTES: Final = 1024 * 1024
#: The lane of operations on paths.
PATHS_LANE: Final = "paths"
#: How long opening waits for a descriptor, and between two tries, seconds.
DESCRIPTOR_WAIT_S: Final = 2.0
DESCRIPTOR_RETRY_S: Final = 0.02
#: The process, or the system, has no more descriptors.
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
#: Suffix of the temporary file of :meth:`ThreadedDisk.write_file`; a crash may leave one behind.
TEMPORARY_SUFFIX: Final = ".tmp"


class ThreadedFile:
    """An open file of :class:`ThreadedDisk`."""

    __slots__ = ("closing", "fd", "lane", "path", "reads_in_flight")

    def __init__(self, path: str, lane: str, fd: int) -> None:
        #: The path it was opened with.
        self.path = path
        #: The lane of its appends.
        self.lane = lane
        #: -1 once closed.
        self.fd = fd
        #: Reads submitted and not completed: they use ``fd`` on other lanes, so closing waits for them.
        self.reads_in_flight = 0
        #: Set while :meth:`ThreadedDisk.close_file` waits for those reads.
        self.closing: asyncio.Future[None] | None = None


class ThreadedDisk:
    """See the module's docstring; the contract is that of ``ports.Disk``."""

    __slots__ = ("_direct_writes", "_files", "_kernel", "_lanes", "_locks", "_monotonic", "_uses_kernel")

    def __init__(self, *, syncs_by_kernel: bool = True, monotonic: Callable[[], float] = time.monotonic) -> None:
        """``syncs_by_kernel``: where it can; False: all syncs are made by lanes. ``monotonic`` times writes."""
        self._monotonic = monotonic
        self._lanes = Lanes("geminga-disk")
        self._uses_kernel = syncs_by_kernel
        #: Opened by the first append that may use it.
        self._kernel: KernelSyncs | None = None
        self._direct_writes = DirectWrites()
        self._files: dict[ThreadedFile, None] = {}
        self._locks: dict[str, int] = {}

    def append(self, file: DiskFile, offset: int, buffers: Sequence[Buffer], *, sync: bool, done: AppendDone) -> None:
        """Write ``buffers`` back to back from ``offset``, then fdatasync if ``sync``."""
        assert isinstance(file, ThreadedFile)
        if sync and self._uses_kernel and file.fd >= 0 and self._append_directly(file, offset, buffers, done):
            return
        self._lanes.submit(
            file.lane, _append, (file, offset, buffers, sync), lambda _, error: done(_as_os_error(error, file.path))
        )

    def _append_directly(self, file: ThreadedFile, offset: int, buffers: Sequence[Buffer], done: AppendDone) -> bool:
        """Write on the loop, sync by the kernel; False if this one must hop."""
        started = self._monotonic()
        if not self._direct_writes.allows(started) or sum(map(len, buffers)) > DIRECT_BYTES_MAX:
            return False
        kernel = self._kernel
        if kernel is None:
            kernel = self._kernel = KernelSyncs.open(asyncio.get_running_loop())
            if kernel is None:
                self._uses_kernel = False
                return False
        lane = file.lane
        if not self._lanes.take(lane):
            return False
        finished = partial(self._finish_directly, file, done)
        try:
            _append(file, offset, buffers, False)
        except Exception as error:  # whatever it is goes to who waits, as from a lane
            asyncio.get_running_loop().call_soon(finished, error)
            return True
        self._direct_writes.took(started, self._monotonic())
        if not kernel.submit(file.fd, finished):
            self._uses_kernel = not kernel.is_refused
            self._lanes.give_back(lane)
            self._lanes.submit(lane, _sync, (file,), lambda _, error: done(_as_os_error(error, file.path)))
        return True

    def _finish_directly(self, file: ThreadedFile, done: AppendDone, error: BaseException | None) -> None:
        self._lanes.give_back(file.lane)
        done(_as_os_error(error, file.path))

    def read(self, requests: Sequence[ReadRequest], *, lane: str, done: ReadDone) -> None:
        """Carry out all reads on ``lane`` in one hop."""
        for request in requests:
            file = request.file
            assert isinstance(file, ThreadedFile)
            file.reads_in_flight += 1

        def finished(results: list[bytes | OSError], error: BaseException | None) -> None:
            for request in requests:
                file = request.file
                assert isinstance(file, ThreadedFile)
                file.reads_in_flight -= 1
                if file.closing is not None and not file.reads_in_flight and not file.closing.done():
                    file.closing.set_result(None)
            done(results if error is None else [_as_os_error(error, request.file.path) for request in requests])

        self._lanes.submit(lane, _read, (requests,), finished)

    async def open_file(
        self, path: str, *, lane: str, create: bool = False, preallocate_bytes: int = 0, is_written: bool = True
    ) -> ThreadedFile:
        """Open for reading and writing; ``create``: FileExistsError if it is there."""
        # Not on the file's own lane: preallocating the next journal file must not hold up the present one.
        file: ThreadedFile = await self._on_path(_open, path, lane, create, preallocate_bytes, is_written)
        self._files[file] = None
        return file

    async def close_file(self, file: DiskFile) -> None:
        """Close after everything submitted before; a second close does nothing."""
        assert isinstance(file, ThreadedFile)
        if file not in self._files:
            return
        del self._files[file]
        if file.reads_in_flight:
            file.closing = asyncio.get_running_loop().create_future()
            await file.closing
        await self._on_file(_close, file)

    async def sync_file(self, file: DiskFile) -> None:
        """fdatasync."""
        assert isinstance(file, ThreadedFile)
        await self._on_file(_sync, file)

    async def truncate(self, file: DiskFile, size_bytes: int) -> None:
        """Cut or extend to ``size_bytes``."""
        assert isinstance(file, ThreadedFile)
        await self._on_file(_truncate, file, size_bytes)

    async def _on_path(self, function: Callable[..., T], path: str, *args: object) -> T:
        """``function`` of a path on the lane of paths; its OSError names the path."""
        with naming(path):
            result: T = await self._lanes.call(PATHS_LANE, function, path, *args)
            return result

    async def _on_file(self, function: Callable[..., T], file: ThreadedFile, *args: object) -> T:
        """``function`` of a file on its lane; its OSError names the file."""
        with naming(file.path):
            result: T = await self._lanes.call(file.lane, function, file, *args)
            return result

    async def file_size(self, path: str) -> int:
        """Bytes; raises FileNotFoundError."""
        status: os.stat_result = await self._on_path(os.stat, path)
        return status.st_size

    async def read_file(self, path: str) -> bytes:
        """The whole of a small file."""
        data: bytes = await self._on_path(_read_whole, path)
        return data

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace ``path`` atomically and durably."""
        await self._on_path(_write_whole, path, data)

    async def make_dirs(self, path: str) -> None:
        """Create the directory and its parents, durably."""
        await self._on_path(_make_dirs, path)

    async def list_dir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        names: list[str] = await self._on_path(_listed, path)
        return sorted(names)

    async def sync_dir(self, path: str) -> None:
        """fsync the directory."""
        await self._on_path(_sync_dir, path)

    async def rename(self, source: str, target: str) -> None:
        """Atomic replace."""
        await self._on_path(os.replace, source, target)

    async def unlink(self, path: str) -> None:
        """Remove a file."""
        await self._on_path(os.unlink, path)

    async def free_bytes(self, path: str) -> int:
        """Bytes available to this process (``f_bavail``: without the reserve for root)."""
        status: os.statvfs_result = await self._on_path(os.statvfs, path)
        return status.f_bavail * status.f_frsize

    async def total_bytes(self, path: str) -> int:
        """Size of the file system of ``path``."""
        status: os.statvfs_result = await self._on_path(os.statvfs, path)
        return status.f_blocks * status.f_frsize

    async def lock_dir(self, path: str) -> None:
        """Hold ``path`` by ``flock`` of the directory itself: no lock file that a crash could leave behind."""
        if path not in self._locks:
            self._locks[path] = await self._on_path(_lock, path)

    async def close(self) -> None:
        """Finish what was submitted, close every file and lock, end the lanes."""
        for file in list(self._files):
            await self.close_file(file)
        await self._lanes.close()
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        locks, self._locks = self._locks, {}
        for fd in locks.values():
            os.close(fd)


@overload
def _as_os_error(error: None, path: str) -> None: ...
@overload
def _as_os_error(error: BaseException, path: str) -> OSError: ...
@overload
def _as_os_error(error: BaseException | None, path: str) -> OSError | None: ...
def _as_os_error(error: BaseException | None, path: str) -> OSError | None:
    """``error`` of a file as an OSError that names it."""
    if error is None:
        return None
    if isinstance(error, OSError):
        return named(error, path)
    wrapped = OSError(errno.EIO, f"disk operation failed: {error!r}", path)
    wrapped.__cause__ = error
    return wrapped


def _with_descriptor(function: Callable[..., T], *args: object) -> T:
    """``function``, which opens one file; again after a while where there was no descriptor for it."""
    deadline_s = time.monotonic() + DESCRIPTOR_WAIT_S
    while True:
        try:
            return function(*args)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or time.monotonic() >= deadline_s:
                raise
        time.sleep(DESCRIPTOR_RETRY_S)


def _listed(path: str) -> list[str]:
    return _with_descriptor(os.listdir, path)


def _open_descriptor(path: str, flags: int, mode: int = 0o777) -> int:
    # A file that is to be created is not, if there is no descriptor for it: the kernel takes that first.
    return _with_descriptor(os.open, path, flags, mode)


def _open(path: str, lane: str, create: bool, preallocate_bytes: int, is_written: bool) -> ThreadedFile:
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
    fd = _open_descriptor(path, flags, FILE_MODE)
    try:
        if preallocate_bytes > os.fstat(fd).st_size:
            _preallocate(fd, preallocate_bytes, is_written)
    except OSError:
        os.close(fd)
        if create:
            os.unlink(path)
        raise
    return ThreadedFile(path, lane, fd)


def _preallocate(fd: int, size_bytes: int, is_written: bool) -> None:
    start = os.fstat(fd).st_size
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size_bytes)
    else:
        os.ftruncate(fd, size_bytes)
    if not is_written:
        return
    # Allocated is not enough: the first write to each unwritten extent makes fdatasync commit metadata too.
    # Measured on ext4: 120 to 180 us after zeros, 170 to 250 us after fallocate alone; 64 MiB of zeros cost 30 ms.
    zeros = bytes(min(ZERO_CHUNK_BYTES, size_bytes - start))
    for offset in range(start, size_bytes, ZERO_CHUNK_BYTES):
        _write(fd, offset, memoryview(zeros)[: size_bytes - offset])
    _data_sync(fd)


def _check_open(file: ThreadedFile) -> int:
    if file.fd < 0:
        raise OSError(errno.EBADF, "the file is closed", file.path)
    return file.fd


def _append(file: ThreadedFile, offset: int, buffers: Sequence[Buffer], sync: bool) -> None:
    fd = _check_open(file)
    if len(buffers) == 1:
        _write(fd, offset, buffers[0])
    elif sum(map(len, buffers)) <= JOIN_BYTES_MAX:
        _write(fd, offset, b"".join(buffers))
    else:
        for start in range(0, len(buffers), IOV_MAX):
            offset = _write_vector(fd, offset, buffers[start : start + IOV_MAX])
    if sync:
        _data_sync(fd)


def _write(fd: int, offset: int, data: Buffer) -> None:
    written = os.pwrite(fd, data, offset)
    if written < len(data):
        _write_rest(fd, offset + written, memoryview(data)[written:])


def _write_rest(fd: int, offset: int, rest: memoryview) -> None:
    # Short writes happen at 2 GiB, at a full disk and at a file size limit; the next call tells which.
    while rest:
        written = os.pwrite(fd, rest, offset)
        if written == 0:
            raise OSError(errno.EIO, "pwrite wrote nothing")
        offset += written
        rest = rest[written:]


def _write_vector(fd: int, offset: int, buffers: Sequence[Buffer]) -> int:
    written = os.pwritev(fd, buffers, offset)
    for buffer in buffers:
        size = len(buffer)
        if written < size:
            _write_rest(fd, offset + max(written, 0), memoryview(buffer)[max(written, 0) :])
        written -= size
        offset += size
    return offset


def _read(requests: Sequence[ReadRequest]) -> list[bytes | OSError]:
    results: list[bytes | OSError] = []
    for file, offset, size_bytes in requests:
        assert isinstance(file, ThreadedFile)
        try:
            fd = _check_open(file)
            data = os.pread(fd, size_bytes, offset)
            while len(data) < size_bytes:
                more = os.pread(fd, size_bytes - len(data), offset + len(data))
                if not more:
                    break
                data += more
            results.append(data)
        except OSError as error:
            results.append(named(error, file.path))
    return results


def _data_sync(fd: int) -> None:
    if sys.platform == "darwin":  # its fsync does not reach the platter, F_FULLFSYNC does
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _sync(file: ThreadedFile) -> None:
    _data_sync(_check_open(file))


def _close(file: ThreadedFile) -> None:
    fd, file.fd = file.fd, -1
    if fd >= 0:
        os.close(fd)


def _truncate(file: ThreadedFile, size_bytes: int) -> None:
    os.ftruncate(_check_open(file), size_bytes)


def _read_whole(path: str) -> bytes:
    with open(path, "rb", opener=_open_descriptor) as stream:
        return stream.read()


def _write_whole(path: str, data: bytes) -> None:
    temporary = path + TEMPORARY_SUFFIX
    # Opened before anything is replaced: afterwards no descriptor would be no state to go on from.
    directory = _open_directory(os.path.dirname(path) or ".")
    try:
        fd = _open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            _write_rest(fd, 0, memoryview(data))
            os.fsync(fd)
        except OSError:
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        os.replace(temporary, path)
        try:
            os.fsync(directory)
        except OSError as error:
            # The new bytes are in place and may or may not stay: for want of space too, that is no state to go on from.
            raise OSError(errno.EIO, f"replaced, but not known to be durable: {error}", path) from error
    finally:
        os.close(directory)


def _open_directory(path: str) -> int:
    return _open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync_dir(path: str) -> None:
    fd = _open_directory(path)
    try:
        with naming(path):
            os.fsync(fd)
    finally:
        os.close(fd)


def _make_dirs(path: str) -> None:
    missing = []
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    try:
        # It may be there because an attempt before got no further than this.
        _sync_dir(os.path.dirname(path))
    except PermissionError:
        pass  # a parent that we may not read was not made by us
    for directory in reversed(missing):
        try:
            os.mkdir(directory, DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise
        _sync_dir(os.path.dirname(directory))


def _lock(path: str) -> int:
    fd = _open_directory(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
