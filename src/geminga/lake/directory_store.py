"""Lake files in a directory: written beside, synced, renamed. All calls block."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import mkstemp
from typing import IO, Final

from geminga.lake.core.names import TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from geminga.lake.store import ArrowFile, StoredFile

_BUFFER_BYTES: Final = 1024 * 1024
#: Of small files that are made by way of a temporary one, which nobody else may read.
_READABLE: Final = 0o644


class DirectoryStore:
    """Below one directory, which must be there: a mount that is missing is an error, not an empty lake."""

    __slots__ = ("_directory", "root")

    def __init__(self, directory: str) -> None:
        """``directory``: absolute."""
        self._directory = directory.rstrip("/") or "/"
        self.root = f"file://{self._directory}"

    def _path(self, path: str) -> str:
        return os.path.join(self._directory, path)

    def _check(self) -> None:
        if not os.path.isdir(self._directory):
            raise NotADirectoryError(
                errno.ENOTDIR, "the lake's directory is not there (is it mounted?)", self._directory
            )

    @contextmanager
    def write(self, path: str) -> Iterator[IO[bytes]]:
        """See ``LakeStore``."""
        self._check()
        whole = self._path(path)
        temporary = _temporary(whole)
        self._make_directory(os.path.dirname(whole))
        try:
            with open(temporary, "wb", buffering=_BUFFER_BYTES) as output:
                yield output
                output.flush()
                os.fsync(output.fileno())
            os.rename(temporary, whole)
            _sync_directory(os.path.dirname(whole))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _make_directory(self, directory: str) -> None:
        if os.path.isdir(directory):
            return
        parent = os.path.dirname(directory)
        self._make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(directory)
        _sync_directory(parent)

    def read(self, path: str) -> ArrowFile:
        """See ``LakeStore``."""
        import pyarrow as pa

        if not os.path.isfile(self._path(path)):
            self._check()
            raise FileNotFoundError(errno.ENOENT, "no such file", self._path(path))
        return pa.OSFile(self._path(path))

    def read_bytes(self, path: str) -> bytes:
        """See ``LakeStore``."""
        with open(self._path(path), "rb") as source:
            return source.read()

    def write_bytes(self, path: str, data: bytes) -> None:
        """See ``LakeStore``."""
        with self.write(path) as output:
            output.write(data)

    def write_new(self, path: str, data: bytes) -> bool:
        """See ``LakeStore``."""
        self._check()
        whole = self._path(path)
        self._make_directory(os.path.dirname(whole))
        descriptor, temporary = mkstemp(TEMPORARY_SUFFIX, TEMPORARY_PREFIX, os.path.dirname(whole))
        try:
            with open(descriptor, "wb") as output:
                os.fchmod(descriptor, _READABLE)
                output.write(data)
                output.flush()
                os.fsync(descriptor)
            # A link, unlike a rename, does not replace what is there.
            os.link(temporary, whole)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
            _sync_directory(os.path.dirname(whole))
        return True

    def delete(self, path: str) -> None:
        """See ``LakeStore``."""
        self._check()
        whole = self._path(path)
        for each in (_temporary(whole), whole):
            with suppress(FileNotFoundError):
                os.unlink(each)
        if os.path.isdir(os.path.dirname(whole)):
            _sync_directory(os.path.dirname(whole))

    def list(self, directory: str) -> list[StoredFile]:
        """See ``LakeStore``."""
        self._check()
        found: list[StoredFile] = []
        with suppress(FileNotFoundError), os.scandir(self._path(directory)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file():
                        found.append(StoredFile(entry.name, entry.stat().st_size))
        return sorted(found)

    def size_bytes(self, path: str) -> int:
        """See ``LakeStore``."""
        return os.stat(self._path(path)).st_size

    def remove_directory(self, directory: str) -> None:
        """Remove a directory if it is empty; fine if it is not."""
        with suppress(OSError):
            os.rmdir(self._path(directory))


def _temporary(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, f"{TEMPORARY_PREFIX}{name}{TEMPORARY_SUFFIX}")


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
