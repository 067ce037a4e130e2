"""A file without a name for what does not fit into memory and is worth nothing after a crash."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Final

from geminga.model.errors import StorageError

#: Bytes of a run that are gathered before they are written.
BLOCK_BYTES: Final = 16 * 1024


class ScratchRuns:
    """Runs of bytes that grow at their ends, in one file that is gone when it is closed, or the process ends.

    Writes and reads are the operating system's, within the call: blocks that go to its page cache.
    """

    __slots__ = ("_blocks", "_file", "_size_bytes", "_tails")

    def __init__(self, runs: int, directory: str | None = None) -> None:
        """``directory``: where the file is; None: the system's for temporary files. Raises StorageError."""
        try:
            self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise StorageError(
                f"no temporary file can be made in {directory or tempfile.gettempdir()}: {error}"
            ) from error
        self._size_bytes = 0
        #: Of each run: offset and bytes of what was written.
        self._blocks: list[list[tuple[int, int]]] = [[] for _ in range(runs)]
        self._tails = [bytearray() for _ in range(runs)]

    def write(self, run: int, record: bytes) -> None:
        """Behind all that was written to this run. Raises StorageError."""
        tail = self._tails[run]
        tail += record
        if len(tail) >= BLOCK_BYTES:
            self._flush(run)

    def read(self, run: int) -> Iterator[bytes]:
        """All that was written to it, in blocks of whole records. Raises StorageError."""
        for offset, size in self._blocks[run]:
            try:
                self._file.seek(offset)
                found = self._file.read(size)
            except OSError as error:
                raise StorageError(f"a temporary file can not be read: {error}") from error
            if len(found) != size:
                raise StorageError("a temporary file is shorter than what was written to it")
            yield found
        yield bytes(self._tails[run])

    def close(self) -> None:
        """It is gone."""
        self._file.close()
        self._tails.clear()

    def _flush(self, run: int) -> None:
        tail = self._tails[run]
        try:
            self._file.seek(self._size_bytes)
            written = self._file.write(tail)
        except OSError as error:
            raise StorageError(f"a temporary file can not be written: {error}") from error
        if written != len(tail):
            raise StorageError(f"a temporary file took {written} of {len(tail)} bytes: is its file system full?")
        self._blocks[run].append((self._size_bytes, len(tail)))
        self._size_bytes += len(tail)
        self._tails[run] = bytearray()
