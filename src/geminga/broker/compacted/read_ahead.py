"""What was compacted, read in larger pieces than are asked for: the next one is on its way while one is handed out.

As cursors read what lies behind the tail (``managed_ledger.cursor.cursor_reads``): within the budget of the entry
cache, and handed on in the turns of those who catch up. What was read ahead is of no use any more once something else
is served: then it is read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from geminga.managed_ledger.cursor.cursor_reads import (
    ENTRY_TIMES,
    PACED_BYTES_MAX,
    READ_ENTRIES_MAX,
    read_ahead_bytes,
)
from geminga.model.errors import StorageError
from geminga.model.limits import count_within
from geminga.model.position import Position
from geminga.runtime import Contained

if TYPE_CHECKING:
    from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
    from geminga.managed_ledger.shared.entry import Entry
    from geminga.managed_ledger.shared.entry_cache import EntryCache
    from geminga.runtime import Part

Done = Callable[["Sequence[Entry] | StorageError"], None]


class CompactedSource(Protocol):
    """What was compacted: see ``reads.CompactedMessages``."""

    @property
    def horizon(self) -> Position:
        """Another one: what is served is another."""
        ...

    def read(self, first: Position, entries_max: int, bytes_max: int, done: Done) -> None:
        """Entries at or behind ``first``; ``done`` is not called within this call."""
        ...


class _Wanted(NamedTuple):
    """The read under way."""

    source: CompactedSource
    first: Position
    entries_max: int
    bytes_max: int
    done: Done


class _Piece(NamedTuple):
    """Where one that is on its way comes from, and begins."""

    source: CompactedSource
    horizon: Position
    first: Position


class ReadAhead:
    """Of one reader, one read at a time. Hashes by identity."""

    __slots__ = (
        "_cache",
        "_catch_up",
        "_coming",
        "_entries",
        "_entry_bytes",
        "_entry_s",
        "_is_closed",
        "_is_serving",
        "_kept",
        "_part",
        "_size_bytes",
        "_used",
        "_wanted",
    )

    def __init__(self, cache: EntryCache, catch_up: CatchUpTurns, part: Part | None) -> None:
        """``part``: fails with a read, if that has a defect."""
        self._cache = cache
        self._catch_up = catch_up
        self._part = part
        self._wanted: _Wanted | None = None
        #: What was read and not asked for yet: from the ``_used``-th on, which is where ``_kept`` begins.
        self._entries: list[Entry] = []
        self._used = 0
        self._kept: _Piece | None = None
        self._size_bytes = 0
        self._coming: _Piece | None = None
        #: How large the entries are where it reads; 0 before the first piece.
        self._entry_bytes = 0
        #: What handing on an entry took lately; 0: nobody knows.
        self._entry_s = 0.0
        self._is_serving = False
        self._is_closed = False

    def read(self, source: CompactedSource, first: Position, entries_max: int, bytes_max: int, done: Done) -> None:
        """As ``source.read``; ``done`` may be called within this call."""
        self._wanted = _Wanted(source, first, entries_max, bytes_max, done)
        if not self._is_serving:
            self._serve(0.0)

    def go(self, seconds: float) -> None:
        """It is its turn (``CatchingUp``)."""
        with Contained(self._part, "a read of what was compacted"):
            self._serve(seconds)

    def close(self) -> None:
        """Nobody reads on: nothing is kept any more. A read under way comes to its end."""
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        self._cache.give_back(self._size_bytes)
        self._entries, self._used, self._kept, self._size_bytes = [], 0, None, 0

    def _serve(self, seconds: float) -> None:
        """Serve reads while there is something to hand out, or ask for it. ``seconds``: of its turn, if it has one."""
        self._is_serving = True
        try:
            while (wanted := self._wanted) is not None:
                piece = _Piece(wanted.source, wanted.source.horizon, wanted.first)
                if self._kept != piece:
                    self._drop()
                    if self._coming != piece:
                        self._ask(wanted, piece)
                    return
                seconds = seconds or self._catch_up.begin(self)
                if not seconds:
                    return
                self._give(wanted, piece, seconds)
                seconds = 0.0
        finally:
            self._is_serving = False

    def _give(self, wanted: _Wanted, piece: _Piece, seconds: float) -> None:
        """Hand out the next entries that are here, as many as are wanted and the time is enough for."""
        began_s = self._catch_up.began_s()
        count, bytes_max = wanted.entries_max, wanted.bytes_max
        if self._catch_up.is_limited:
            bytes_max = min(bytes_max, PACED_BYTES_MAX)
            if self._entry_s:
                count = min(count, max(1, int(seconds / self._entry_s)))
        entries = self._entries[self._used : self._used + count]
        sizes = [len(entry.data) for entry in entries]
        count = count_within(sizes, bytes_max)
        del entries[count:], sizes[count:]
        self._used += count
        size_bytes = sum(sizes)
        self._size_bytes -= size_bytes
        self._cache.give_back(size_bytes)
        if self._used == len(self._entries):
            self._drop()
        else:
            self._kept = piece._replace(first=_behind(entries))
            self._fetch_more(self._kept)
        self._wanted = None
        wanted.done(entries)
        took_s = self._catch_up.ended(began_s) / count
        self._entry_s += (took_s - self._entry_s) / ENTRY_TIMES

    def _ask(self, wanted: _Wanted, piece: _Piece) -> None:
        """Read what is wanted, and what lies behind it."""
        count, bytes_max = wanted.entries_max, wanted.bytes_max
        if self._entry_bytes and not self._is_closed:
            ahead_bytes = read_ahead_bytes(self._cache, self._catch_up, self._entry_bytes)
            bytes_max = min(bytes_max, count * self._entry_bytes + ahead_bytes)
            count = max(count, min(READ_ENTRIES_MAX, count + ahead_bytes // self._entry_bytes))
        self._fetch(piece, count, bytes_max)

    def _fetch_more(self, kept: _Piece) -> None:
        """Ask for the piece behind the one that is being handed out."""
        ahead_bytes = read_ahead_bytes(self._cache, self._catch_up, self._entry_bytes)
        if self._coming is None and ahead_bytes >= max(self._entry_bytes, self._size_bytes):
            count = min(READ_ENTRIES_MAX, ahead_bytes // self._entry_bytes)
            self._fetch(kept._replace(first=_behind(self._entries)), count, ahead_bytes)

    def _fetch(self, piece: _Piece, count: int, bytes_max: int) -> None:
        self._coming = piece
        piece.source.read(piece.first, count, bytes_max, partial(self._came, piece))

    def _came(self, piece: _Piece, result: Sequence[Entry] | StorageError) -> None:
        """A piece is here, which follows what is kept, or an error: the read that needs it asks again, and is told."""
        if self._coming is not piece:
            return  # another one was asked for: what is served is another
        self._coming = None
        wanted = self._wanted
        is_awaited = wanted is not None and self._kept is None
        if isinstance(result, StorageError):
            if wanted is not None and is_awaited:
                self._wanted = None
                wanted.done(result)
            return
        size_bytes = sum([len(entry.data) for entry in result])
        is_of_use = not self._is_closed and piece.horizon == piece.source.horizon
        if result and is_of_use and self._cache.reserve(size_bytes):
            self._entry_bytes = max(1, size_bytes // len(result))
            self._size_bytes += size_bytes
            self._entries = [*self._entries[self._used :], *result]
            self._used = 0
            self._kept = self._kept or piece
            if is_awaited:
                self._serve(0.0)
        elif wanted is not None and is_awaited:
            self._wanted = None
            wanted.done(result[: wanted.entries_max])


def _behind(entries: Sequence[Entry]) -> Position:
    ledger_id, entry_id = entries[-1].position
    return Position(ledger_id, entry_id + 1)
