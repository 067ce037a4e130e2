"""What this package needs of the connection, the topic and the broker around it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Protocol

from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.core.dispatch.unacked_budget import UnackedBudget
from geminga.broker.failures import Failures
from geminga.broker.subscription.config import SubscriptionConfig
from geminga.broker.subscription.limits import ConsumerCounts, TopicLimits, UnackedLimits
from geminga.broker.subscription.throttling import DispatchThrottle
from geminga.model import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import Part, Runtime
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.compacted.reads import CompactedMessages
    from geminga.broker.core.departure import Farewell, Leaving
    from geminga.broker.filters.ports import AsksFilters
    from geminga.broker.subscription.consumer import Consumer
    from geminga.managed_ledger import Entry, ManagedCursor, ManagedLedger
    from geminga.transaction.ports import HoldsBack, RecordLog, Registrations


class PendingAckLogs(Protocol):
    """Where subscriptions keep what they acknowledge in transactions. All of it may raise StorageError."""

    async def exists(self, topic: TopicName, subscription: str) -> bool:
        """Whether there is a log."""
        ...

    async def open(self, topic: TopicName, subscription: str, part: Part, beside: ManagedLedger) -> RecordLog:
        """The log, made if there is none; its ledgers are as many copies, and where, as those of the topic's,
        ``beside`` which it is."""
        ...

    async def note_deletion(self, subscription: str, beside: ManagedLedger) -> None:
        """The subscription is about to go, and its log behind it: whoever loads the topic finishes that."""
        ...

    async def delete(self, topic: TopicName, subscription: str, beside: ManagedLedger) -> None:
        """The subscription is gone."""
        ...


class SubscriptionServices(Protocol):
    """What subscriptions use of the broker."""

    @property
    def runtime(self) -> Runtime:
        """Clock, randomness, ..."""
        ...

    @property
    def config(self) -> SubscriptionConfig:
        """Settings."""
        ...

    @property
    def recent_candidates(self) -> RecentCandidates:
        """What is known of entries that were dispatched lately."""
        ...

    @property
    def unacked_budget(self) -> UnackedBudget | None:
        """How much all subscriptions together may leave unacknowledged; None: no limit."""
        ...

    @property
    def failures(self) -> Failures:
        """What broke."""
        ...

    @property
    def consumer_kind(self) -> Callable[..., Consumer] | None:
        """What makes the consumers, of what a plain one is made of; None: they are plain."""
        ...

    @property
    def has_transactions(self) -> bool:
        """Whether the broker has transactions."""
        ...

    @property
    def pending_ack_logs(self) -> PendingAckLogs | None:
        """Loads the code of transactions; None: the broker has none."""
        ...

    def watch_held(self, holding: HoldsBack) -> None:
        """It begins to hold something for a transaction."""
        ...

    @property
    def registrations(self) -> Registrations | None:
        """None: the broker has no transactions."""
        ...

    @property
    def whole(self) -> Part:
        """Whose failure it is that is no single topic's."""
        ...

    def unload(self, name: TopicName) -> Coroutine[None, None, None]:
        """Send a topic's clients away and close it."""
        ...

    def unload_fenced(self, name: TopicName) -> Coroutine[None, None, None]:
        """The same where another broker opened what is stored of it."""
        ...

    def recount_unacked(self) -> None:
        """A dispatcher was thrown away as it was."""
        ...


class ReadsSnapshots(Protocol):
    """Who keeps a subscription alike in several clusters."""

    def passed_over(self, entries: Sequence[Entry], positions: Sequence[Position]) -> None:
        """Of entries that were read, those at ``positions`` are no messages for consumers: snapshots perhaps."""
        ...

    def left_behind(self, markers: Sequence[Entry]) -> None:
        """The same of markers that come next where nobody consumes."""
        ...

    def deleted(self) -> None:
        """The subscription is deleted."""
        ...


class SendsAway(Protocol):
    """The life of a topic: where its clients are sent."""

    def send_away(
        self, connection: Leaving, farewell: Farewell, departs: Callable[[], Callable[[], None]] | None = None
    ) -> None:
        """Send the command that closes a consumer, now or when the topic's next owner is there.

        ``departs`` hears of the latter, and gives what is called then.
        """
        ...


class DispatchRates(Protocol):
    """What holds a topic to rates."""

    @property
    def dispatch(self) -> tuple[DispatchThrottle, ...]:
        """Rates that all its subscriptions share."""
        ...

    def of_subscription(self, name: str, present: DispatchThrottle | None) -> DispatchThrottle | None:
        """The own rate of a subscription that has ``present`` by now; None: it has none."""
        ...


class HoldsMessages(Protocol):
    """What dispatch leaves out for transactions."""

    @property
    def held(self) -> Callable[[Position], int] | None:
        """Which messages of an entry transactions hold, as bits; None: none of any."""
        ...


class SubscriptionTopic(Protocol):
    """The topic of a subscription, persistent or not."""

    @property
    def name(self) -> TopicName:
        """Its name."""
        ...

    @property
    def services(self) -> SubscriptionServices:
        """What it gives its subscriptions of the broker."""
        ...

    @property
    def limits(self) -> TopicLimits:
        """What it may have."""
        ...

    @property
    def consumer_counts(self) -> ConsumerCounts:
        """How many consumers it has."""
        ...

    @property
    def life(self) -> SendsAway:
        """Whether it may be used."""
        ...

    def broke(self, what: str, error: BaseException) -> None:
        """It can not be trusted any more."""
        ...


class DispatchedTopic(SubscriptionTopic, Protocol):
    """A topic with a managed ledger, as dispatch sees it."""

    #: As of :class:`.last_message_id.KnowsTail`.
    hidden_tail: tuple[Position, Position]

    @property
    def ledger(self) -> ManagedLedger:
        """Its log."""
        ...

    @property
    def unacked_limits(self) -> UnackedLimits:
        """How much the consumers of a subscription may leave unacknowledged."""
        ...

    @property
    def ack_ranges_max(self) -> int | None:
        """Ranges of acknowledged messages beyond which nothing new is dispatched; None: dispatch does not ask."""
        ...

    @property
    def filters(self) -> AsksFilters | None:
        """Who is asked which entries its subscriptions get; None: they get all."""
        ...

    @property
    def throttles(self) -> DispatchRates:
        """Its rates."""
        ...

    @property
    def delivery_tick_ms(self) -> int:
        """How exactly delayed messages are delivered, unless a subscription says otherwise."""
        ...

    @property
    def hides(self) -> Sequence[Callable[[Position, pb.MessageMetadata], bool]]:
        """Whether an entry is never to be seen by readers, of whom it concerns; mostly of nobody."""
        ...

    @property
    def compacted(self) -> CompactedMessages | None:
        """What was compacted of it; None: it never was."""
        ...

    def delays(self) -> TopicDelays | None:
        """What waits for its delivery time, for all subscriptions; None: messages are delivered at once."""
        ...

    def forget_delays(self) -> None:
        """What waits is no more than what not all subscriptions have acknowledged: one was moved on, or is gone."""
        ...


class LoggedSubscription(Part, Protocol):
    """A subscription of a topic with a managed ledger, as its parts see it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def topic(self) -> DispatchedTopic:
        """Its topic."""
        ...

    @property
    def services(self) -> SubscriptionServices:
        """What it uses of the broker."""
        ...

    @property
    def cursor(self) -> ManagedCursor:
        """What it acknowledged."""
        ...
