"""Between a dispatch's reads and what it sends: entries are judged there, and the verdicts followed.

The reader stays busy meanwhile, so nothing is read past what is judged, and whoever calls the read off (a consumer
left, the cursor is moved) waits for no filter. What comes again is judged again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.shared import SharedDispatcher
from geminga.broker.filters.judging import Judged, SubscriptionFilter
from geminga.broker.filters.ports import (
    AsksFilters,
    FilteredConsumer,
    FilteredSubscription,
    Sifted,
    SiftedLog,
    SiftedReads,
)
from geminga.broker.filters.rescheduled import Rescheduled
from geminga.entry_filters import FilterVerdict
from geminga.model import Position
from geminga.model.errors import EntryFilterError
from geminga.runtime import Contained

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry

C = TypeVar("C", bound=ConsumerState)
_ACCEPT: Final = FilterVerdict.ACCEPT.value
_RESCHEDULE: Final = FilterVerdict.RESCHEDULE.value


class FilterStage:
    """Of a dispatch of Exclusive or Failover, where order is kept: from the first entry on that is postponed, all wait
    with it."""

    __slots__ = ("_contained", "_filter", "_log", "_receivers", "_subscription", "_waits_for")

    def __init__(
        self,
        subscription: FilteredSubscription,
        filters: AsksFilters,
        log: SiftedLog,
        receivers: Callable[[], Sequence[FilteredConsumer]],
    ) -> None:
        """``receivers``: the consumers that may get what is read now."""
        self._filter = SubscriptionFilter.of(subscription, filters)
        self._subscription = subscription
        self._log = log
        self._receivers = receivers
        self._contained = Contained(subscription, "entry filters")
        #: The entry that was postponed, and until when on the loop's clock; None: none is.
        self._waits_for: tuple[Position, float] | None = None
        log.sift = self._sift

    @property
    def filters(self) -> AsksFilters:
        """Who is asked."""
        return self._filter.filters

    @property
    def is_full(self) -> bool:
        """Whether so much is postponed that nothing else may be read."""
        return False

    def close(self) -> None:
        """Nothing is judged any more."""
        self._log.sift = None

    def _sift(self, entries: Sequence[Entry], done: Sifted) -> Callable[[], None]:
        waits, self._waits_for = self._waits_for, None
        if waits is not None and waits[0] == entries[0].position:
            left_s = waits[1] - asyncio.get_running_loop().time()
            if left_s > 0:
                # Read again with the reads' own timer; filters are not asked before.
                self._waits_for = waits
                error = EntryFilterError("a filter postponed the next entry", max(1, int(left_s * 1000)))
                return asyncio.get_running_loop().call_soon(done, error).cancel
        return self._filter.ask(entries, self._receivers(), partial(self._judged, done))

    def _judged(self, done: Sifted, answer: Judged | EntryFilterError) -> None:
        with self._contained:
            done(answer if isinstance(answer, EntryFilterError) else self._kept(answer))

    def _kept(self, judged: Judged) -> list[Entry]:
        """Follow the verdicts; what may be sent now."""
        rejected: list[Position] = []
        kept: list[Entry] = []
        for entry, verdict, messages in zip(judged.entries, judged.verdicts, judged.messages, strict=True):
            self._count(judged, verdict, messages)
            if verdict == _RESCHEDULE:
                delay_ms = self._subscription.services.config.entry_filter_rescheduled_delay_ms
                self._waits_for = entry.position, asyncio.get_running_loop().time() + delay_ms / 1000
                self._log.go_back_to(entry.position)
                break
            if verdict == _ACCEPT:
                kept.append(entry)
            else:
                rejected.append(entry.position)
        if rejected:
            self._subscription.cursor.acknowledge(rejected)
        return kept

    def _count(self, judged: Judged, verdict: int, messages: int) -> None:
        if messages and not judged.is_unfiltered:
            self._filter.count(verdict, messages)


class SharedFilterStage(FilterStage):
    """Of a dispatch of Shared or Key_Shared: what is postponed lets others pass, but those of its key."""

    __slots__ = ("_core", "_hash_of", "_replays", "_rescheduled")

    def __init__(
        self,
        subscription: FilteredSubscription,
        filters: AsksFilters,
        log: SiftedLog,
        receivers: Callable[[], Sequence[FilteredConsumer]],
        *,
        replays: SiftedReads,
        core: SharedDispatcher[C],
        key_hash: Callable[[bytes], int],
        comes_again: Callable[[], None],
    ) -> None:
        """``replays``: what is sent again. ``key_hash``: the hash of an entry's key, of which the core's selector
        makes what it divides by. ``comes_again`` hears that what was postponed is to be sent."""
        super().__init__(subscription, filters, log, receivers)
        self._replays = replays
        self._core = core
        self._hash_of: Callable[[bytes], int] | None = None
        if isinstance(core, KeySharedDispatcher):
            self._hash_of = lambda data: core.selector.sticky_hash(key_hash(data))
        self._rescheduled = Rescheduled(core, subscription, subscription.wake, comes_again)
        replays.sift = self._sift

    @property
    def is_full(self) -> bool:
        """As of :class:`FilterStage`."""
        return self._rescheduled.is_full

    def close(self) -> None:
        """Nothing is judged any more; what was postponed is sent with what comes again, if anybody dispatches."""
        super().close()
        self._replays.sift = None
        self._rescheduled.close()

    def _kept(self, judged: Judged) -> list[Entry]:
        rejected: list[Position] = []
        postponed: list[tuple[Position, int]] = []
        kept: list[Entry] = []
        for entry, verdict, messages in zip(judged.entries, judged.verdicts, judged.messages, strict=True):
            self._count(judged, verdict, messages)
            if verdict == _ACCEPT:
                kept.append(entry)
            elif verdict == _RESCHEDULE:
                postponed.append((entry.position, self._hash_of(entry.data) if self._hash_of is not None else 0))
            else:
                rejected.append(entry.position)
                self._core.tracker.forget(entry.position)
        if rejected:
            self._subscription.cursor.acknowledge(rejected)
        if postponed:
            self._rescheduled.add(postponed, self._subscription.services.config.entry_filter_rescheduled_delay_ms)
        return kept
