"""``/admin/v2/{domain}/.../{topic}/subscription``: subscriptions: list, create, delete, move.

On a partitioned topic each of these is carried out on every partition, where that makes sense.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.core.coercion import LONG_MAX
from geminga.broker.rest.core.unbuilt import refuse_parameter
from geminga.broker.rest.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    no_content,
    object_body,
    path_int,
    position_of,
    subscription_name,
    text_map_body,
    topic_of,
)
from geminga.broker.rest.routing import TOPIC_PATH
from geminga.broker.rest.targets import partitions_or_self, persistent_topic, refuse_partitioned, subscription_of
from geminga.broker.subscription import seek
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import ConflictError, SubscriptionNotFoundError, TopicNotFoundError
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.numbers import batch_size


async def list_subscriptions(request: Request) -> Response:
    """Names of the subscriptions; of all partitions together for a partitioned topic."""
    broker, name = context_of(request).broker, topic_of(request)
    names: dict[str, None] = {}
    async for target in partitions_or_self(broker, name, used=True):
        try:
            topic = await broker.get_topic(target, create=False)
        except TopicNotFoundError:
            if target == name:
                raise
            continue
        names.update(dict.fromkeys(topic.subscriptions))
    return json_response([*names])


async def create_subscription(request: Request) -> Response:
    """Create a durable subscription at the position in the body (default: latest); makes the topic if allowed."""
    broker, name = context_of(request).broker, topic_of(request)
    subscription = subscription_name(request)
    refuse_parameter(request.query_params, "replicated")
    body = await json_body(request)
    position = LATEST if body is None else position_of(body)
    properties: dict[str, str] = {}
    if isinstance(body, dict):
        if body.get("isExcluded") is True and position not in (EARLIEST, LATEST):
            position = Position(position.ledger_id, position.entry_id + 1)
        given = body.get("properties")
        properties = {key: str(value) for key, value in given.items()} if isinstance(given, dict) else {}
    await broker.partitioned_count(name, create=True)
    made = 0
    async for target in partitions_or_self(broker, name):
        topic = await broker.get_topic(target, create=True)
        if subscription in topic.subscriptions:
            continue
        await topic.create_subscription(subscription, position, properties)
        made += 1
    # A creation that was cut short after some partitions is finished by the next call.
    if not made:
        raise ConflictError(f"topic {name} has a subscription {subscription} already")
    return no_content()


async def delete_subscription(request: Request) -> Response:
    """Delete; with ``force`` also while consumers are connected."""
    broker, name = context_of(request).broker, topic_of(request)
    subscription = subscription_name(request)
    found = False
    async for target in partitions_or_self(broker, name, used=True):
        try:
            topic = await broker.get_topic(target, create=False)
            await topic.delete_subscription(subscription, force=flag(request, "force"))
            found = True
        except (TopicNotFoundError, SubscriptionNotFoundError):
            if target == name:
                raise
    if not found:
        raise SubscriptionNotFoundError(f"topic {name} has no subscription {subscription}")
    return no_content()


async def _each(request: Request) -> list[Subscription]:
    """The subscription on the topic or on every partition that has it; 404 if none has."""
    broker, name = context_of(request).broker, topic_of(request)
    subscription = subscription_name(request)
    found: list[Subscription] = []
    async for target in partitions_or_self(broker, name, used=True):
        try:
            found.append(await subscription_of(broker, target, subscription))
        except (TopicNotFoundError, SubscriptionNotFoundError):
            if target == name:
                raise
    if not found:
        raise SubscriptionNotFoundError(f"topic {name} has no subscription {subscription}")
    return found


async def skip_all(request: Request) -> Response:
    """Acknowledge everything."""
    for subscription in await _each(request):
        await seek.clear_backlog(subscription)
    return no_content()


async def skip(request: Request) -> Response:
    """Acknowledge the next so many entries; one partition only."""
    broker, name = context_of(request).broker, topic_of(request)
    await refuse_partitioned(broker, name, "skipping messages")
    count = path_int(request, "count")
    if count < 0:
        raise RestError(412, "the number of messages to skip can not be negative")
    await seek.skip(await subscription_of(broker, name, subscription_name(request)), count)
    return no_content()


async def expire_messages(request: Request) -> Response:
    """Acknowledge what was published more than so many seconds ago."""
    seconds = path_int(request, "seconds")
    for subscription in await _each(request):
        await seek.expire(subscription, seconds * 1000)
    return no_content()


async def expire_messages_up_to(request: Request) -> Response:
    """Acknowledge everything up to the message id in the body; one partition only."""
    broker, name = context_of(request).broker, topic_of(request)
    await refuse_partitioned(broker, name, "expiring up to a message id")
    body = await object_body(request)
    position = position_of(body)
    if body.get("isExcluded") is True:
        topic = await persistent_topic(broker, name)
        position = topic.ledger.previous_position(position)
    seek.expire_up_to(await subscription_of(broker, name, subscription_name(request)), position)
    return no_content()


async def expire_all(request: Request) -> Response:
    """As :func:`expire_messages`, for every subscription."""
    broker, name = context_of(request).broker, topic_of(request)
    seconds = path_int(request, "seconds")
    async for target in partitions_or_self(broker, name, used=True):
        topic = await persistent_topic(broker, target)
        for subscription in list(topic.subscriptions.values()):
            await seek.expire(subscription, seconds * 1000)
    return no_content()


async def reset_to_time(request: Request) -> Response:
    """The next message delivered is the first one published at that time (ms since the epoch) or later."""
    timestamp_ms = path_int(request, "timestamp")
    for subscription in await _each(request):
        await seek.seek_to_time(subscription, timestamp_ms)
    return no_content()


async def reset_to_position(request: Request) -> Response:
    """The next message delivered is that of the id in the body, or the one behind it with ``isExcluded``."""
    broker, name = context_of(request).broker, topic_of(request)
    body = await json_body(request)
    position = position_of(body)
    if position in (EARLIEST, LATEST):
        for subscription in await _each(request):
            await seek.seek(subscription, position)
        return no_content()
    await refuse_partitioned(broker, name, "resetting to a message id")
    subscription = await subscription_of(broker, name, subscription_name(request))
    position, ack_set = await _start_of(subscription, position, body if isinstance(body, dict) else {})
    await seek.seek(subscription, position, ack_set)
    return no_content()


async def _start_of(
    subscription: Subscription, position: Position, body: Document
) -> tuple[Position, list[int] | None]:
    """Where to begin, given ``isExcluded`` and ``batchIndex``: a position, and the bits still to deliver of it."""
    ledger = subscription.topic.ledger
    excluded = body.get("isExcluded") is True
    index = body.get("batchIndex")
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        return (ledger.next_position(position) if excluded else position), None
    entries = await ledger.read([position])
    metadata = peek_metadata(entries[0].data) if entries else None
    size = batch_size(metadata, len(entries[0].data)) if metadata is not None else 1
    first = index + 1 if excluded else index
    if first >= size:
        return ledger.next_position(position), None
    return (position, ack_set_from(first, size)) if first > 0 else (position, None)


def ack_set_from(first: int, size: int) -> list[int]:
    """Ack set of a batch of ``size`` whose messages from ``first`` on are not acknowledged, as signed int64 words."""
    bits = ((1 << size) - 1) & ~((1 << first) - 1)
    words = [(bits >> shift) & ((1 << 64) - 1) for shift in range(0, size, 64)]
    return [word - (1 << 64) if word > LONG_MAX else word for word in words]


async def get_properties(request: Request) -> Response:
    """The subscription's properties."""
    subscription = (await _each(request))[0]
    properties: dict[str, Json] = {**subscription.cursor.cursor_properties}
    return json_response(properties)


