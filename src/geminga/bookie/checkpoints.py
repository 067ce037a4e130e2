"""``Checkpoints``: when a bookie's write cache is flushed, and what follows.

A flush turns the halves of the cache, writes the full one, and leaves behind the journals that are not needed any more;
one is under way at most. What a failed flush could not write stays in the cache, and in the journal, for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.bookie.disk_io import is_disk_full
from geminga.bookie.disk_room import DiskRoom
from geminga.bookie.journal import Journal
from geminga.bookie.ledger_storage import LedgerStorage
from geminga.model.errors import DiskFullError, DiskIOError, StorageError
from geminga.runtime import again, get_logger, spawn

_log = get_logger(__name__)


class Checkpoints:
    """See the module."""

    __slots__ = ("_cache", "_failed", "_flushed", "_journal", "_room", "_storage", "_task")

    def __init__(self, storage: LedgerStorage, journal: Journal, room: DiskRoom, flushed: Callable[[], None]) -> None:
        """``flushed``: a half of the cache is free again."""
        self._storage = storage
        self._cache = storage.cache
        self._journal = journal
        self._room = room
        self._flushed = flushed
        self._task: asyncio.Task[None] | None = None
        #: Of the last flush.
        self._failed: StorageError | None = None

    async def flush_replayed(self) -> None:
        """The first one, behind a replay; on a full disk it is made good like any other. Raises OSError."""
        storage, journal = self._storage, self._journal
        try:
            if self._cache.flushing is not None:
                await storage.flush()
            self._turn()
            await storage.flush()
        except OSError as error:
            if not is_disk_full(error):
                raise error
            self._room.became_full(DiskFullError(f"no space to flush to {storage.directory}: {error}"))
            return
        await journal.delete_before(journal.journal_id)

    def start(self) -> None:
        """Turn the halves and flush the full one; the caller made sure that none is being flushed."""
        self._turn()
        self.go_on()

    def start_if_due(self) -> None:
        """The timer: what waits in the cache for a flush gets one."""
        if self._storage.has_unflushed and self._cache.flushing is None and self._room.is_writable:
            self.start()

    def go_on(self) -> asyncio.Task[None]:
        """With a flush that was begun; the task that carries it out, whether or not it succeeds."""
        if self._task is None:
            self._task = spawn(self._run(), name="bookie-flush")
        return self._task

    async def flush(self) -> None:
        """Checkpoint everything added so far. Raises DiskFullError or DiskIOError."""
        if self._cache.flushing is not None:
            await self._settled()
        if self._storage.has_unflushed and self._cache.flushing is None:
            self._turn()
        if self._cache.flushing is not None:
            await self._settled()

    async def pass_mark(self) -> None:
        """The same, also if nothing was added: the mark is what counts."""
        await self.flush()
        if self._cache.flushing is None:
            self._turn()
        await self._settled()

    def _turn(self) -> None:
        """The half that was filling is flushed next; what it holds is in groups up to the next one."""
        self._storage.begin_flush((self._journal.sequence, self._journal.journal_id))

    async def _settled(self) -> None:
        await self.go_on()
        if self._failed is not None:
            raise again(self._failed)

    async def _run(self) -> None:
        """Carry out the flush begun, and those begun meanwhile."""
        self._failed = None
        storage = self._storage
        try:
            while self._cache.flushing is not None:
                await storage.flush()
                if self._cache.is_flush_due:
                    self._turn()
                self._flushed()
                await self._journal.delete_before(storage.checkpoint.mark_journal_id)
                await self._merge()
        except OSError as error:
            if is_disk_full(error):
                self._failed = DiskFullError(f"no space to flush to {storage.directory}: {error}")
                self._room.became_full(self._failed)
            else:
                self._failed = DiskIOError(f"flushing to {storage.directory}: {error}")
                self._room.fail("bookie flush", error)
        finally:
            self._task = None

    async def _merge(self) -> None:
        """Merging saves work but is not needed: without space the runs stay as they are."""
        try:
            await self._storage.merge_if_needed()
        except OSError as error:
            if not is_disk_full(error):
                raise
            _log.warning("no space to merge the index of %s: %s", self._storage.directory, error)
