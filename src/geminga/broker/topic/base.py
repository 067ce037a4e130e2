"""What persistent and non-persistent topics share: name, producers and their access, subscriptions, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from geminga.broker.core.deletion import TopicFacts
from geminga.broker.core.producer_access import Granted, ProducerAccess, Queued
from geminga.broker.failures import Kind, subscription_name
from geminga.broker.policies.core.limit_rows import AUTO_SUBSCRIPTION_CREATION
from geminga.broker.policies.core.rates import NO_RATES, TopicRates
from geminga.broker.policies.rules import TopicRules
from geminga.broker.subscription.limits import NO_LIMITS, is_reached
from geminga.broker.subscription.rates import Rates
from geminga.broker.topic.ports import TakesTransactions
from geminga.broker.topic.producer import Producer
from geminga.broker.topic.publish import PublishBatch
from geminga.broker.topic.publish_throttle import PublishThrottle
from geminga.broker.topic.services import TopicServices
from geminga.broker.topic.throttling import NO_THROTTLES, TopicThrottling
from geminga.managed_ledger import AppendResult
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    NotAllowedError,
    ProducerBusyError,
    ProducerFencedError,
    SubscriptionNotFoundError,
    TopicClosingError,
    TopicTerminatedError,
    invariant,
)
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import Contained, get_logger, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.core.departure import Departure, Farewell, Leaving
    from geminga.broker.subscription.consumer import Consumer, ConsumerConnection
    from geminga.broker.subscription.non_persistent import NonPersistentSubscription
    from geminga.broker.subscription.subscription import Subscription

    AnySubscription = Subscription | NonPersistentSubscription

_log = get_logger(__name__)

#: What holds until the policies are read; one object for all topics.
NO_RULES: Final = TopicRules()
#: What clients are told, in Pulsar's words.
TERMINATED_TEXT: Final = "Topic was already terminated"


class Topic:
    """A loaded topic. Subclasses store messages or do not."""

    __slots__ = (
        "_access",
        "bytes_in",
        "departure",
        "has_chunks",
        "is_closing",
        "is_encryption_required",
        "last_active_s",
        "last_published_s",
        "limits",
        "loaded_ms",
        "messages_in",
        "name",
        "producers",
        "publish_throttles",
        "rates",
        "rules",
        "services",
        "throttling",
    )

    def __init__(self, services: TopicServices, name: TopicName) -> None:
        self.services = services
        self.name = name
        #: By producer name; those that wait for exclusive access are here too.
        self.producers: dict[str, Producer] = {}
        #: Messages and bytes published since it was loaded; read at scrape time.
        self.messages_in = 0
        self.bytes_in = 0
        #: Whether a part of a larger message was published since it was loaded.
        self.has_chunks = False
        self.loaded_ms = services.runtime.clock.wall_ms()
        #: When something was last published, on the monotonic clock; None: not since it was loaded.
        self.last_published_s: float | None = None
        #: Rates between scrapes, kept by the statistics.
        self.rates: Rates | None = None
        #: When a producer, consumer or subscription last came, went or was seen; on the monotonic clock.
        self.last_active_s = services.runtime.clock.monotonic()
        #: It is being unloaded or deleted: nothing new may attach.
        self.is_closing = False
        #: It goes to another broker: its clients are told of that one, when it is there.
        self.departure: Departure | None = None
        #: How many producers, consumers and subscriptions it may have.
        self.limits = NO_LIMITS
        #: What broker, namespace and topic want.
        self.rules = NO_RULES
        #: What holds its clients to rates; None: there never was a rate.
        self.throttling: TopicThrottling | None = None
        #: By which its publishes are counted; prebuilt, empty as a rule.
        self.publish_throttles: tuple[PublishThrottle, ...] = ()
        self.is_encryption_required = services.config.encryption_required
        #: Made when the first producer comes; None: no producer yet.
        self._access: ProducerAccess[Producer] | None = None

    @property
    def last_published_ms(self) -> int:
        """When something was last published, ms since the epoch; 0: not since it was loaded."""
        if self.last_published_s is None:
            return 0
        clock = self.services.runtime.clock
        return clock.wall_ms() - int((clock.monotonic() - self.last_published_s) * 1000)

    # ---- what subclasses answer

    @property
    def created_ms(self) -> int:
        """When it was made, ms since the epoch."""
        return self.loaded_ms

    @property
    def stored_bytes(self) -> int:
        """Bytes of the messages that are stored."""
        return 0

    @property
    def subscriptions(self) -> Mapping[str, AnySubscription]:
        """Subscriptions by name."""
        raise AssertionError(f"{type(self).__name__} has no subscriptions")

    @property
    def is_persistent(self) -> bool:
        """Whether messages are stored."""
        return self.name.is_persistent

    @property
    def last_position(self) -> Position:
        """The last position that is stored."""
        raise AssertionError(f"{type(self).__name__} has no last position")

    @property
    def max_read_position(self) -> Position:
        """The last position that readers may get: what the topic answers who asks for its last message."""
        return self.last_position

    @property
    def is_terminated(self) -> bool:
        """Whether nothing can be published any more."""
        return False

    def publish(self, batch: PublishBatch) -> None:
        """Take the entries in order and see to the batch's answers; never raises."""
        raise AssertionError(f"{type(self).__name__} takes no messages")

    def published(self, batch: PublishBatch, result: AppendResult) -> None:
        """The next entries of a batch were stored, and answered."""

    def publish_failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """The next entries of a batch could not be stored, or nobody knows; their producer was told."""

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest stored sequence id of a producer, if deduplication knows; -1 otherwise."""
        return -1

    async def load(self) -> None:
        """Bring back what is stored of it: subscriptions, epochs, sequence ids."""
        await self.apply_policies()

    async def apply_policies(self) -> None:
        """The namespace's policies changed, or are applied for the first time."""
        self.rules = await self.services.rules(self.name)
        self.limits = self.rules.limits

    def hold_to(self, rates: TopicRates) -> None:
        """Hold its clients to these rates from now on, and to the broker's."""
        throttles = self.services.throttles()
        if self.throttling is None:
            if self.name.is_system or (rates == NO_RATES and throttles == NO_THROTTLES):
                return
            monotonic = self.services.runtime.clock.monotonic
            self.throttling = TopicThrottling(throttles, monotonic, self, self._published)
        elif not self.throttling.hold_to_broker(throttles) and rates == self.throttling.rates:
            return
        self.throttling.apply(rates)
        self.publish_throttles = self.throttling.publish
        for producer in self.producers.values():
            producer.connection.publishes.publish_is_rated()

    @property
    def publish_limited_times(self) -> int:
        """How often a connection was held by its publish rate, since it was loaded."""
        return 0 if self.throttling is None else self.throttling.publish_limited_times

    def _published(self) -> tuple[int, int]:
        return self.messages_in, self.bytes_in

    def _end_rates(self) -> None:
        """It goes: nobody waits for its rates."""
        self.publish_throttles = ()
        if self.throttling is not None:
            self.throttling.close()

    @property
    def takes_transactions(self) -> bool:
        """Whether messages of transactions may be published."""
        return False

    @property
    def transaction_buffer(self) -> TakesTransactions | None:
        """What takes messages of transactions; None: there was none yet."""
        return None

    async def use_transactions(self) -> TakesTransactions:
        """The buffer, made with the first use. Raises NotAllowedError if the topic takes none, GemingaError."""
        raise NotAllowedError(f"Topic {self.name} takes no transactions")

    def is_stored(self, batch: PublishBatch) -> bool:
        """Whether deduplication knows that all of it is there already."""
        del batch
        return False

    async def end_transaction(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """See :meth:`TakesTransactions.end`; raises NotAllowedError if the topic takes no transactions."""
        buffer = self.transaction_buffer or await self.use_transactions()
        await buffer.end(txn_id, commit=commit, low_watermark=low_watermark)

    async def store_epoch(self, epoch: int) -> None:
        """Make the epoch of exclusive access durable."""

    def stored_epoch(self) -> int | None:
        """The epoch of exclusive access as stored, None if there never was one."""
        return None

    async def close_storage(self) -> None:
        """Close what is below, after producers and consumers left."""

    async def claim_storage(self) -> None:
        """Before anything is deleted: raise LedgerFencedError if another broker owns what is stored."""

    async def delete_storage(self) -> None:
        """Remove everything stored, after producers and consumers left."""

    # ---- producers

    async def add_producer(self, producer: Producer) -> bool:
        """Let a producer in; False if it waits for exclusive access (it hears through ``producer.granted()``).

        Raises TopicClosingError, TopicTerminatedError, ProducerBusyError, ProducerFencedError, StorageError.
        """
        self._check_open()
        await self._make_room_for(producer)
        self._check_open()
        if is_reached(self.limits.producers, len(self.producers)):
            raise ProducerBusyError("Topic reached max producers limit")
        if self._access is None:
            self._access = ProducerAccess(self.stored_epoch())
        outcome = self._access.requested(producer, producer.name, producer.access_mode, producer.topic_epoch)
        self.producers[producer.name] = producer
        self.touch()
        if isinstance(outcome, Queued):
            return False
        await self._grant(outcome)
        return True

    def remove_producer(self, producer: Producer) -> None:
        """It is gone, connected or waiting; the next in the queue for exclusive access gets its turn."""
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            self.touch()
        if self._access is None:
            return
        granted = self._access.left(producer)
        if granted is not None:
            spawn(self._grant_waiting(granted), name=f"grant access to {self.name}", part=self)
        elif not self.producers and self._access.epoch == self.stored_epoch():
            # An idle topic holds nothing that can be made again.
            self._access = None

    async def _make_room_for(self, producer: Producer) -> None:
        existing = self.producers.get(producer.name)
        if existing is None:
            return
        if not _is_successor(producer, existing) and existing.connection is not producer.connection:
            # The old connection may be dead without our knowing; its end removes the old producer.
            await existing.connection.check_liveness()
            existing = self.producers.get(producer.name)
            if existing is None:
                return
        if not _is_successor(producer, existing):
            raise ProducerBusyError(f"Producer with name '{producer.name}' is already connected to topic {self.name}")
        existing.is_closed = True
        self.remove_producer(existing)

    async def _grant(self, granted: Granted[Producer]) -> None:
        producer = granted.token
        for fenced in granted.fenced:
            fenced.fence(ProducerFencedError(f"Fenced out by producer {producer.name}"))
        if producer.access_mode and granted.epoch is not None and granted.epoch != self.stored_epoch():
            try:
                await self.store_epoch(granted.epoch)
            except GemingaError:
                self.remove_producer(producer)
                raise
        producer.topic_epoch = granted.epoch

    async def _grant_waiting(self, granted: Granted[Producer]) -> None:
        producer = granted.token
        try:
            await self._grant(granted)
        except GemingaError as error:
            producer.fence(error)
            return
        if self.producers.get(producer.name) is producer:
            producer.granted()

    def _check_open(self) -> None:
        if self.is_closing:
            raise closing_error(self.name)
        if self.is_terminated:
            raise TopicTerminatedError(TERMINATED_TEXT)

    # ---- subscriptions

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """Attach a consumer, creating its subscription if need be; raises GemingaError."""
        raise AssertionError(f"{type(self).__name__} has no subscriptions")

    async def create_subscription(
        self, name: str, position: Position, properties: Mapping[str, str] | None = None
    ) -> AnySubscription:
        """Create a durable subscription that starts at ``position``; raises ConflictError if it exists."""
        raise AssertionError(f"{type(self).__name__} has no subscriptions")

    async def delete_subscription(self, name: str, *, force: bool = False) -> None:
        """Delete a subscription; raises SubscriptionNotFoundError, PreconditionFailedError if it is in use."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFoundError(f"Subscription {name} of {self.name} does not exist")
        await subscription.delete(force)
        self.touch()

    async def check_may_subscribe(self, request: pb.CommandSubscribe) -> bool:
        """Raise if this type of subscription is off, or the consumer's schema does not fit.

        Returns whether a subscription that is not there may be created.
        """
        if self.is_closing:
            raise closing_error(self.name)
        self.services.failures.check(Kind.SUBSCRIPTION, (subscription_name(self.name, request.subscription),))
        rules = await self.services.rules(self.name)
        type_name = pb.CommandSubscribe.SubType.Name(request.subType)
        if type_name not in rules.subscription_types:
            raise NotAllowedError(f"Topic[{self.name}] doesn't support {type_name} sub type!")
        await self.services.admit_consumer(self, request)
        return await self.may_create_subscriptions()

    async def may_create_subscriptions(self) -> bool:
        """Whether the policies let subscriptions be created on demand."""
        rules = await self.services.rules(self.name)
        return rules[AUTO_SUBSCRIPTION_CREATION]

    async def ensure_subscription(self, name: str, position: Position) -> None:
        """Create a durable subscription unless there is one of that name."""
        try:
            await self.create_subscription(name, position)
        except ConflictError:
            return

    def touch(self) -> None:
        """Something used the topic now."""
        self.last_active_s = self.services.runtime.clock.monotonic()

    # ---- life

    @property
    def is_in_use(self) -> bool:
        """Whether a producer or a consumer is connected."""
        return bool(self.producers) or any(subscription.consumers for subscription in self.subscriptions.values())

    def deletion_facts(self) -> TopicFacts:
        """What ``core.deletion`` must know of it; none of it changes by asking."""
        consumers = sum(len(subscription.consumers) for subscription in self.subscriptions.values())
        return TopicFacts(
            idle_ms=int((self.services.runtime.clock.monotonic() - self.last_active_s) * 1000),
            is_system=self.name.is_system,
            clients=len(self.producers) + consumers,
            subscriptions=len(self.subscriptions),
        )

    async def detach_all(self) -> None:
        """Send every producer and consumer away; their clients look the topic up again, or are told where it is."""
        self.is_closing = True
        self.departure = self.services.departure_of(self.name)
        self._end_rates()
        for producer in list(self.producers.values()):
            producer.disconnect()
        closing = [subscription.close() for subscription in list(self.subscriptions.values())]
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, GemingaError):
                # Its cursor is recovered from what was saved before.
                _log.warning("%s: a subscription was not closed cleanly: %s", self.name, result)
            elif result is not None:
                raise result

    def send_away(
        self, connection: Leaving, farewell: Farewell, departs: Callable[[], Callable[[], None]] | None = None
    ) -> None:
        """Send the command that closes a producer or consumer of the topic, now or when its next owner is there.

        ``departs`` hears of the latter, and gives what is called then.
        """
        if self.departure is None:
            connection.output.write_soon(farewell("", ""))
        else:
            self.departure.add(self.name, connection, farewell, None if departs is None else departs())

    def broke(self, what: str, error: BaseException) -> None:
        """It can not be trusted any more: its clients are cut off, and it is loaded anew from what is stored."""
        if not self.is_closing:
            self.is_closing = True
            self.services.failures.note(Kind.TOPIC, str(self.name), what, error, is_held=True)
            self.services.drop_soon(self)

    def cut_off(self) -> None:
        """Send every producer and consumer away, whatever state they are in; nothing of it is saved."""
        self.is_closing = True
        self._end_rates()
        for producer in list(self.producers.values()):
            with Contained(self.services.whole, "cutting a producer off", is_last=True):
                producer.disconnect()
        for subscription in list(self.subscriptions.values()):
            with Contained(self.services.whole, "cutting a subscription off", is_last=True):
                subscription.cut_off()

    async def drop_storage(self) -> None:
        """Let go of what is below without saving what this object makes of it."""

    def check_invariants(self) -> None:
        """Raise InvariantError where producers and their access disagree."""
        for name, producer in self.producers.items():
            invariant(producer.name == name and producer.topic is self, f"{self.name}: producer {name} is misplaced")
        if self._access is not None:
            self._access.check_invariants()


def closing_error(name: TopicName) -> TopicClosingError:
    """What a client is told that comes while the topic goes; it tries again."""
    return TopicClosingError(f"Topic {name} is being unloaded or deleted")


def _is_successor(producer: Producer, existing: Producer) -> bool:
    """Whether the client connects the same producer again on the same connection."""
    return (
        producer.producer_id == existing.producer_id
        and producer.connection is existing.connection
        and existing.epoch < producer.epoch
    )
