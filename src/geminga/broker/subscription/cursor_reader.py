"""Reads of a cursor, one at a time, that can be called off.

A cursor allows one read at a time, and what it has read is past its read position. So a read that nobody wants
any more (the consumer left, a redelivery was asked for) is let through, its result dropped, and the cursor rewound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from geminga.model import LATEST, Position
from geminga.model.errors import StorageError
from geminga.runtime import Contained, Part

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry, ManagedCursor

ReadResult = Callable[["Sequence[Entry] | StorageError"], None]


class CursorReader:
    """See the module."""

    __slots__ = ("_done", "_idle", "_on_idle", "_part", "cursor", "is_busy")

    def __init__(self, cursor: ManagedCursor, on_idle: Callable[[], None], part: Part | None = None) -> None:
        """``on_idle`` is called after a read that was called off has ended. ``part``: whose failure it is if it, or
        who gets what was read, breaks."""
        self._part = part
        self.cursor = cursor
        self._on_idle = on_idle
        #: Who waits for the read under way; None if it was called off.
        self._done: ReadResult | None = None
        self._idle: asyncio.Future[None] | None = None
        #: Whether a read is under way, wanted or not.
        self.is_busy = False

    def read(self, entries_max: int, bytes_max: int, done: ReadResult, *, max_position: Position = LATEST) -> None:
        """Read on, not past ``max_position``; ``done`` may be called within this call, and is not called if the read is
        called off."""
        self.is_busy = True
        self._done = done
        self.cursor.reading.read_entries(entries_max, bytes_max, self._on_read, max_position=max_position)

    def rewind(self) -> None:
        """Call off the read under way and go back to the first entry that is not acknowledged."""
        if self.is_busy:
            self._done = None
        else:
            self.cursor.reading.rewind()

    async def wait_idle(self) -> None:
        """Return when no read is under way."""
        while self.is_busy:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _on_read(self, result: Sequence[Entry] | StorageError) -> None:
        self.is_busy = False
        done, self._done = self._done, None
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        with Contained(self._part, "dispatch of what was read"):
            if done is not None:
                done(result)
                return
            self.cursor.reading.rewind()
            self._on_idle()
