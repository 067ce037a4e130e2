"""Where lake files are kept: what a directory and a bucket are asked for. All calls block: they are made on threads.

Paths are relative to the root. Errors are OSError; FileNotFoundError where that is certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, NamedTuple, Protocol

#: An open file of ``pyarrow``, which has no types of its own.
ArrowFile = Any


class StoredFile(NamedTuple):
    """A file of a directory."""

    name: str
    size_bytes: int


class LakeStore(Protocol):
    """A root."""

    @property
    def root(self) -> str:
        """``file:///path`` or ``s3://bucket/prefix``."""

    def write(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file: there as a whole and durable once the context was left without an error, otherwise not at all.

        After a crash a part of it may be there under a name that :func:`.core.names.parse_ledger_file` knows too.
        """

    def read(self, path: str) -> ArrowFile:
        """An open file for ``pyarrow``, to be closed by the caller."""

    def read_bytes(self, path: str) -> bytes:
        """The whole of a small file."""

    def write_bytes(self, path: str, data: bytes) -> None:
        """A small file, as :meth:`write`."""

    def write_new(self, path: str, data: bytes) -> bool | None:
        """A small file, whole, unless there is one: False then. None: nothing was done, the store can not tell."""

    def delete(self, path: str) -> None:
        """Delete a file and what may be left of a part of it; fine if there is none."""

    def list(self, directory: str) -> list[StoredFile]:
        """The files in a directory, by name, directories left out; none if there is no such directory."""

    def directories(self, directory: str) -> Sequence[str]:
        """Names of the directories in a directory, sorted; none if there is no such directory."""

    def size_bytes(self, path: str) -> int:
        """Of a file."""

    def remove_directory(self, directory: str) -> None:
        """Remove a directory if it is empty; fine if it is not."""
