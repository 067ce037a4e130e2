"""SUBSCRIBE on a persistent topic: find or create the subscription, add the consumer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from geminga.broker.compacted.reads import noted_start
from geminga.broker.subscription.consumer import Consumer, ConsumerConnection, ConsumerSubscription, Exclusive
from geminga.broker.subscription.limits import check_consumer_limit, is_reached
from geminga.broker.subscription.messages import position_from
from geminga.broker.subscription.ports import SubscriptionTopic
from geminga.broker.subscription.seek import position_at_time, set_replicated
from geminga.broker.subscription.subscription import PersistentSubscriptionTopic, Subscription
from geminga.managed_ledger.rules.cursor import REPLICATED, REPLICATED_PROPERTY
from geminga.model import EARLIEST, LATEST, Position
from geminga.model.errors import (
    NotAllowedError,
    SubscriptionNotFoundError,
    UnavailableError,
)
from geminga.model.topic_name import TopicName, encode_name, is_internal_cursor, is_valid_named_entity
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import texts_of
from geminga.wire.pulsar.texts import subscription_refusal

if TYPE_CHECKING:
    from geminga.broker.subscription.non_persistent import NonPersistentSubscription

_log = get_logger(__name__)

#: Tries to join while the subscription vanishes or its Exclusive consumer turns out dead.
_ATTEMPTS_MAX: Final = 3
TAKEN_BY_READER: Final = "Non-durable subscription with the same name already exists."
#: Of a new subscription, where names are looked at.
UNFIT_NAME: Final = "the name of a new subscription consists of letters, digits and -=:._ here, not {!r}"


async def subscribe(
    topic: PersistentSubscriptionTopic,
    connection: ConsumerConnection,
    request: pb.CommandSubscribe,
    *,
    allow_creation: bool = True,
) -> Consumer:
    """A new consumer of ``request.subscription``, which is created if it must.

    ``allow_creation``: what policies say of subscriptions that do not exist. Raises SubscriptionNotFoundError,
    ConsumerBusyError, ConsumerAssignError, NotAllowedError, StorageError; UnavailableError if it is being deleted, or
    what it acknowledged in transactions can not be read.
    """
    check_subscription_name(topic.name, request.subscription)
    check_consumer_limit(topic, topic.subscriptions.values(), connection.peer)
    for _ in range(_ATTEMPTS_MAX):
        subscription = await _subscription_for(topic, request, allow_creation=allow_creation)
        try:
            consumer = await _joined(topic, subscription, connection, request)
        finally:
            # Of a Reader that was refused nothing stays.
            subscription.vanish_if_alone()
        if consumer is None:
            continue  # it ended or was deleted meanwhile
        if topic.subscriptions.get(request.subscription) is subscription:
            register(connection, consumer)
            return consumer
        consumer.close()
    raise UnavailableError(f"subscription {request.subscription} is being deleted, try again")


def register(connection: ConsumerConnection, consumer: Consumer) -> None:
    """It has joined, and is its connection's from now on. Raises UnavailableError, and closes it, where its client
    closed it while it was made, and has the next one of its id by now."""
    if consumer.consumer_id in connection.members.consumers:
        consumer.close()
        raise UnavailableError("Consumer is already present on the connection")
    connection.members.consumers[consumer.consumer_id] = consumer


async def _joined(
    topic: PersistentSubscriptionTopic,
    subscription: Subscription,
    connection: ConsumerConnection,
    request: pb.CommandSubscribe,
) -> Consumer | None:
    """None: the subscription is not the topic's any more."""
    # It may take a while, and who is refused changes nothing: what is looked at below is as it is when it joins.
    await subscription.transactions.require()
    if request.replicate_subscription_state and request.durable:
        if topic.services.config.replicated_subscriptions_enabled:
            await set_replicated(subscription, True)
        else:
            _log.info("%s: %s is not replicated: enableReplicatedSubscriptions=false", topic.name, subscription.name)
    consumer = new_consumer(connection, subscription, request)
    await make_room(subscription, connection, consumer.type)
    if topic.subscriptions.get(request.subscription) is not subscription:
        return None
    await subscription.add_consumer(consumer)
    return consumer


