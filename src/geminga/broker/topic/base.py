"""What persistent and non-persistent topics share: name, producers and their access, subscriptions, closing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from geminga.broker.core.deletion import TopicFacts
from geminga.broker.failures import BrokenPart, subscription_name
from geminga.broker.policies.core.limit_rows import AUTO_SUBSCRIPTION_CREATION
from geminga.broker.policies.core.record_rows import ENCRYPTION
from geminga.broker.policies.rules import TopicRules
from geminga.broker.publishing.life import TopicLife
from geminga.broker.publishing.producers import TOLD_A_TURN, TopicProducers
from geminga.broker.publishing.rates import HeldRates
from geminga.broker.subscription.limits import NO_LIMITS, ConsumerCounts
from geminga.broker.subscription.rates import Rates
from geminga.broker.topic.ports import TakesTransactions, TopicOfTransactions
from geminga.broker.topic.producer import Producer
from geminga.broker.topic.publish import Publishing
from geminga.broker.topic.services import TopicServices
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    NotAllowedError,
    SubscriptionNotFoundError,
    invariant,
)
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import Contained, Turns, ended_in_turns, get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.core.new_subscription import Properties
    from geminga.broker.filters.ports import AsksFilters
    from geminga.broker.subscription.consumer import Consumer, ConsumerConnection
    from geminga.broker.subscription.stats import AnySubscription

_log = get_logger(__name__)

#: What holds until the policies are read; one object for all topics.
NO_RULES: Final = TopicRules()
#: Subscriptions that begin to close in one turn of the loop: a topic may have ten thousand.
CLOSED_A_TURN: Final = 64


class Topic:
    """A loaded topic. Subclasses store messages or do not."""

    __slots__ = (
        "attendance",
        "consumer_counts",
        "filters",
        "is_encryption_required",
        "life",
        "limits",
        "loaded_ms",
        "name",
        "producers",
        "publishing",
        "rates",
        "rules",
        "schema_topic",
        "services",
        "throttles",
        "transactions",
        "until_shown",
    )

    def __init__(
        self,
        services: TopicServices,
        name: TopicName,
        life: TopicLife,
        publishing: Publishing,
        attendance: TopicProducers[Producer],
    ) -> None:
        """``life``, ``publishing`` and ``attendance`` are of this topic alone."""
        self.services = services
        self.name = name
        #: Whose schemas its messages have.
        self.schema_topic = name
        #: Returns when these may be shown here. Raises UnavailableError. None: they are the topic's own.
        self.until_shown: Callable[[], Awaitable[None]] | None = None
        #: Whether it may be used.
        self.life = life
        #: What takes its batches.
        self.publishing = publishing
        #: Who lets producers in and out.
        self.attendance = attendance
        #: By producer name; those that wait for exclusive access are not here.
        self.producers: Mapping[str, Producer] = attendance.by_name
        self.loaded_ms = services.runtime.clock.wall_ms()
        #: Rates between scrapes, kept by the statistics.
        self.rates: Rates | None = None
        #: How many producers, consumers and subscriptions it may have.
        self.limits = NO_LIMITS
        #: How many consumers it has.
        self.consumer_counts = ConsumerCounts()
        #: What broker, namespace and topic want.
        self.rules = NO_RULES
        #: Who is asked which entries its subscriptions get; None: they get all.
        self.filters: AsksFilters | None = None
        #: What holds its clients to rates.
        self.throttles = HeldRates(
            None if name.is_system else services.throttles,
            services.runtime.clock,
            self,
            publishing,
        )
        #: Whether what is not encrypted is refused.
        self.is_encryption_required = False
        #: None: it takes no messages of transactions.
        self.transactions: TopicOfTransactions | None = None

    @property
    def is_closing(self) -> bool:
        """Whether it is being unloaded or deleted: nothing new may attach."""
        return self.life.is_closing

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

    async def load(self) -> None:
        """Bring back what is stored of it: subscriptions, epochs, sequence ids."""
        await self.apply_policies()

    async def apply_policies(self) -> None:
        """The namespace's policies changed, or are applied for the first time."""
        self.rules = await self.services.rules(self.name)
        self.limits = self.rules.limits
        self.attendance.most = self.limits.producers
        self.attendance.most_from_one = 0 if self.name.is_system else self.services.config.producers_per_address_max
        await _require_encryption(self, self.rules[ENCRYPTION])
        if not self.name.is_system:
            self.filters = self.services.entry_filters(self.name, self.rules, self.filters)
        if self.throttles.hold_to(self.rules.rates, await self.services.group_throttles(self.rules)):
            for producer in self.producers.values():
                producer.connection.publishes.publish_is_rated()

    async def use_transactions(self) -> TakesTransactions:
        """The buffer, made with the first use. Raises NotAllowedError if the topic takes none, GemingaError."""
        raise NotAllowedError(f"Topic {self.name} takes no transactions")

    async def close_storage(self) -> None:
        """Close what is below, after producers and consumers left."""

    async def claim_storage(self) -> None:
        """Before anything is deleted: raise LedgerFencedError if another broker owns what is stored."""

    async def note_deletion(self, *, is_judged: bool = False) -> None:
        """Note durably that it is going: cut off from now on, whoever loads it deletes the rest.

        ``is_judged``: nobody asked for it, and it stays where it has policies of its own then, which go first. Raises
        LedgerFencedError as :meth:`claim_storage`.
        """

    async def delete_storage(self) -> None:
        """Remove everything stored, after producers and consumers left."""

    # ---- subscriptions

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """Attach a consumer, creating its subscription if need be; raises GemingaError."""
        raise AssertionError(f"{type(self).__name__} has no subscriptions")

    async def create_subscription(
        self, name: str, position: Position, properties: Properties | None = None, *, is_replicated: bool = False
    ) -> AnySubscription:
        """Create a durable subscription that starts at ``position``; raises ConflictError if it exists.

        ``is_replicated``: it is alike in all clusters of the topic from the beginning.
        """
        raise AssertionError(f"{type(self).__name__} has no subscriptions")

    async def delete_subscription(self, name: str, *, force: bool = False) -> None:
        """Delete a subscription; raises SubscriptionNotFoundError, PreconditionFailedError if it is in use."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFoundError(f"Subscription {name} of {self.name} does not exist")
        await subscription.delete(force)
        self.life.touch()

    async def check_may_subscribe(self, request: pb.CommandSubscribe) -> bool:
        """Raise if this type of subscription is off, or the consumer's schema does not fit.

        Returns whether a subscription that is not there may be created.
        """
        self.life.check_open()
        self.services.failures.check(BrokenPart.SUBSCRIPTION, (subscription_name(self.name, request.subscription),))
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

    # ---- life

    @property
    def is_in_use(self) -> bool:
        """Whether a producer or a consumer is connected."""
        return bool(self.producers) or any(subscription.consumers for subscription in self.subscriptions.values())

    def deletion_facts(self) -> TopicFacts:
        """What ``core.deletion`` must know of it; none of it changes by asking."""
        consumers = sum(len(subscription.consumers) for subscription in self.subscriptions.values())
        return TopicFacts(
            idle_ms=self.life.idle_ms,
            is_system=self.name.is_system,
            clients=len(self.producers) + consumers,
            subscriptions=len(self.subscriptions),
        )

    async def detach_all(self) -> None:
        """Send every producer and consumer away; their clients look the topic up again, or are told where it is."""
        self.life.close(self.services.departure_of(self.name))
        self.throttles.end()
        await self.attendance.disconnect()
        for result in await ended_in_turns(
            (subscription.close() for subscription in list(self.subscriptions.values())), CLOSED_A_TURN
        ):
            if isinstance(result, GemingaError):
                # Its cursor is recovered from what was saved before.
                _log.warning("%s: a subscription was not closed cleanly: %s", self.name, result)
            elif result is not None:
                raise result

    def broke(self, what: str, error: BaseException) -> None:
        """It can not be trusted any more: its clients are cut off, and it is loaded anew from what is stored."""
        if not self.life.is_closing:
            self.life.close()
            self.services.failures.note(BrokenPart.TOPIC, str(self.name), what, error, is_held=True)
            self.services.drop_soon(self)

    def cut_off(self) -> None:
        """Send every producer and consumer away, whatever state they are in; nothing of it is saved."""
        self.life.close()
        self.throttles.end()
        self.attendance.cut_off(self.services.whole)
        for subscription in list(self.subscriptions.values()):
            with Contained(self.services.whole, "cutting a subscription off", is_last=True):
                subscription.cut_off()

    async def drop_storage(self) -> None:
        """Let go of what is below without saving what this object makes of it."""

    def check_invariants(self) -> None:
        """Raise InvariantError where producers and their access disagree."""
        for name, producer in self.producers.items():
            invariant(producer.topic is self, f"{self.name}: producer {name} is of another topic")
        self.attendance.check_invariants()
        self.consumer_counts.check_invariants(self.subscriptions.values())


async def _require_encryption(topic: Topic, is_required: bool) -> None:
    """Producers that do not encrypt are sent away when it begins; they are refused when they come back."""
    is_new, topic.is_encryption_required = is_required and not topic.is_encryption_required, is_required
    if is_new:
        those = [producer for producer in topic.attendance.all() if not producer.may_be_encrypted]
        await Turns(topic.life.clock, steps_max=TOLD_A_TURN).with_each(Producer.disconnect_soon, those)


def attached(life: TopicLife, consumer: Consumer) -> Consumer:
    """The one that was attached; raises what is said of a topic that is closing by now."""
    life.touch()
    if life.is_closing:
        # Without CLOSE_CONSUMER, which the client would get before the answer to its SUBSCRIBE.
        consumer.close()
        raise life.closing_error()
    return consumer
