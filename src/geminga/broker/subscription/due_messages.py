"""Delayed messages of one subscription: which entries need not be read yet, which are due, and the timer for the next.

What waits is kept once for all subscriptions of a topic (:mod:`geminga.broker.core.delayed.delivery`); what is due
joins what is to be sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.core.delayed.delivery import DelayReader, TopicDelays
from geminga.broker.core.dispatch.shared import SharedDispatcher
from geminga.model import LATEST, Position
from geminga.runtime import Contained, Part, next_turn, spawn

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.managed_ledger import Entry, ManagedCursor, ManagedLedger

#: Longest sleep of the timer, so that a clock that was set is noticed.
DELAY_TIMER_MAX_S: Final = 10.0
#: Delayed messages moved to the replay queue in one go.
DUE_MAX: Final = 1000


def _nothing() -> None:
    """Nobody is told."""


def _always() -> bool:
    """Nobody waits for what is due."""
    return True


class DueMessages:
    """See the module. Nothing before :meth:`attach` and after :meth:`detach`."""

    __slots__ = (
        "_asks_again",
        "_core",
        "_cursor",
        "_delays",
        "_is_kept_up",
        "_ledger",
        "_now_ms",
        "_on_due",
        "_part",
        "_timer",
        "_timer_due",
        "reader",
    )

    def __init__(
        self,
        delays: TopicDelays,
        core: SharedDispatcher[Consumer],
        cursor: ManagedCursor,
        ledger: ManagedLedger,
        part: Part,
        *,
        now_ms: Callable[[], int],
        is_kept_up: Callable[[], bool],
        on_due: Callable[[], None],
    ) -> None:
        """``core`` sends what is due. ``is_kept_up``: whether dispatch waits for something that wakes it. ``on_due`` is
        called when something is due; what it raises is the failure of ``part``.
        """
        self._delays = delays
        self._core = core
        self._cursor = cursor
        self._ledger = ledger
        self._part = part
        self._now_ms = now_ms
        self._is_kept_up = is_kept_up
        self._on_due = on_due
        #: How far this subscription was given of what waits; None: it has no consumers.
        self.reader: DelayReader | None = None
        #: Some of what is to be sent again may not have been due yet.
        self._asks_again = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0

    def attach(self, tick_ms: int) -> None:
        """There are consumers, to whom delayed messages are delivered as exactly as that."""
        self.reader = self._delays.attach(self._now_ms(), tick_ms)

    def detach(self) -> None:
        """There are none any more."""
        reader, self.reader = self.reader, None
        if reader is not None:
            self._delays.detach(reader)

    def close(self) -> None:
        """No more dispatch; no cycle with it is left for a collector."""
        self.detach()
        self._on_due, self._is_kept_up = _nothing, _always
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def count(self) -> int:
        """Entries that wait for their time."""
        if self.reader is None:
            return 0
        return self.reader.count(self._cursor.mark_delete_position, self._cursor.read_position)

    @property
    def memory_bytes(self) -> int:
        """Its part of the memory of the topic's delayed index, which all subscriptions share."""
        if self.reader is None:
            return 0
        return self._delays.index.memory_bytes // max(1, self._delays.reader_count)

    @property
    def next_due_ms(self) -> int | None:
        """When the first that waits is sent, milliseconds since the epoch; None: nothing waits."""
        return self.reader.next_due(self._now_ms()) if self.reader is not None else None

    # ---- reading

    def skip_waiting(self) -> None:
        """Pass over entries that are known to wait: they need not be read to find that out."""
        reader = self.reader
        if reader is None or not reader.may_skip:
            return
        cursor, ledger = self._cursor, self._ledger
        while cursor.reading.has_more_entries:
            position = max(_at(ledger, cursor.read_position), ledger.ledgers.next_position(cursor.mark_delete_position))
            first = _at(ledger, reader.first_to_read(position))
            cursor.reading.skip_to(first)
            if first == position:
                break

    def last_to_read(self, entries_max: int) -> Position:
        """Behind this lies what is known to wait; LATEST: nothing of ``entries_max`` entries."""
        reader = self.reader
        if reader is None or not reader.may_skip:
            return LATEST
        first = self._cursor.read_position
        entries = reader.run_ahead(first, entries_max)
        return LATEST if entries >= entries_max else Position(first.ledger_id, first.entry_id + entries - 1)

    def of_read(self, entries: Sequence[Entry], *, is_again: bool) -> DelayReader | None:
        """Who is asked whether these wait. What is read again was due once, mostly: its time is not asked twice."""
        if not is_again:
            return self.reader
        asked, self._asks_again = self._asks_again, self._asks_again and len(self._core.replay) > len(entries)
        return self.reader if asked else None

    def ask_again(self) -> None:
        """An entry is to be sent that nobody was sent for its time had come."""
        self._asks_again = True

    # ---- what is due

    @property
    def is_any_due(self) -> bool:
        """Whether the time of one has come."""
        if self.reader is None:
            return False
        now_ms = self._now_ms()
        due = self.reader.next_due(now_ms)
        return due is not None and due <= now_ms

    def take(self) -> None:
        """What is due is to be sent."""
        reader, core = self.reader, self._core
        if reader is None:
            return
        room = DUE_MAX - core.replay.count(0)
        if room <= 0:
            return
        now_ms = self._now_ms()
        for position in reader.take(now_ms, self._cursor.read_position, room):
            # After the clock stepped back the index may have for others what was sent here before.
            if now_ms > reader.suspect_until or core.owner(position) is None:
                core.requeue(position)

    def arm(self) -> None:
        """One timer, for the next message whose time comes, or came since it was looked for. One that waits for a read
        to end or for a place in the replay queue needs none: each of these wakes."""
        if self.reader is None:
            return
        now_ms = self._now_ms()
        due = self.reader.next_due(now_ms)
        if due is None:
            return
        if due <= now_ms and (self._is_kept_up() or self._core.replay.count(0) >= DUE_MAX):
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        delay_s = min(max(1, due - now_ms) / 1000, DELAY_TIMER_MAX_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        with Contained(self._part, "dispatch of what is due"):
            self._on_due()
            self.arm()


def forget_acknowledged(
    delays: TopicDelays, ledger: ManagedLedger, cursors: Collection[ManagedCursor], part: Part
) -> None:
    """What every subscription of a topic has acknowledged waits no more; it is forgotten some in each turn of the loop.

    ``cursors``: of all of them. Where there is none, nobody waits for anything.
    """
    if len(delays):
        last = ledger.extent.last_confirmed_position
        delays.discard_through(min((cursor.mark_delete_position for cursor in cursors), default=last))
        if delays.purge_step():
            spawn(_purge(delays), name=f"purge delayed {ledger.name}", part=part)


async def _purge(delays: TopicDelays) -> None:
    while delays.purge_step():
        await next_turn()


def _at(ledger: ManagedLedger, position: Position) -> Position:
    """``position``, or where the log goes on if it is the end of a ledger."""
    return ledger.ledgers.next_position(Position(position.ledger_id, position.entry_id - 1))
