"""What an SQLite file of metadata held at one moment, copied while it changes: a read transaction of its own.

As long as the transaction is open the file's log grows. So the moment is copied to a file beside it first, on the disk
that the store is on, and let go of; a target that hangs is written from there, for as long as it likes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final

from geminga.metadata.ports import PutResult
from geminga.model.errors import MetadataError
from geminga.runtime import spawn
from geminga.runtime.local_file import copy_private, create_private, free_bytes, open_to_read, remove_file
from geminga.runtime.threads import LaneThreads

_LANE: Final = "metadata-copy"
#: Pages copied in one step.
_PAGES: Final = 256
#: Bytes that stay free beside such a copy; else none is made.
ROOM_BYTES_MIN: Final = 64 << 20


class SqliteSnapshot:
    """Made by ``SqliteFile.snapshot``; closed by :meth:`close`."""

    __slots__ = ("_connection", "_is_copying", "_path", "_place", "_spool", "_threads", "opened")

    def __init__(self, path: str, place: str) -> None:
        """``place``: where the copy is made, on the same disk; its name goes before its bytes are read."""
        # Of its own: a target that hangs keeps nobody else, and no stop, waiting.
        self._threads = LaneThreads()
        #: A copy was begun, and has not come to its end, whoever waits for it.
        self._is_copying = False
        self._path = path
        self._place = place
        self._connection: sqlite3.Connection | None = None
        #: The copy of the moment, without a name.
        self._spool: BinaryIO | None = None
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

    async def take(self) -> None:
        """Copy the moment to a file beside the store's, and let the log be cut back again. Raises MetadataError.

        One at a time of a store.
        """
        await self.opened
        connection, self._connection = self._connection, None
        assert connection is not None
        try:
            self._spool = await self._threads.call(_LANE, partial(_spooled, connection, self._place))
        except (sqlite3.Error, OSError) as error:
            raise MetadataError(f"{self._path} can not be copied to {self._place}: {error}") from error

    async def write_to(self, target: str) -> None:
        """Make ``target`` of what was taken, a file of its own without a log; not yet durable. Raises OSError."""
        spool = self._spool
        assert spool is not None

        def copied() -> None:
            self._is_copying = False

        self._is_copying = True
        await self._threads.call(_LANE, partial(_copy, spool, target, copied))

    async def close(self) -> None:
        """Let go of all of it; where a copy was given up that hangs: once it does no more, not waited for."""
        await asyncio.wait([self.opened])
        connection, self._connection = self._connection, None
        spool, self._spool = self._spool, None
        ending = spawn(self._end(connection, spool), name="end of a snapshot")
        if not self._is_copying:
            await ending

    async def _end(self, connection: sqlite3.Connection | None, spool: BinaryIO | None) -> None:
        for one in (connection, spool):
            if one is not None:
                await self._threads.call(_LANE, one.close)
        await self._threads.close()


def _spooled(connection: sqlite3.Connection, place: str) -> BinaryIO:
    try:
        remove_file(place)  # of one that was killed
        create_private(place)
        pages, page_bytes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        size, free = pages * page_bytes, free_bytes(place)
        if free < size + ROOM_BYTES_MIN:
            raise OSError(f"it takes {size} bytes and leaves {ROOM_BYTES_MIN} at least, and {free} are free: make room")
        copy = sqlite3.connect(place, isolation_level=None)
        try:
            copy.execute("PRAGMA synchronous = OFF")  # what a crash leaves of it is good for nothing
            connection.backup(copy, pages=_PAGES)
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
        return open_to_read(place)
    finally:
        remove_file(place)
        connection.close()


def _copy(spool: BinaryIO, target: str, done: Callable[[], None]) -> None:
    try:
        copy_private(spool, target)
    finally:
        done()
