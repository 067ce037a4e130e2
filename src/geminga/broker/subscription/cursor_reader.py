"""Reads of a dispatcher: of its cursor, one at a time, that can be called off, and of what is to be sent again.

A cursor allows one read at a time, and what it has read is past its read position. So a read that nobody wants
any more (the consumer left, a redelivery was asked for) is let through, its result dropped, and the cursor rewound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model import LATEST, Position
from geminga.model.errors import StorageError
from geminga.runtime import Contained, Part, get_logger, spawn

if TYPE_CHECKING:
    from geminga.broker.compacted.reads import CompactedReads
    from geminga.broker.filters.ports import Sift
    from geminga.broker.subscription.config import SubscriptionConfig
    from geminga.managed_ledger import Entry, ManagedCursor, ManagedLedger

_log = get_logger(__name__)

ReadResult = Callable[["Sequence[Entry] | StorageError"], None]


class CursorReader:
    """See the module."""

    __slots__ = ("_compacted", "_done", "_idle", "_on_idle", "_part", "_sifting", "cursor", "is_busy", "sift")

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
        #: What judges what was read before anybody gets it; None: nothing does.
        self.sift: Sift | None = None
        #: Calls that off; None: nothing is judged now.
        self._sifting: Callable[[], None] | None = None
        #: Where the read under way is of what was compacted.
        self._compacted: CompactedReads | None = None

    def read(
        self,
        entries_max: int,
        bytes_max: int,
        done: ReadResult,
        *,
        max_position: Position = LATEST,
        compacted: CompactedReads | None = None,
    ) -> None:
        """Read on, not past ``max_position``; ``done`` may be called within this call, and is not called if the read is
        called off. ``compacted``: what was compacted comes before the log; then there is no other limit."""
        self.is_busy = True
        self._done = done
        self._compacted = compacted
        if compacted is not None:
            compacted.read(entries_max, bytes_max, self._on_read)
            return
        self.cursor.reading.read_entries(entries_max, bytes_max, self._on_read, max_position=max_position)

    def rewind(self) -> None:
        """Call off the read under way and go back to the first entry that is not acknowledged."""
        if self._sifting is not None:
            # Nobody waits for a filter that nobody needs any more.
            call_off, self._sifting = self._sifting, None
            call_off()
            self._done = None
            self._is_idle()
        if self.is_busy:
            self._done = None
        else:
            self.cursor.reading.rewind()

    def go_back_to(self, position: Position) -> None:
        """What was read from ``position`` on was not used: it is read again."""
        self.cursor.reading.go_back_to(position)
        if self._compacted is not None:
            self._compacted.go_back_to(position)

    async def wait_idle(self) -> None:
        """Return when no read is under way."""
        while self.is_busy:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _on_read(self, result: Sequence[Entry] | StorageError) -> None:
        if self.sift is not None and self._done is not None and result and not isinstance(result, StorageError):
            with Contained(self._part, "filtering of what was read"):
                try:
                    self._sifting = self.sift(result, partial(self._on_sifted, result[0].position))
                finally:
                    if self._sifting is None:
                        self._is_idle()
            return
        self._is_idle()
        done, self._done = self._done, None
        with Contained(self._part, "dispatch of what was read"):
            if done is not None:
                done(result)
                return
            self.cursor.reading.rewind()
            self._on_idle()

    def _on_sifted(self, first: Position, result: Sequence[Entry] | StorageError) -> None:
        """What was read from ``first`` on was judged: this is left of it."""
        self._sifting = None
        judged = partial(self._judged, first, result)
        if isinstance(result, StorageError) or not result:
            judged()
        else:
            # While the filters were asked nothing kept in memory what is acknowledged of these ledgers.
            self.cursor.when_loaded({entry.ledger_id for entry in result}, judged, self._refused)

    def _judged(self, first: Position, result: Sequence[Entry] | StorageError) -> None:
        self._is_idle()
        done, self._done = self._done, None
        with Contained(self._part, "dispatch of what was filtered"):
            if done is None:  # called off while that was brought into memory
                self.cursor.reading.rewind()
                self._on_idle()
                return
            if isinstance(result, StorageError):
                # It is read again when the filters are asked again: nothing is held in memory until then.
                self.go_back_to(first)
            elif not result:
                # The next read may find more, which is not so where a read finds nothing.
                self._on_idle()
                return
            done(result)

    def _refused(self, error: StorageError) -> None:
        """The cursor was closed or moved before."""
        self._is_idle()
        done, self._done = self._done, None
        with Contained(self._part, "dispatch of what was filtered"):
            self.cursor.reading.rewind()
            if done is None:
                self._on_idle()
            else:
                done(error)

    def _is_idle(self) -> None:
        self.is_busy = False
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None


def _nobody(_: object) -> None:
    """Who waited is gone."""


def _nothing() -> None:
    """Nobody is woken."""


class ReplayReads:
    """Reads by position what is to be sent again, one read at a time.

    What can not be read for good keeps up nobody who may take what lies behind it: it is tried again, later each time.
    """

    __slots__ = (
        "_config",
        "_cursor",
        "_done",
        "_is_closed",
        "_keeps_order",
        "_ledger",
        "_part",
        "_postpone",
        "_put_offs",
        "_sifting",
        "_wake",
        "_whose",
        "is_busy",
        "put_off",
        "sift",
    )

    def __init__(
        self,
        cursor: ManagedCursor,
        ledger: ManagedLedger,
        config: SubscriptionConfig,
        part: Part,
        whose: str,
        *,
        keeps_order: bool,
        done: ReadResult,
        postpone: Callable[[list[Position]], None],
        wake: Callable[[], None],
    ) -> None:
        """``whose``: topic and subscription, in logs. ``keeps_order``: what has the same key waits for what comes
        again. ``done`` gets what was read and is not acknowledged; before that ``postpone`` gets what was left out of
        the read. ``wake`` is called when it may be tried again. ``part``: whose failure it is if one of these breaks.
        """
        self._cursor = cursor
        self._ledger = ledger
        self._config = config
        self._part = part
        self._whose = whose
        self._keeps_order = keeps_order
        self._done = done
        self._postpone = postpone
        self._wake = wake
        self._is_closed = False
        self.is_busy = False
        #: As of :class:`CursorReader`.
        self.sift: Sift | None = None
        self._sifting: Callable[[], None] | None = None
        #: While it runs nothing is sent again: of some of it the ledger is lost; and how often in a row that was so.
        self.put_off: asyncio.TimerHandle | None = None
        self._put_offs = 0

    def read(self, positions: list[Position], bytes_max: int) -> None:
        """Read these entries; ``done`` is called later."""
        self.is_busy = True
        spawn(self._read(positions, bytes_max), name=f"replay {self._whose}", part=self._part)

    def close(self) -> None:
        """Nothing is tried again, and who waited hears nothing: no cycle with it is left for a collector."""
        self._is_closed = True
        self.sift = None
        if self._sifting is not None:
            self._sifting()
            self._sifting = None
        self._done = self._postpone = _nobody
        self._wake = _nothing
        if self.put_off is not None:
            self.put_off.cancel()
            self.put_off = None

    async def _read(self, positions: list[Position], bytes_max: int) -> None:
        try:
            entries, behind = await self._ledger.reader.read_some(positions, bytes_max)
        except StorageError as error:
            if self._keeps_order or not is_lost(error):
                # What has the same key waits for it; and what is only out of reach is soon back.
                self._on_read(error)
                return
            entries, behind = await self._read_what_is_there(positions, bytes_max)
            if behind:
                self._try_later(error)
        else:
            self._put_offs = 0
        self._postpone(behind)
        ledger_ids = {entry.ledger_id for entry in entries}
        # Within this call unless what is acknowledged of these ledgers must be read first.
        self._cursor.when_loaded(ledger_ids, partial(self._on_read, entries), self._on_read)

    async def _read_what_is_there(
        self, positions: list[Position], bytes_max: int
    ) -> tuple[list[Entry], list[Position]]:
        """The entries of those ledgers that can be read, and the positions that were not."""
        found: list[Entry] = []
        left: list[Position] = []
        for ledger_id in sorted({position.ledger_id for position in positions}):
            of_ledger = [position for position in positions if position.ledger_id == ledger_id]
            try:
                entries, behind = await self._ledger.reader.read_some(of_ledger, bytes_max)
            except StorageError:
                left += of_ledger
            else:
                found += entries
                left += behind
        return found, left

    def _try_later(self, error: StorageError) -> None:
        """What is to be sent again does not keep up the rest of the log."""
        first, last = (
            self._config.dispatcher_read_failure_backoff_initial_ms,
            self._config.dispatcher_read_failure_backoff_max_ms,
        )
        delay_ms = min(first << min(self._put_offs, 10), last)
        self._put_offs += 1
        _log.error(
            "%s: what is to be sent again can not be read, trying again in %d ms: %s", self._whose, delay_ms, error
        )
        if not self._is_closed and self.put_off is None:
            self.put_off = asyncio.get_running_loop().call_later(delay_ms / 1000, self._now)

    def _now(self) -> None:
        self.put_off = None
        self._wake()

    def _on_read(self, result: Sequence[Entry] | StorageError) -> None:
        with Contained(self._part, "dispatch of what was read again"):
            if not isinstance(result, StorageError):
                result = self._unacknowledged(result)
                if self.sift is not None and result:
                    self._sifting = self.sift(result, self._on_sifted)
                    return
            self.is_busy = False
            self._done(result)

    def _on_sifted(self, result: Sequence[Entry] | StorageError) -> None:
        self._sifting = None
        if isinstance(result, StorageError):
            self._judged(result)
        else:
            # While the filters were asked nothing kept in memory what is acknowledged of these ledgers.
            ledger_ids = {entry.ledger_id for entry in result}
            self._cursor.when_loaded(ledger_ids, partial(self._judged, result), self._judged)

    def _judged(self, result: Sequence[Entry] | StorageError) -> None:
        self.is_busy = False
        with Contained(self._part, "dispatch of what was filtered"):
            # It may have been acknowledged meanwhile.
            self._done(result if isinstance(result, StorageError) else self._unacknowledged(result))

    def _unacknowledged(self, entries: Sequence[Entry]) -> list[Entry]:
        state = self._cursor.state
        return [entry for entry in entries if not state.is_acknowledged(entry.position)]
