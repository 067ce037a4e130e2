"""Entry filters of a subscription that keeps nothing: what waits for a verdict is little, and what fails is dropped.

As everything on a topic that is not persistent: whoever can not be given it now never gets it. REJECT and RESCHEDULE
drop an entry, and so do filters that fail, until they are asked again; order is kept, one batch after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.filters.judging import Judged, SubscriptionFilter
from geminga.broker.filters.ports import AskedSubscription, AsksFilters, FilteredConsumer
from geminga.entry_filters import FilterVerdict
from geminga.managed_ledger import Entry
from geminga.model.errors import EntryFilterError
from geminga.runtime import Contained

if TYPE_CHECKING:
    from geminga.model import Position

#: Entries, and bytes of them, that wait for a verdict; what comes beyond is dropped.
WAITING_ENTRIES: Final = 1000
WAITING_BYTES: Final = 128 << 10
_ACCEPT: Final = FilterVerdict.ACCEPT.value


class PassingStage:
    """See the module."""

    __slots__ = (
        "_asked",
        "_call_off",
        "_contained",
        "_deliver",
        "_drop",
        "_filter",
        "_not_before",
        "_position",
        "_receivers",
        "_size_bytes",
        "_waiting",
    )

    def __init__(
        self,
        subscription: AskedSubscription,
        filters: AsksFilters,
        position: Position,
        *,
        receivers: Callable[[], Sequence[FilteredConsumer]],
        deliver: Callable[[Sequence[bytes]], None],
        drop: Callable[[Sequence[bytes]], None],
    ) -> None:
        """``position``: that of every entry. ``deliver`` gets what filters accept, ``drop`` all that is lost for their
        failures, or for want of room."""
        self._filter = SubscriptionFilter.of(subscription, filters)
        self._position = position
        self._receivers = receivers
        self._deliver = deliver
        self._drop = drop
        self._contained = Contained(subscription, "entry filters")
        self._waiting: list[bytes] = []
        self._size_bytes = 0
        #: What filters are asked about now.
        self._asked: list[bytes] = []
        self._call_off: Callable[[], None] | None = None
        #: On the loop's clock: filters that failed are not asked before.
        self._not_before = 0.0

    @property
    def filters(self) -> AsksFilters:
        """Who is asked."""
        return self._filter.filters

    def take(self, entries: Sequence[bytes]) -> None:
        """These were published."""
        if asyncio.get_running_loop().time() < self._not_before:
            self._drop(entries)
            return
        for number, data in enumerate(entries):
            if len(self._waiting) >= WAITING_ENTRIES or self._size_bytes >= WAITING_BYTES:
                self._drop(entries[number:])
                break
            self._waiting.append(data)
            self._size_bytes += len(data)
        self._ask()

    def close(self) -> None:
        """Nobody waits for a verdict any more: what does is lost."""
        if self._call_off is not None:
            self._call_off()
            self._call_off = None
        lost = self._asked + self._waiting
        self._waiting, self._asked, self._size_bytes = [], [], 0
        self._drop(lost)

    def _ask(self) -> None:
        if self._call_off is not None or not self._waiting:
            return
        self._asked, self._waiting, self._size_bytes = self._waiting, [], 0
        ledger_id, entry_id = self._position
        entries = [Entry(ledger_id, entry_id, data) for data in self._asked]
        self._call_off = self._filter.ask(entries, self._receivers(), self._judged)

    def _judged(self, answer: Judged | EntryFilterError) -> None:
        with self._contained:
            asked, self._asked, self._call_off = self._asked, [], None
            if isinstance(answer, EntryFilterError):
                self._not_before = asyncio.get_running_loop().time() + answer.retry_ms / 1000
                self._drop(asked + self._waiting)
                self._waiting, self._size_bytes = [], 0
                return
            kept = []
            for data, verdict, messages in zip(asked, answer.verdicts, answer.messages, strict=True):
                if messages and not answer.is_unfiltered:
                    self._filter.count(verdict, messages)
                if verdict == _ACCEPT:
                    kept.append(data)
            self._deliver(kept)
            self._ask()
