"""The ``Disk`` port in memory: for ``Standalone`` without a directory and for quick unit tests.

Nothing survives the object; nothing fails except what the caller does wrong (missing files, closed files).
Completions come through ``loop.call_soon``, never within the call. Paths are plain strings with ``/``.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections.abc import Sequence

from geminga.runtime.ports import AppendDone, Buffer, DiskFile, ReadDone, ReadRequest

#: What ``total_bytes`` says: as much as the bookie's thresholds need to never see a full disk.
TOTAL_BYTES = 1 << 40


class MemoryFile:
    """An open file: its bytes are shared with every other opening of the same path, also after an unlink."""

    __slots__ = ("content", "is_open", "path")

    def __init__(self, path: str, content: bytearray) -> None:
        #: The path it was opened with.
        self.path = path
        #: The file's bytes.
        self.content = content
        self.is_open = True


class MemoryDisk:
    """See the module's docstring; the contract is that of ``ports.Disk``."""

    __slots__ = ("_dirs", "_files", "_locks")

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._dirs: set[str] = {"/", "."}
        self._locks: set[str] = set()

    def append(self, file: DiskFile, offset: int, buffers: Sequence[Buffer], *, sync: bool, done: AppendDone) -> None:
        """Write ``buffers`` back to back from ``offset``."""
        assert isinstance(file, MemoryFile)
        error: OSError | None = None
        if file.is_open:
            write_at(file.content, offset, buffers)
        else:
            error = OSError(errno.EBADF, "the file is closed", file.path)
        asyncio.get_running_loop().call_soon(done, error)

    def read(self, requests: Sequence[ReadRequest], *, lane: str, done: ReadDone) -> None:
        """Carry out all reads."""
        results: list[bytes | OSError] = []
        for file, offset, size_bytes in requests:
            assert isinstance(file, MemoryFile)
            if file.is_open:
                results.append(bytes(memoryview(file.content)[offset : offset + size_bytes]))
            else:
                results.append(OSError(errno.EBADF, "the file is closed", file.path))
        asyncio.get_running_loop().call_soon(done, results)

    async def open_file(
        self, path: str, *, lane: str, create: bool = False, preallocate_bytes: int = 0, is_written: bool = True
    ) -> MemoryFile:
        """Open for reading and writing; ``create``: FileExistsError if it is there."""
        path = posixpath.normpath(path)
        if create:
            self._check_parent(path)
            if path in self._files or path in self._dirs:
                raise FileExistsError(errno.EEXIST, "the file exists", path)
            self._files[path] = bytearray()
        content = self._content(path)
        if preallocate_bytes > len(content):
            content.extend(bytes(preallocate_bytes - len(content)))
        return MemoryFile(path, content)

    async def close_file(self, file: DiskFile) -> None:
        """Close after everything submitted before; a second close does nothing."""
        assert isinstance(file, MemoryFile)
        await _completions_delivered()
        file.is_open = False

    async def sync_file(self, file: DiskFile) -> None:
        """Nothing to do. Raises OSError."""
        assert isinstance(file, MemoryFile)
        if not file.is_open:
            raise OSError(errno.EBADF, "the file is closed", file.path)

    async def truncate(self, file: DiskFile, size_bytes: int) -> None:
        """Cut or extend to ``size_bytes``. Raises OSError."""
        assert isinstance(file, MemoryFile)
        if not file.is_open:
            raise OSError(errno.EBADF, "the file is closed", file.path)
        resize(file.content, size_bytes)

    async def file_size(self, path: str) -> int:
        """Bytes; raises FileNotFoundError."""
        return len(self._content(posixpath.normpath(path)))

    async def read_file(self, path: str) -> bytes:
        """The whole of a file."""
        return bytes(self._content(posixpath.normpath(path)))

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace ``path`` atomically: readers that have it open keep the old bytes."""
        path = posixpath.normpath(path)
        self._check_parent(path)
        self._files[path] = bytearray(data)

    async def make_dirs(self, path: str) -> None:
        """Create the directory and its parents. Raises FileExistsError."""
        path = posixpath.normpath(path)
        while path not in self._dirs:
            if path in self._files:
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            self._dirs.add(path)
            path = posixpath.dirname(path) or "."

    async def list_dir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        path = posixpath.normpath(path)
        self._check_dir(path)
        names = [*self._files, *self._dirs]
        return sorted(posixpath.basename(name) for name in names if name != path and _parent(name) == path)

    async def sync_dir(self, path: str) -> None:
        """Nothing to do; raises FileNotFoundError."""
        self._check_dir(posixpath.normpath(path))

    async def rename(self, source: str, target: str) -> None:
        """Atomic replace."""
        source, target = posixpath.normpath(source), posixpath.normpath(target)
        self._check_parent(target)
        content = self._content(source)
        del self._files[source]
        self._files[target] = content

    async def unlink(self, path: str) -> None:
        """Remove a file; those who have it open go on reading it."""
        path = posixpath.normpath(path)
        self._content(path)
        del self._files[path]

    async def free_bytes(self, path: str) -> int:
        """What is left of :data:`TOTAL_BYTES`."""
        self._check_dir(posixpath.normpath(path))
        return TOTAL_BYTES - sum(map(len, self._files.values()))

    async def total_bytes(self, path: str) -> int:
        """:data:`TOTAL_BYTES`."""
        self._check_dir(posixpath.normpath(path))
        return TOTAL_BYTES

    async def lock_dir(self, path: str) -> None:
        """Nobody else can reach this disk: only remembered."""
        path = posixpath.normpath(path)
        self._check_dir(path)
        self._locks.add(path)

    async def close(self) -> None:
        """Deliver what was submitted, release the locks; the files stay for the life of the object."""
        await _completions_delivered()
        self._locks.clear()

    def _content(self, path: str) -> bytearray:
        content = self._files.get(path)
        if content is None:
            if path in self._dirs:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return content

    def _check_dir(self, path: str) -> None:
        if path not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    def _check_parent(self, path: str) -> None:
        self._check_dir(_parent(path))


async def _completions_delivered() -> None:
    delivered = asyncio.Event()
    asyncio.get_running_loop().call_soon(delivered.set)  # behind all completions so far
    await delivered.wait()


def _parent(path: str) -> str:
    return posixpath.dirname(path) or "."


def resize(content: bytearray, size_bytes: int) -> None:
    """Cut ``content`` or fill it up with zeros."""
    if size_bytes < len(content):
        del content[size_bytes:]
    else:
        content.extend(bytes(size_bytes - len(content)))


def write_at(content: bytearray, offset: int, buffers: Sequence[Buffer]) -> None:
    """Write ``buffers`` back to back into ``content`` from ``offset``; a gap before it reads as zeros."""
    if offset > len(content) and any(buffers):
        content.extend(bytes(offset - len(content)))
    if offset == len(content):
        for buffer in buffers:
            content += buffer
        return
    data = b"".join(buffers)
    content[offset : offset + len(data)] = data
