"""What an SQLite file of metadata held at one moment, copied while it changes: a read transaction of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Final

from geminga.metadata.ports import PutResult
from geminga.model.errors import MetadataError
from geminga.runtime import spawn
from geminga.runtime.local_file import create_private
from geminga.runtime.threads import LaneThreads

_LANE: Final = "metadata-copy"
#: Pages copied in one step.
_PAGES: Final = 256


class SqliteSnapshot:
    """Made by ``SqliteFile.snapshot``; closed by :meth:`close`. The file's log grows until then."""

    __slots__ = ("_connection", "_is_copying", "_path", "_threads", "opened")

    def __init__(self, path: str) -> None:
        # Of its own: a target that hangs keeps nobody else, and no stop, waiting.
        self._threads = LaneThreads()
        #: A copy was begun, and has not come to its end, whoever waits for it.
        self._is_copying = False
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

        def copied() -> None:
            self._is_copying = False

        self._is_copying = True
        try:
            await self._threads.call(_LANE, partial(_copy, connection, target, copied))
        except sqlite3.Error as error:
            raise MetadataError(f"{self._path} can not be copied to {target}: {error}") from error

    async def close(self) -> None:
        """Let the log be cut back again; where a copy was given up that hangs: once it does no more, not waited for."""
        await asyncio.wait([self.opened])
        connection, self._connection = self._connection, None
        if connection is None:
            return
        ending = spawn(self._end(connection), name="end of a snapshot")
        if not self._is_copying:
            await ending

    async def _end(self, connection: sqlite3.Connection) -> None:
        await self._threads.call(_LANE, connection.close)
        await self._threads.close()


def _copy(connection: sqlite3.Connection, target: str, done: Callable[[], None]) -> None:
    try:
        create_private(target)
        copy = sqlite3.connect(target, isolation_level=None)
        try:
            connection.backup(copy, pages=_PAGES)
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
    finally:
        done()