async def create_subscription(
    topic: PersistentSubscriptionTopic,
    name: str,
    position: Position = LATEST,
    *,
    properties: Mapping[str, str] | None = None,
    is_replicated: bool = False,
) -> Subscription:
    """The durable subscription ``name``, created at ``position`` (the next entry to read) if it does not exist.

    ``is_replicated``: one that is made is alike in other clusters from the beginning. Raises NotAllowedError for a name
    that it can not have, or where there are as many as there may be.
    """
    check_subscription_name(topic.name, name)
    existing = topic.subscriptions.get(name)
    if existing is not None:
        return existing
    if topic.services.config.strict_subscription_names and not is_valid_named_entity(name):
        raise NotAllowedError(UNFIT_NAME.format(name))

    def check() -> None:
        taken = topic.subscriptions.get(name)
        if taken is not None and not taken.is_durable:
            # By a Reader, in the meantime: a cursor beside it would be nobody's.
            raise NotAllowedError(TAKEN_BY_READER)
        check_new_subscription(topic, name, len(topic.subscriptions), properties or {})

    check()
    longs = noted_start(topic, position)
    cursor = await topic.ledger.open_cursor(
        encode_name(name),
        initial=position,
        properties={**longs, REPLICATED_PROPERTY: REPLICATED} if is_replicated else longs,
        cursor_properties=properties or {},
        # Others were made since: of a burst each found that there was room.
        check=check,
    )
    existing = topic.subscriptions.get(name)
    if existing is not None:
        return existing
    subscription = Subscription.create(topic, name, cursor)
    topic.subscriptions[name] = subscription
    if is_replicated:
        # One whose cursor was left of an earlier one may not be yet.
        await set_replicated(subscription, True)
        topic.subscriptions_changed()
    return subscription


def new_consumer(
    connection: ConsumerConnection,
    subscription: ConsumerSubscription,
    request: pb.CommandSubscribe,
) -> Consumer:
    """The consumer that ``request`` describes; it has joined nothing yet."""
    services = subscription.services
    return (services.consumer_kind or Consumer)(
        connection,
        subscription,
        request,
        # Pulsar makes up five hex digits too.
        name=request.consumer_name or services.runtime.rng.token(3)[:5],
        partition=subscription.topic.name.partition,
        now_ms=services.runtime.clock.wall_ms(),
    )


def check_subscription_name(topic: TopicName, name: str) -> None:
    """Raise NotAllowedError for a cursor of the broker's own: who acknowledged on one would let go of what it keeps."""
    if is_internal_cursor(name):
        raise NotAllowedError(f"Subscription with reserved subscription name attempted: {name} on {topic}")


def check_new_subscription(
    topic: SubscriptionTopic, name: str, count: int, properties: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise NotAllowedError if a topic with ``count`` subscriptions may not have another, or not this one."""
    if refusal := subscription_refusal(name, properties):
        raise NotAllowedError(refusal)
    if is_reached(topic.limits.subscriptions, count):
        raise NotAllowedError(f"Exceed the maximum number of subscriptions of the topic: {topic.name}")


async def make_room(
    subscription: Subscription | NonPersistentSubscription, connection: ConsumerConnection, sub_type: int
) -> None:
    """An Exclusive consumer whose connection is dead does not keep a new one of ``connection`` out."""
    if sub_type != Exclusive or not subscription.consumers:
        return
    active = subscription.active_consumer
    if active is None or active.connection is connection:
        return
    if not await active.connection.check_liveness():
        active.close()


async def _subscription_for(
    topic: PersistentSubscriptionTopic, request: pb.CommandSubscribe, *, allow_creation: bool
) -> Subscription:
    name = request.subscription
    existing = topic.subscriptions.get(name)
    if existing is not None:
        if existing.is_durable and not request.durable:
            raise NotAllowedError("Durable subscription with the same name already exists.")
        if request.durable and not existing.is_durable:
            raise NotAllowedError(TAKEN_BY_READER)
        return existing
    if request.durable:
        if not allow_creation:
            raise SubscriptionNotFoundError("Subscription does not exist")
        # Looked for before: one that could not be moved there would be at another place for the next try.
        start = await _rolled_back(topic, request)
        if start is None:
            start = EARLIEST if request.initialPosition == pb.CommandSubscribe.Earliest else LATEST
        return await create_subscription(topic, name, start, properties=texts_of(request.subscription_properties))
    check_new_subscription(topic, name, len(topic.subscriptions))
    start = await _rolled_back(topic, request)
    if start is None:
        start = _start_position(request)
    existing = topic.subscriptions.get(name)
    if existing is not None:
        return existing
    check_new_subscription(topic, name, len(topic.subscriptions))
    cursor = topic.ledger.new_non_durable_cursor(encode_name(name), start)
    subscription = Subscription.create(topic, name, cursor, is_durable=False)
    topic.subscriptions[name] = subscription
    return subscription


def begins_with_what_is_new(request: pb.CommandSubscribe) -> bool:
    """Whether a Reader wants nothing of what is there."""
    return request.start_message_rollback_duration_sec <= 0 and _start_position(request) == LATEST


def _start_position(request: pb.CommandSubscribe) -> Position:
    """First entry for a Reader: that of the start id itself, also if the id is inside a batch or was read already.

    The client drops what it does not want of it (as with Pulsar, which steps one entry back).
    """
    if request.HasField("start_message_id"):
        return position_from(request.start_message_id)
    return EARLIEST if request.initialPosition == pb.CommandSubscribe.Earliest else LATEST


async def _rolled_back(topic: PersistentSubscriptionTopic, request: pb.CommandSubscribe) -> Position | None:
    seconds = request.start_message_rollback_duration_sec
    if seconds <= 0:
        return None
    return await position_at_time(topic.ledger, topic.services.runtime.clock.wall_ms() - seconds * 1000)
