"""``Reading``: where a cursor reads, and whether it does.

A read goes forward from the read position, one at a time (``cursor_reads``, made by the first). Whoever reads counts at
the log's tail: what was appended is kept in memory for it until it has passed.
"""

from __future__ import annotations

from geminga.managed_ledger.cursor.cursor_reads import CursorReads, EntriesDone, Read, ReadingCursor, ReadLog
from geminga.managed_ledger.shared.services import CursorServices
from geminga.model.errors import LedgerClosedError, StorageError, invariant
from geminga.model.position import LATEST, Position


class Reading:
    """See the module."""

    __slots__ = ("_cursor", "_log", "_name", "_read_before", "_reads", "_services", "_state", "is_active")

    def __init__(self, cursor: ReadingCursor, log: ReadLog, services: CursorServices) -> None:
        #: None once it has ended: no cycle with it is left for a collector.
        self._cursor: ReadingCursor | None = cursor
        self._name = cursor.name
        self._state = cursor.state
        self._log = log
        self._services = services
        #: Made by the first read.
        self._reads: CursorReads | None = None
        #: What was read, once it has ended.
        self._read_before = (0, 0)
        #: Whether it reads: appended entries are cached for it.
        self.is_active = False

    @property
    def read_position(self) -> Position:
        """The next position to read."""
        return self._state.read_position

    @property
    def entries_read(self) -> tuple[int, int]:
        """Entries that were read since it was opened, and those read from bookies."""
        return (self._reads.entries_read, self._reads.cache_misses) if self._reads is not None else self._read_before

    @property
    def is_busy(self) -> bool:
        """Whether a read is under way."""
        return self._reads is not None and self._reads.is_busy

    @property
    def has_more_entries(self) -> bool:
        """Whether there is any readable entry at or behind the read position."""
        extent, position = self._log.extent, self._state.read_position
        last = extent.readable_position
        return last.entry_id >= 0 and position <= last and extent.ledgers.at_or_after(position) <= last

    def read_entries(
        self, max_entries: int, max_bytes: int, done: EntriesDone, *, max_position: Position = LATEST
    ) -> None:
        """Read forward from the read position, which advances; acknowledged entries are left out.

        ``done`` gets at least one entry, or none at the end (or past ``max_position``); possibly within the call.
        """
        cursor, reads = self._cursor, self._reads
        invariant(reads is None or not reads.is_busy, f"cursor {self._name}: a read is under way")
        if cursor is None or cursor.is_closed:
            done(LedgerClosedError(f"cursor {self._name} is closed"))
            return
        if not self.is_active:
            self.is_active = True
            self._log.tail.add_reader(self)
        if reads is None:
            services = self._services
            reads = self._reads = CursorReads(cursor, self._log, services.cache, services.catch_up)
        reads.start(Read(max(1, max_entries), max_bytes, done, max_position))

    def skip_to(self, position: Position) -> None:
        """The next read starts no earlier than ``position``; what lies before it is not read now."""
        invariant(not self.is_busy, f"cursor {self._name}: a read is under way")
        if position > self._state.read_position:
            self.go_back_to(position)

    def go_back_to(self, position: Position) -> None:
        """What the last read gave from ``position`` on was not used: the next read starts there."""
        invariant(not self.is_busy, f"cursor {self._name}: a read is under way")
        self._state.read_position = position
        self.jumped()

    def rewind(self) -> None:
        """The next read starts at the first entry that is not acknowledged."""
        self._state.rewind(self._log.extent.readable)
        self.jumped()

    def jumped(self) -> None:
        """The read position was changed: what was read ahead is of no use, and a read under way starts anew."""
        if self._reads is not None:
            self._reads.jumped()
        self.went_back()

    def went_back(self) -> None:
        """The read position may be further back: who keeps entries for readers is to know."""
        if self.is_active:
            self._log.tail.went_back(self)

    def deactivate(self) -> None:
        """No consumer reads any more: nothing is cached for it until the next read."""
        if self.is_active:
            self.is_active = False
            if self._reads is not None:
                self._reads.drop_ahead()
            self._log.tail.remove_reader(self)

    def resume(self, cursor: ReadingCursor) -> None:
        """The cursor goes on."""
        self._cursor = cursor

    def stop(self, error: StorageError) -> None:
        """The cursor ends: a read under way does, with ``error``, and nothing is cached for it."""
        self.deactivate()
        self._cursor, reads = None, self._reads
        if reads is not None:
            self._read_before, self._reads = self.entries_read, None
            reads.stop(error)
