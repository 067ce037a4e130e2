"""A subscription of a persistent topic: a cursor, and while it has consumers, their dispatch.

A durable subscription outlives its consumers; without consumers it is this small object and its cursor. A
non-durable one (Reader) ends with its last consumer.

Operations that move the cursor (:meth:`Subscription.seek` and those of the administration) fence the subscription:
consumers are disconnected first, and those that subscribe meanwhile wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.core.dispatch.redelivery import RedeliveryCounts
from geminga.broker.failures import BrokenPart, subscription_name
from geminga.broker.subscription.consumer import Consumer, Exclusive, Failover, send_away
from geminga.broker.subscription.cursor_reader import CursorReader
from geminga.broker.subscription.dispatch import Dispatch
from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.subscription.dispatch_single_active import SingleActiveDispatch
from geminga.broker.subscription.limits import check_consumer_limit, is_reached
from geminga.broker.subscription.ports import DispatchedTopic, ReadsSnapshots, SubscriptionServices
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.throttling import DispatchThrottle
from geminga.broker.subscription.transactions import SubscriptionTransactions
from geminga.model.errors import (
    ConsumerBusyError,
    GemingaError,
    PreconditionFailedError,
    UnavailableError,
)
from geminga.runtime import Contained, carried_out, get_logger, spawn, unwound
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.filters.judging import SubscriptionFilter
    from geminga.managed_ledger import ManagedCursor

_log = get_logger(__name__)

#: How long a non-durable subscription whose consumers were disconnected by a seek waits for one to come back.
NON_DURABLE_GRACE_S: Final = 60.0
#: Subscription property: how exactly it wants delayed messages, in milliseconds (as the broker setting).
TICK_PROPERTY: Final = "delayedDeliveryTickTimeMillis"
#: A tick of more digits than this is taken for none.
TICK_DIGITS_MAX: Final = 10
#: What a subscription shares with its topic: a failure in there is the topic's.
_OF_THE_TOPIC: Final = (
    "geminga.managed_ledger",
    "geminga.broker.topic.persistent",
    "geminga.broker.publishing.rates",
    "geminga.broker.topic.delayed_snapshots",
    "geminga.broker.core.delayed.delivery",
    "geminga.broker.core.delayed.chunks",
    "geminga.broker.core.delayed.far_slots",
    "geminga.broker.core.delayed.packed_positions",
    "geminga.broker.core.delayed.time_buckets",
    "geminga.broker.core.delayed.waiting_entries",
)


class PersistentSubscriptionTopic(DispatchedTopic, Protocol):
    """The topic of subscriptions with cursors."""

    @property
    def subscriptions(self) -> MutableMapping[str, Subscription]:
        """Its subscriptions by name."""
        ...

    def subscriptions_changed(self) -> None:
        """One is replicated now, or no longer."""
        ...


class Subscription:
    """See the module."""

    __slots__ = (
        "_fence",
        "_reader",
        "_throttle",
        "_throttled",
        "bytes_out_closed",
        "chunks_out_closed",
        "cursor",
        "dispatch",
        "draining_cleared_closed",
        "entries_expired",
        "filter",
        "is_durable",
        "last_acked_ms",
        "last_consumed_ms",
        "last_expired_ms",
        "last_flow_ms",
        "messages_acked_closed",
        "messages_out_closed",
        "messages_redelivered_closed",
        "moves",
        "name",
        "rates",
        "redeliveries",
        "snapshots",
        "topic",
        "transactions",
        "type",
    )

    def __init__(
        self, topic: PersistentSubscriptionTopic, name: str, cursor: ManagedCursor, *, is_durable: bool = True
    ) -> None:
        self.topic = topic
        self.name = name
        self.cursor = cursor
        #: False for Readers: the cursor lives in memory only.
        self.is_durable = is_durable
        #: What it acknowledges in transactions.
        self.transactions = SubscriptionTransactions(self, is_allowed=is_durable and topic.services.has_transactions)
        #: Present while there are consumers.
        self.dispatch: Dispatch | None = None
        #: Type of the last consumers; None if there was none since the topic was loaded.
        self.type: pb.CommandSubscribe.SubType | None = None
        #: Totals of consumers that are gone.
        self.messages_out_closed = 0
        self.bytes_out_closed = 0
        self.chunks_out_closed = 0
        self.messages_acked_closed = 0
        self.messages_redelivered_closed = self.draining_cleared_closed = 0
        self.last_consumed_ms = self.last_flow_ms = self.last_acked_ms = 0
        #: Entries acknowledged because they were too old, and when that was last looked for.
        self.entries_expired = 0
        self.last_expired_ms = 0
        #: Rates between scrapes, kept by the statistics.
        self.rates: Rates | None = None
        #: See :attr:`throttled`; None: no rate ever was set.
        self._throttled: dict[str, int] | None = None
        #: Its own dispatch rate.
        self._throttle: DispatchThrottle | None = None
        #: Who remembers its snapshots; None: it is not replicated, or nobody keeps it alike in other clusters.
        self.snapshots: ReadsSnapshots | None = None
        #: How often entries were sent again.
        self.redeliveries = RedeliveryCounts()
        #: Its entry filters, with what they said; None: it never had any.
        self.filter: SubscriptionFilter | None = None
        self._reader: CursorReader | None = None
        #: Set when whoever moves the cursor is done; None while nobody does.
        self._fence: asyncio.Event | None = None
        #: How often its cursor was begun to be moved: whoever looked at a backlog for a while can tell.
        self.moves = 0

    @classmethod
    def create(
        cls, topic: PersistentSubscriptionTopic, name: str, cursor: ManagedCursor, *, is_durable: bool = True
    ) -> Subscription:
        """A subscription on an open cursor."""
        return cls(topic, name, cursor, is_durable=is_durable)

    @property
    def services(self) -> SubscriptionServices:
        """What it uses of the broker."""
        return self.topic.services

    # ---- consumers ----

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The connected consumers."""
        return self.dispatch.consumers if self.dispatch is not None else ()

    @property
    def last_active_ms(self) -> int:
        """When its last consumer left, or it was made or moved, also before a restart; now while it has one."""
        return self.cursor.use.last_active_ms

    @property
    def active_consumer(self) -> Consumer | None:
        """The one that gets messages, for Exclusive and Failover."""
        return self.dispatch.active_consumer if self.dispatch is not None else None

    async def add_consumer(self, consumer: Consumer) -> None:
        """Let ``consumer`` join; ConsumerBusyError, ConsumerAssignError or NotAllowedError if it does not fit."""
        while self._fence is not None:
            await self._fence.wait()
        self.transactions.check_read()
        if self.dispatch is not None and self.dispatch.type != consumer.type:
            raise ConsumerBusyError("Subscription is of different type")
        check_consumer_limit(self.topic, self.topic.subscriptions.values(), consumer.connection.peer)
        if is_reached(self.topic.limits.consumers_per_subscription, len(self.consumers)):
            raise ConsumerBusyError("Subscription reached max consumers limit")
        dispatch = self.dispatch
        if dispatch is None:
            if consumer.type in (Exclusive, Failover):
                # They do not count, and acknowledge without naming each entry: old counts would stay for good.
                self.redeliveries.drop()
                dispatch = SingleActiveDispatch(self, consumer)
            else:
                dispatch = SharedDispatch(self, consumer)
        with Contained(self, "subscribing"):
            try:
                dispatch.add(consumer)
            finally:
                if not dispatch.consumers:
                    self._drop_reader()
            self.dispatch = dispatch
            self.topic.consumer_counts.joined(consumer)
            self.cursor.start_use()
            self.type = consumer.type
            self.joined()
        if self.dispatch is not dispatch:
            raise UnavailableError(f"subscription {self.name} broke, try again")

    def detach(self, consumer: Consumer) -> None:
        """``consumer`` is gone. Called by :meth:`Consumer.close`."""
        dispatch = self.dispatch
        if dispatch is None or consumer not in dispatch.consumers:
            return
        self.messages_out_closed += consumer.messages_out
        self.bytes_out_closed += consumer.bytes_out
        self.chunks_out_closed += consumer.chunks_out
        self.messages_acked_closed += consumer.messages_acked
        self.messages_redelivered_closed += consumer.messages_redelivered
        self.draining_cleared_closed += consumer.draining_cleared
        self.last_consumed_ms = max(self.last_consumed_ms, consumer.last_consumed_ms)
        self.last_flow_ms = max(self.last_flow_ms, consumer.last_flow_ms)
        self.last_acked_ms = max(self.last_acked_ms, consumer.last_acked_ms)
        with Contained(self, "removing a consumer"):
            dispatch.remove(consumer)
            if not dispatch.consumers:
                dispatch.close()
        if self.dispatch is not dispatch or dispatch.consumers:
            return
        self.dispatch = None
        self._left_alone()

    def _left_alone(self) -> None:
        """Its last consumer is gone, and its dispatch."""
        self.cursor.end_use()
        self.cursor.reading.deactivate()
        self._drop_reader()
        self.redeliveries.tidy()
        if not self.is_durable and self._fence is None:
            self._vanish()

    def vanish_if_alone(self) -> None:
        """A non-durable one that nobody uses ends; while it is being moved its consumers may come back."""
        is_used = self.is_durable or self.consumers or self._fence is not None
        if not is_used and self.topic.subscriptions.get(self.name) is self:
            self._vanish()

    async def disconnect_consumers(self) -> None:
        """Tell all consumers to subscribe again. Nothing is dispatched any more: not to those whose turn comes last."""
        if self.dispatch is not None:
            self.dispatch.close()
            await send_away(self.consumers, self.services.runtime.clock)

    # ---- dispatch ----

    def wake(self) -> None:
        """Dispatch if there are consumers."""
        dispatch = self.dispatch
        if dispatch is not None:
            with dispatch.contained:
                dispatch.wake()

    def joined(self) -> None:
        """As :meth:`wake`, for one that joined: once for all that join in a turn, for each look is at all of them."""
        if len(self.consumers) > 1 and self.dispatch is not None:
            self.dispatch.wake_later()
        else:
            self.wake()

    def now_ms(self) -> int:
        """Wall-clock time of the broker."""
        return self.services.runtime.clock.wall_ms()

    def recent_candidates(self) -> RecentCandidates | None:
        """What is known of entries dispatched lately; None if this is its topic's only subscription."""
        return self.services.recent_candidates if len(self.topic.subscriptions) > 1 else None

    async def claim(self) -> None:
        """Raise LedgerFencedError if another broker owns the topic."""
        await self.topic.ledger.stored.claim()

    def open_reader(self) -> CursorReader:
        """The reader of the cursor; one still busy with a read that was called off is used on."""
        if self._reader is None:
            self._reader = CursorReader(self.cursor, self._on_reader_idle, self)
        return self._reader

    def apply_unacked_limits(self) -> None:
        """The topic's limits of unacknowledged messages may have changed."""
        if isinstance(self.dispatch, SharedDispatch):
            with Contained(self, "limits of unacknowledged messages"):
                self.dispatch.limit_unacked(self.topic.unacked_limits)

    @property
    def throttled(self) -> dict[str, int]:
        """How often a rate held its dispatch, under the names of Pulsar's statistics."""
        if self._throttled is None:
            self._throttled = {}
        return self._throttled

    @property
    def throttled_counts(self) -> Mapping[str, int]:
        """The same, to be read."""
        return self._throttled or {}

    def throttles(self) -> tuple[DispatchThrottle, ...]:
        """The rates its dispatch has to keep: the broker's, the topic's, its own."""
        before, self._throttle = self._throttle, self.topic.throttles.of_subscription(self.name, self._throttle)
        if before is not None and before is not self._throttle:
            before.close()
        shared = self.topic.throttles.dispatch
        return shared if self._throttle is None else (*shared, self._throttle)

    def apply_rates(self) -> None:
        """Dispatch rates may have changed."""
        throttles = self.throttles()
        if self.dispatch is not None:
            with Contained(self, "dispatch rates"):
                self.dispatch.hold_to(throttles)

    def settings_changed(self) -> None:
        """The broker's configuration was changed at run time."""
        if self.dispatch is not None:
            with Contained(self, "changed settings"):
                self.dispatch.settings_changed()

    @property
    def unacked_count(self) -> int:
        """Messages sent and not acknowledged that count for the limits."""
        return self.dispatch.core.unacked_count if isinstance(self.dispatch, SharedDispatch) else 0

    @property
    def is_moving(self) -> bool:
        """Whether somebody moves the cursor now, or deletes it."""
        return self._fence is not None

    def is_at_end_of_topic(self) -> bool:
        """Whether the topic was terminated and everything is acknowledged, with nothing held back."""
        ledger = self.topic.ledger
        return (
            ledger.stored.terminated_position is not None
            and not ledger.extent.is_limited
            and self.cursor.backlog_count == 0
        )

    # ---- what breaks ----

    def broke(self, what: str, error: BaseException) -> None:
        """Its dispatch can not be trusted any more: consumers are sent away, and what they held comes again.

        If the failure is in what it shares with its topic, that is closed.
        """
        if unwound(error, _OF_THE_TOPIC):
            self.topic.broke(what, error)
            return
        name = subscription_name(self.topic.name, self.name)
        self.services.failures.note(BrokenPart.SUBSCRIPTION, name, what, error, is_held=True)
        with Contained(self.topic, "closing a subscription", is_last=True):
            self.cut_off()
            self.services.recount_unacked()

    def cut_off(self) -> None:
        """Send all consumers away without asking the dispatch, which may be in any state."""
        dispatch, self.dispatch = self.dispatch, None
        if dispatch is None:
            return
        self.redeliveries.drop()
        try:
            dispatch.close()
        finally:
            for consumer in list(dispatch.consumers):
                consumer.disconnect()
            if self._reader is not None and self._reader.is_busy:
                self._reader.rewind()
            self._left_alone()

    # ---- moving the cursor ----

    async def fence(self) -> None:
        """Begin to move the cursor: disconnect the consumers, keep new ones waiting. UnavailableError if somebody
        else does it now."""
        if self._fence is not None:
            raise UnavailableError(f"the cursor of subscription {self.name} is being moved already, try again")
        self._fence = asyncio.Event()
        self.moves += 1
        try:
            await self.disconnect_consumers()
            if self._reader is not None:
                await self._reader.wait_idle()
        except asyncio.CancelledError as error:
            self.unfence()
            raise error

    def unfence(self) -> None:
        """The cursor stands: let consumers join."""
        fence, self._fence = self._fence, None
        if fence is not None:
            fence.set()
        self.redeliveries.drop()
        if not self.is_durable and not self.consumers:
            asyncio.get_running_loop().call_later(NON_DURABLE_GRACE_S, self.vanish_if_alone)

    async def close(self) -> None:
        """The topic is unloaded: disconnect consumers, save the cursor."""
        await self.disconnect_consumers()
        if self._reader is not None:
            await self._reader.wait_idle()
        if self.transactions.used is not None:
            await self.transactions.used.close()
        if self.is_durable:
            await self.cursor.close()

    async def delete(self, force: bool = False) -> None:
        """Remove the subscription and its cursor. PreconditionFailedError if it has consumers, unless ``force``."""
        if self.consumers and not force:
            raise PreconditionFailedError("Subscription has active connected consumers")
        await self.fence()

        async def to_its_end() -> None:
            try:
                await self.transactions.begin_deletion()
                if self.is_durable:
                    # From here on it is gone, whatever becomes of us: a log without a cursor is nobody's.
                    await self.topic.ledger.delete_cursor(self.cursor.name)
                    await self.transactions.delete_log()
                else:
                    await self.cursor.close()
                self._forget()
            except GemingaError as error:
                await self.transactions.deletion_failed()
                raise error
            finally:
                self.unfence()

        # Though who asks is called off: after half a deletion its transactions' log could not be used.
        await carried_out(to_its_end(), name=f"delete subscription {self.name}", part=self.topic)

    @property
    def delivery_tick_ms(self) -> int:
        """How exactly this subscription wants delayed messages: its property ``delayedDeliveryTickTimeMillis`` if that
        is a whole number of milliseconds, else what holds for the topic."""
        text = self.properties.get(TICK_PROPERTY, "")
        if text.isdecimal() and len(text) <= TICK_DIGITS_MAX and int(text):
            return int(text)
        return self.topic.delivery_tick_ms

    @property
    def properties(self) -> Mapping[str, str]:
        """What the subscription's maker noted with it."""
        return self.cursor.cursor_properties

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties."""
        await self.cursor.set_cursor_properties(dict(properties))

    # ---- private ----

    def _drop_reader(self) -> None:
        if self._reader is not None and not self._reader.is_busy:
            self._reader = None

    def _on_reader_idle(self) -> None:
        if self.dispatch is None:
            self._reader = None
        else:
            self.dispatch.wake()

    def _vanish(self) -> None:
        """A non-durable subscription ends with its last consumer."""
        self._forget()
        spawn(self.cursor.close(), name=f"close cursor {self.name}", part=self.topic)

    def _forget(self) -> None:
        if self.topic.subscriptions.get(self.name) is self:
            if self.snapshots is not None:
                self.snapshots.deleted()
            del self.topic.subscriptions[self.name]
            self.topic.forget_delays()
