"""What the dispatchers of all types have in common: settings, retry after failed reads, the end of a topic.

A dispatch object exists while its subscription has consumers; it owns no task and no timer while it is idle.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.core.dispatch.shared import Candidate
from geminga.broker.subscription.consumer import Consumer
from geminga.broker.subscription.cursor_reader import CursorReader
from geminga.broker.subscription.ports import (
    HoldsMessages,
    LoggedSubscription,
    ReadsSnapshots,
)
from geminga.broker.subscription.throttling import BACKLOGGED_ENTRIES, DispatchThrottle, DispatchTurns
from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model import Position
from geminga.model.errors import EntryFilterError, StorageError
from geminga.runtime import Contained, get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:  # what no filter and no transaction needs is not loaded
    from geminga.broker.filters.judging import SubscriptionFilter
    from geminga.broker.filters.ports import AsksFilters
    from geminga.broker.filters.stage import FilterStage
    from geminga.transaction.core.pending_acks import Released

#: Reads in one go before other work of the loop gets its turn.
ROUNDS_MAX: Final = 8

_log = get_logger(__name__)


class StageMaker(Protocol):
    """Makes where entry filters judge what a dispatch read."""

    def __call__(self, *, filters: AsksFilters, receivers: Callable[[], Sequence[Consumer]]) -> FilterStage:
        """``receivers``: the consumers that may get what is read now."""


class DispatchedSubscription(LoggedSubscription, Protocol):
    """The subscription that is dispatched."""

    #: Its entry filters, with what they said; None: it never had any.
    filter: SubscriptionFilter | None

    @property
    def snapshots(self) -> ReadsSnapshots | None:
        """Who remembers its snapshots; None: it is not replicated."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """What its maker noted with it."""
        ...

    @property
    def throttled(self) -> dict[str, int]:
        """How often a rate held it, under the names of Pulsar's statistics."""
        ...

    def throttles(self) -> tuple[DispatchThrottle, ...]:
        """The rates it has to keep."""
        ...

    def open_reader(self) -> CursorReader:
        """The reader of its cursor."""
        ...

    def wake(self) -> None:
        """Dispatch if there are consumers."""
        ...

    def now_ms(self) -> int:
        """Wall-clock time of the broker."""
        ...

    def is_at_end_of_topic(self) -> bool:
        """Whether the topic was terminated and everything is acknowledged."""
        ...

    def recent_candidates(self) -> RecentCandidates | None:
        """What is known of entries dispatched lately; None if this is its topic's only subscription."""
        ...

    @property
    def transactions(self) -> HoldsMessages:
        """What it acknowledges in transactions."""
        ...


