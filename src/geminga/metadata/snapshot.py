"""What an SQLite file of metadata held at one moment, copied while it changes: a read transaction of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Final

from geminga.metadata.ports import PutResult
from geminga.model.errors import MetadataError
from geminga.runtime.local_file import create_private
from geminga.runtime.ports import Threads

_LANE: Final = "metadata-copy"
#: Pages copied in one step.
_PAGES: Final = 256


class SqliteSnapshot:
    """Made by ``SqliteFile.snapshot``; closed by :meth:`close`. The file's log grows until then."""

    __slots__ = ("_connection", "_path", "_threads", "opened")

    def __init__(self, threads: Threads, path: str) -> None:
        self._threads = threads
        self._path = path
        self._connection: sqlite3.Connection | None = None
        #: When the moment has come.
        self.opened: asyncio.Future[PutResult | None]

    def open(self) -> None:
        """On the thread that commits, between two transactions. Raises sqlite3.Error."""
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM property").fetchone()
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection

    async def write_to(self, target: str) -> None:
        """Make ``target``, a file of its own without a log; not yet durable. Raises StorageError, OSError."""
        await self.opened
        connection = self._connection
        assert connection is not None
        try:
            await self._threads.call(_LANE, lambda: _copy(connection, target))
        except sqlite3.Error as error:
            raise MetadataError(f"{self._path} can not be copied to {target}: {error}") from error

    async def close(self) -> None:
        """Let the log be cut back again."""
        await asyncio.wait([self.opened])
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._threads.call(_LANE, connection.close)


def _copy(connection: sqlite3.Connection, target: str) -> None:
    create_private(target)
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        connection.backup(copy, pages=_PAGES)
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()
