"""Lake files in a directory: written beside, synced, renamed. All calls block.

The directory is the operator's, and says who may read what is in it: files and folders get its mode (a stricter umask
holds). Errors name their file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import IO, Final

from geminga.lake.core.names import TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from geminga.lake.store import ArrowFile, StoredFile
from geminga.runtime.local_file import DIRECTORY_MODE, FILE_MODE, naming

_BUFFER_BYTES: Final = 1024 * 1024


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
            with naming(whole), open(temporary, "wb", buffering=_BUFFER_BYTES, opener=self._opened) as output:
                yield output
                output.flush()
                os.fsync(output.fileno())
            os.rename(temporary, whole)
            _sync_directory(os.path.dirname(whole))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _opened(self, path: str, flags: int) -> int:
        return os.open(path, flags, FILE_MODE | os.stat(self._directory).st_mode & 0o666)

    def _temporary_beside(self, whole: str) -> tuple[int, str]:
        """A new file in the directory of ``whole``, of which nobody else has the name; its descriptor."""
        for number in count():
            temporary = _temporary(f"{whole}.{os.getpid()}.{number}")
            with suppress(FileExistsError):
                return self._opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC), temporary
        raise AssertionError("there is always another number")

    def _make_directory(self, directory: str) -> None:
        if os.path.isdir(directory):
            return
        parent = os.path.dirname(directory)
        self._make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(directory, DIRECTORY_MODE | os.stat(self._directory).st_mode & 0o777)
        _sync_directory(parent)

    def read(self, path: str) -> ArrowFile:
        """See ``LakeStore``."""
        import pyarrow as pa

        try:
            # Whatever else keeps it from being read, as a permission or a broken disk, is not taken for "not there".
            os.stat(self._path(path))
        except FileNotFoundError:
            self._check()
            raise
        return pa.OSFile(self._path(path))

    def read_bytes(self, path: str) -> bytes:
        """See ``LakeStore``."""
        whole = self._path(path)
        with naming(whole), open(whole, "rb") as source:
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
        descriptor, temporary = self._temporary_beside(whole)
        try:
            with naming(whole), open(descriptor, "wb") as output:
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

    def directories(self, directory: str) -> Sequence[str]:
        """See ``LakeStore``."""
        self._check()
        with suppress(FileNotFoundError), os.scandir(self._path(directory)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
        return []

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
        with naming(directory):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