async def set_properties(request: Request) -> Response:
    """Replace the subscription's properties."""
    properties = await text_map_body(request)
    for subscription in await _each(request):
        await subscription.set_properties(properties)
    return no_content()


_PATH = f"{TOPIC_PATH}/subscription/{{subscription}}"

ROUTES = [
    Route(f"{TOPIC_PATH}/subscriptions", list_subscriptions, methods=["GET"]),
    Route(_PATH, create_subscription, methods=["PUT"]),
    Route(_PATH, delete_subscription, methods=["DELETE"]),
    Route(f"{_PATH}/skip_all", skip_all, methods=["POST"]),
    Route(f"{_PATH}/skip/{{count}}", skip, methods=["POST"]),
    Route(f"{_PATH}/expireMessages/{{seconds}}", expire_messages, methods=["POST"]),
    Route(f"{_PATH}/expireMessages", expire_messages_up_to, methods=["POST"]),
    Route(f"{TOPIC_PATH}/all_subscription/expireMessages/{{seconds}}", expire_all, methods=["POST"]),
    Route(f"{_PATH}/resetcursor/{{timestamp}}", reset_to_time, methods=["POST"]),
    Route(f"{_PATH}/resetcursor", reset_to_position, methods=["POST"]),
    Route(f"{_PATH}/properties", get_properties, methods=["GET"]),
    Route(f"{_PATH}/properties", set_properties, methods=["PUT"]),
]
