"""Subscriptions of non-persistent topics: messages go straight to consumers with permits, or are dropped.

Nothing is stored, nothing is sent again; the types choose among consumers as on persistent topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.dispatch.hash_ranges import (
    ConsistentHashRing,
    HashRangeAutoSplit,
    StickyKeySelector,
    StickyRanges,
)
from geminga.broker.core.dispatch.shared import Candidate, Receivers
from geminga.broker.core.dispatch.single_active import SingleActiveDispatcher
from geminga.broker.subscription.consumer import (
    Consumer,
    ConsumerConnection,
    Exclusive,
    Failover,
    Key_Shared,
    check_key_policy,
    send_away,
)
from geminga.broker.subscription.entry_filter import sticky_key
from geminga.broker.subscription.limits import check_consumer_limit, is_reached
from geminga.broker.subscription.ports import SubscriptionServices, SubscriptionTopic
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.subscribe import (
    check_new_subscription,
    make_room,
    new_consumer,
    register,
)
from geminga.model import Position
from geminga.model.errors import ConsumerAssignError, ConsumerBusyError, PreconditionFailedError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.keys import murmur3_32
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.numbers import batch_size

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from geminga.broker.filters.judging import SubscriptionFilter
    from geminga.broker.filters.passing import PassingStage
    from geminga.broker.filters.ports import AsksFilters

#: The position of every message of a non-persistent topic, as in Pulsar.
NO_POSITION: Final = Position(0, 0)


class NonPersistentSubscriptionTopic(SubscriptionTopic, Protocol):
    """A topic without a log."""

    @property
    def filters(self) -> AsksFilters | None:
        """Who is asked which entries its subscriptions get; None: they get all."""
        ...

    @property
    def hides(self) -> Sequence[Callable[[Position, pb.MessageMetadata], bool]]:
        """Nothing, ever."""
        ...

    @property
    def subscriptions(self) -> MutableMapping[str, NonPersistentSubscription]:
        """Its subscriptions by name."""
        ...


class NonPersistentSubscription:
    """A subscription without a cursor."""

    __slots__ = (
        "_all",
        "_receivers",
        "_selector",
        "_single",
        "_stage",
        "bytes_out_closed",
        "chunks_out_closed",
        "draining_cleared_closed",
        "filter",
        "is_durable",
        "last_acked_ms",
        "last_consumed_ms",
        "last_flow_ms",
        "messages_acked_closed",
        "messages_dropped",
        "messages_out_closed",
        "messages_redelivered_closed",
        "name",
        "rates",
        "topic",
        "type",
    )

    def __init__(self, topic: NonPersistentSubscriptionTopic, name: str, *, is_durable: bool = True) -> None:
        self.topic = topic
        self.name = name
        #: Whether it stays without consumers (it keeps nothing, but its statistics and its name do).
        self.is_durable = is_durable
        self.type: pb.CommandSubscribe.SubType | None = None
        #: Messages that no consumer had a permit for.
        self.messages_dropped = 0
        self.messages_out_closed = 0
        self.chunks_out_closed = 0
        self.bytes_out_closed = 0
        self.messages_acked_closed = 0
        self.messages_redelivered_closed = self.draining_cleared_closed = 0
        self.last_consumed_ms = self.last_flow_ms = self.last_acked_ms = 0
        self.rates: Rates | None = None
        #: For Exclusive and Failover.
        self._single: SingleActiveDispatcher[Consumer] | None = None
        #: For Shared and Key_Shared; and those of them that can be sent something, in turn.
        self._all: list[Consumer] = []
        self._receivers: Receivers[Consumer] = Receivers()
        self._selector: StickyKeySelector | None = None
        #: Its entry filters, with what they said; None: it never had any.
        self.filter: SubscriptionFilter | None = None
        #: Where they judge what is published; None: nothing was since there are some.
        self._stage: PassingStage | None = None

    @property
    def properties(self) -> Mapping[str, str]:
        """It keeps none."""
        return {}

    @property
    def services(self) -> SubscriptionServices:
        """What it uses of the broker."""
        return self.topic.services

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The connected consumers."""
        return self._single.consumers if self._single is not None else self._all

    @property
    def selector(self) -> StickyKeySelector | None:
        """Who gets which key, for Key_Shared."""
        return self._selector

    @property
    def active_consumer(self) -> Consumer | None:
        """The one that gets messages, for Exclusive and Failover."""
        return self._single.active if self._single is not None else None

    def now_ms(self) -> int:
        """Wall-clock time of the broker."""
        return self.services.runtime.clock.wall_ms()

    def wake(self) -> None:
        """Permits came: nothing waits here."""

    def joined(self) -> None:
        """As :meth:`wake`."""

    async def add_consumer(self, consumer: Consumer) -> None:
        """Let ``consumer`` join; ConsumerBusyError or ConsumerAssignError if it does not fit."""
        if self.consumers and self.type != consumer.type:
            raise ConsumerBusyError("Subscription is of different type")
        if self._all and consumer.type == Key_Shared:
            check_key_policy(self._all[0].key_shared_meta, consumer.key_shared_meta)
        if is_reached(self.topic.limits.consumers_per_subscription, len(self.consumers)):
            raise ConsumerBusyError("Subscription reached max consumers limit")
        if not self.consumers:
            self._reset(consumer)
        if self._single is not None:
            is_changed = self._single.add(consumer)
            if self.type == Failover:
                self._notify(None if is_changed else consumer)
        else:
            if self._selector is not None:
                if isinstance(self._selector, StickyRanges):
                    meta = consumer.key_shared_meta or pb.KeySharedMeta()
                    self._selector.want(consumer, [(r.start, r.end) for r in meta.hashRanges])
                self._selector.add(consumer)
            self._all.append(consumer)
            self._receivers.join(consumer)
        self.type = consumer.type
        self.topic.consumer_counts.joined(consumer)

    def detach(self, consumer: Consumer) -> None:
        """``consumer`` is gone. Called by :meth:`Consumer.close`."""
        if consumer not in self.consumers:
            return
        self.messages_out_closed += consumer.messages_out
        self.bytes_out_closed += consumer.bytes_out
        self.chunks_out_closed += consumer.chunks_out
        self.messages_acked_closed += consumer.messages_acked
        self.last_consumed_ms = max(self.last_consumed_ms, consumer.last_consumed_ms)
        self.last_flow_ms = max(self.last_flow_ms, consumer.last_flow_ms)
        self.last_acked_ms = max(self.last_acked_ms, consumer.last_acked_ms)
        if self._single is not None:
            if self._single.remove(consumer) and self.type == Failover:
                self._notify(None)
        else:
            self._all.remove(consumer)
            self._receivers.leave(consumer)
            if self._selector is not None:
                self._selector.remove(consumer)
        if not self.consumers and not self.is_durable:
            self._forget()

    def dispatch(self, entries: Sequence[bytes]) -> None:
        """Send ``entries``, as the producer sent them, to whoever can take them now; drop the rest."""
        if self.topic.filters is None:
            # What waits for a verdict was published before.
            self._end_filtering()
            self._deliver(entries)
        elif self.consumers:
            self._filtering(self.topic.filters).take(entries)
        else:
            self._drop(entries)

    def _filtering(self, filters: AsksFilters) -> PassingStage:
        if self._stage is None or self._stage.filters is not filters:
            from geminga.broker.filters.passing import PassingStage

            if self._stage is not None:
                self._stage.close()

            def receivers() -> Sequence[Consumer]:
                active = self.active_consumer
                return self.consumers if active is None else [active]

            self._stage = PassingStage(
                self, filters, NO_POSITION, receivers=receivers, deliver=self._deliver, drop=self._drop
            )
        return self._stage

    def _drop(self, entries: Sequence[bytes]) -> None:
        for data in entries:
            metadata = peek_metadata(data)
            self.messages_dropped += 0 if metadata is None else batch_size(metadata, len(data))

    def _deliver(self, entries: Sequence[bytes]) -> None:
        groups: dict[Consumer, list[Candidate]] = {}
        for data in entries:
            metadata = peek_metadata(data)
            if metadata is None:
                continue
            consumer = self._choose(metadata)
            if consumer is None:
                self.messages_dropped += batch_size(metadata, len(data))
                continue
            candidate = Candidate(
                NO_POSITION, data, batch_size(metadata, len(data)), is_chunk=metadata.num_chunks_from_msg > 1
            )
            consumer.note_sent(candidate.message_count, 1)
            groups.setdefault(consumer, []).append(candidate)
        now_ms = self.now_ms()
        for consumer, group in groups.items():
            consumer.send(group, redeliveries=None, now_ms=now_ms)

    @property
    def unacked_count(self) -> int:
        """Nothing is acknowledged here."""
        return 0

    def broke(self, what: str, error: BaseException) -> None:
        """It keeps nothing, and its topic neither: that is closed."""
        self.topic.broke(what, error)

    def cut_off(self) -> None:
        """Send all consumers away, whatever state it is in."""
        consumers = list(self.consumers)
        self._end_filtering()
        self._single, self._selector, self._all, self._receivers = None, None, [], Receivers()
        for consumer in consumers:
            consumer.disconnect()

    async def disconnect_consumers(self) -> None:
        """Tell all consumers to subscribe again."""
        await send_away(self.consumers, self.services.runtime.clock)
        for consumer in list(self.consumers):
            consumer.disconnect()  # who joined meanwhile

    async def close(self) -> None:
        """The topic is unloaded."""
        self._end_filtering()
        await self.disconnect_consumers()

    def _end_filtering(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    async def delete(self, force: bool = False) -> None:
        """Remove the subscription. PreconditionFailedError if it has consumers, unless ``force``."""
        if self.consumers and not force:
            raise PreconditionFailedError("Subscription has active connected consumers")
        self._end_filtering()
        await self.disconnect_consumers()
        self._forget()

    def _choose(self, metadata: pb.MessageMetadata) -> Consumer | None:
        if self._single is not None:
            active = self._single.active
            return active if active is not None and active.can_receive() else None
        if self._selector is not None:
            selected = self._selector.select(self._selector.sticky_hash(murmur3_32(sticky_key(metadata))))
            return selected if isinstance(selected, Consumer) and selected.can_receive() else None
        return self._receivers.next()

    def _reset(self, consumer: Consumer) -> None:
        """The first consumer decides the type."""
        config = self.services.config
        self._single, self._selector, self._all, self._receivers = None, None, [], Receivers()
        if consumer.type in (Exclusive, Failover):
            name = self.topic.name
            by_index = name.is_partition and not config.active_consumer_failover_consistent_hashing
            self._single = SingleActiveDispatcher(
                is_exclusive=consumer.type == Exclusive,
                partition_index=name.partition if by_index else -1,
                topic=str(name),
                hash_of=murmur3_32,
            )
        elif consumer.type == Key_Shared:
            meta = consumer.key_shared_meta or pb.KeySharedMeta()
            if meta.keySharedMode == pb.STICKY:
                if not meta.hashRanges:
                    raise ConsumerAssignError("Ranges for KeyShared policy must not be empty")
                self._selector = StickyRanges()
            elif config.subscription_key_shared_use_consistent_hashing:
                self._selector = ConsistentHashRing(
                    config.subscription_key_shared_consistent_hashing_replica_points, murmur3_32
                )
            else:
                self._selector = HashRangeAutoSplit()

    def _notify(self, only: Consumer | None) -> None:
        for consumer in self.consumers if only is None else (only,):
            consumer.notify_active_change(is_active=consumer is self.active_consumer)

    def _forget(self) -> None:
        if self.topic.subscriptions.get(self.name) is self:
            del self.topic.subscriptions[self.name]


async def subscribe_non_persistent(
    topic: NonPersistentSubscriptionTopic, connection: ConsumerConnection, request: pb.CommandSubscribe
) -> Consumer:
    """A new consumer of ``request.subscription``, which is created if it must."""
    subscription = topic.subscriptions.get(request.subscription)
    if subscription is not None:
        await make_room(subscription, connection, request.subType)
        # It may have ended with the consumer that was dead.
        subscription = topic.subscriptions.get(request.subscription)
    check_consumer_limit(topic, topic.subscriptions.values(), connection.peer)
    if subscription is None:
        check_new_subscription(topic, request.subscription, len(topic.subscriptions))
        subscription = NonPersistentSubscription(topic, request.subscription, is_durable=request.durable)
        topic.subscriptions[request.subscription] = subscription
    consumer = new_consumer(connection, subscription, request)
    try:
        await subscription.add_consumer(consumer)
    finally:
        if not subscription.consumers and not subscription.is_durable:
            subscription._forget()
    register(connection, consumer)
    return consumer