class Dispatch(ABC):
    """The part of a dispatcher that does not depend on the type."""

    __slots__ = (
        "_batches_least",
        "_bytes_max",
        "_config",
        "_entries_max",
        "_failure",
        "_failures",
        "_is_closed",
        "_is_ended",
        "_is_waking",
        "_is_woken",
        "_nothing_read",
        "_retry",
        "_stage",
        "_turns",
        "_wake_handle",
        "contained",
        "reader",
        "subscription",
        "type",
    )

    def __init__(self, subscription: DispatchedSubscription, sub_type: pb.CommandSubscribe.SubType) -> None:
        self.subscription = subscription
        #: For what happens all the time: made once.
        self.contained = Contained(subscription, "dispatch or an acknowledgment")
        #: The type its consumers asked for.
        self.type = sub_type
        self.reader = subscription.open_reader()
        self._config = subscription.services.config
        #: Of the configuration, for what happens all the time.
        self._entries_max = self._config.dispatcher_max_read_batch_size
        self._bytes_max = self._config.dispatcher_max_read_size_bytes
        self._batches_least = self._config.batches_least
        self._is_closed = False
        #: Whether the consumers were told of the end of the topic.
        self._is_ended = False
        #: Guard against waking within a wake.
        self._is_waking = False
        #: Whether somebody wanted to wake it while it was busy.
        self._is_woken = False
        #: Whether the last read found nothing: wait for entries instead of reading again.
        self._nothing_read = False
        self._wake_handle: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None
        #: How often in a row reading failed, and with what the last time.
        self._failures = 0
        self._failure: StorageError | None = None
        #: Its place under the dispatch rates; None: there are none.
        self._turns: DispatchTurns | None = None
        #: Where entry filters judge what was read; None: there are none.
        self._stage: FilterStage | None = None
        self.hold_to(subscription.throttles())

    @property
    def read_error(self) -> StorageError | None:
        """Why nothing can be read now; None: it can, as far as anybody knows."""
        return self._failure if self._failures and not isinstance(self._failure, EntryFilterError) else None

    @property
    def held_by(self) -> DispatchThrottle | None:
        """The dispatch rate that it waits for now; None: it waits for none."""
        return self._turns.held_by if self._turns is not None else None

    def settings_changed(self) -> None:
        """Configuration was changed at run time: follow what was copied of it."""
        self._entries_max = self._config.dispatcher_max_read_batch_size
        self._bytes_max = self._config.dispatcher_max_read_size_bytes
        self._batches_least = self._config.batches_least
        if self._turns is not None:
            # Whether the rates spare who has caught up is said when they are taken.
            turns, self._turns = self._turns, None
            turns.close()
            self.hold_to(turns.throttles)

    def hold_to(self, throttles: tuple[DispatchThrottle, ...]) -> None:
        """Keep these rates from now on."""
        before, self._turns = self._turns, None
        if before is None and not throttles:
            return
        if before is not None:
            if before.throttles == throttles:
                self._turns = before
                return
            before.close()
        if throttles:
            is_spared = None if self._config.dispatch_throttling_on_non_backlog else self._has_caught_up
            self._turns = DispatchTurns(throttles, self.subscription.wake, self.subscription.throttled, is_spared)
        self.wake_later()

    def follow_filters(self, make: StageMaker | None = None) -> None:
        """The topic's entry filters may be others: these are asked about all that is read from now on. ``make``: a
        stage of the type's own, given the filters and who may get what is read."""
        filters = self.subscription.topic.filters
        if filters is (None if self._stage is None else self._stage.filters):
            return
        if self._stage is not None:
            self._stage.close()
            self._stage = None
        if filters is not None:
            if make is None:
                from geminga.broker.filters.stage import FilterStage

                make = partial(FilterStage, self.subscription, log=self.reader)

            def receivers() -> list[Consumer]:
                active = self.active_consumer
                return self.consumers if active is None else [active]

            self._stage = make(filters=filters, receivers=receivers)
        if isinstance(self._failure, EntryFilterError) and self._retry is not None:
            # It waits for filters that are others now.
            self._retry.cancel()
            self._retry = None
        self.wake_later()

    def _has_caught_up(self) -> bool:
        return self.reader.cursor.backlog_count <= BACKLOGGED_ENTRIES

    @property
    @abstractmethod
    def consumers(self) -> list[Consumer]:
        """The consumers of the subscription."""

    @abstractmethod
    def add(self, consumer: Consumer) -> None:
        """A consumer joins; a RemoteError if it does not fit."""

    @abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves."""

    @property
    def is_waiting(self) -> bool:
        """Whether a consumer would take entries, and there are none to read."""
        active = self.active_consumer
        if self.reader.is_busy or self.reader.cursor.reading.has_more_entries:
            return False
        receivers = self.consumers if active is None else [active]
        return any(consumer.permits > 0 and not consumer.was_blocked for consumer in receivers)

    @property
    def active_consumer(self) -> Consumer | None:
        """The only one that gets messages, where there is such."""
        return None

    @property
    def redelivers_by_position(self) -> bool:
        """Whether it matters which entries a consumer gives back; else all come again, in order."""
        return False

    @abstractmethod
    def held(self, consumer: Consumer, entries: Iterable[tuple[Position, int]]) -> None:
        """``consumer`` acknowledged these entries, but for so many messages of each, in a transaction, which holds them
        now."""

    @abstractmethod
    def settled(self, positions: Sequence[Position]) -> None:
        """A transaction that held parts of these entries was committed, and nothing of them is left."""

    @abstractmethod
    def give_back(self, released: Released) -> None:
        """A transaction that held these entries, or parts of them, was aborted: they may be sent again."""

    @abstractmethod
    def wake(self) -> None:
        """Something changed: permits, entries, acknowledgments."""

    def wake_later(self) -> None:
        """Wake in the next round of the loop, once."""
        if self._wake_handle is None and not self._is_closed:
            self._wake_handle = asyncio.get_running_loop().call_soon(self._on_wake_later)

    @abstractmethod
    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int) -> None:
        """``consumer`` wants entries again; None: all it has. What fails is the subscription's failure."""

    def close(self) -> None:
        """No more dispatch; reads under way are dropped."""
        self._is_closed = True
        if self._stage is not None:
            self._stage.close()
            self._stage = None
        if self._turns is not None:
            self._turns.close()
        for handle in (self._retry, self._wake_handle):
            if handle is not None:
                handle.cancel()
        self._retry = self._wake_handle = None

    def _on_wake_later(self) -> None:
        self._wake_handle = None
        self.subscription.wake()

    def _at_end(self) -> None:
        """The log has no more entries for now; at the end of a terminated topic with nothing left, say so."""
        if self._is_ended or not self.subscription.is_at_end_of_topic():
            return
        self._is_ended = True
        for consumer in self.consumers:
            consumer.notify_end_of_topic()

    def _sent(self, entries: Sequence[Candidate]) -> None:
        """Pay for what was sent, where there are rates."""
        if self._turns is not None:
            count = len(entries)
            by_entry = self._config.dispatch_throttling_on_batch_message
            messages = count if by_entry else sum([entry.message_count for entry in entries])
            self._turns.sent(count, messages, sum([len(entry.data) for entry in entries]))

    def _read_failed(self, error: StorageError) -> None:
        """Log and try again, later each time."""
        if self._turns is not None:
            self._turns.called_off()
        first, last = (
            self._config.dispatcher_read_failure_backoff_initial_ms,
            self._config.dispatcher_read_failure_backoff_max_ms,
        )
        delay_ms = min(first << min(self._failures, 10), last)
        self._failure = error
        if isinstance(error, EntryFilterError):
            # Told by whoever asked them.
            delay_ms = error.retry_ms
        else:
            self._failures += 1
            subscription = self.subscription
            _log.error(
                "%s subscription %s: reading failed, trying again in %d ms: %s%s",
                subscription.topic.name,
                subscription.name,
                delay_ms,
                error,
                ". It does not come back by itself: geminga lake holes, skip-hole" if is_lost(error) else "",
            )
        if not self._is_closed and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self.subscription.wake()
