"""``/admin/v2/{domain}/.../{topic}/subscription``: subscriptions: list, create, delete, move.

On a partitioned topic each of these is carried out on every partition, where that makes sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.administration.backlog_analysis import analyze
from geminga.broker.administration.services import AdministeredTopics
from geminga.broker.core.coercion import LONG_MAX, boolean_of, number_of, object_of, text_of
from geminga.broker.core.new_subscription import NewSubscription
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    RestError,
    check_properties_size,
    context_of,
    flag,
    json_body,
    json_response,
    new_topic_of,
    no_content,
    path_int,
    position_of,
    required_body,
    subscription_name,
    text_map_body,
    topic_of,
)
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import (
    existing_topic,
    is_partitioned,
    no_subscription,
    partitions_or_self,
    persistent_topic,
    refuse_partitioned,
    require_namespace,
    subscription_of,
)
from geminga.broker.rest.topic_routes import replicators
from geminga.broker.subscription import seek
from geminga.broker.subscription.subscribe import UNFIT_NAME
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import (
    ConflictError,
    NotAllowedError,
    PreconditionFailedError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.model.topic_name import TopicName, is_valid_named_entity
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.numbers import batch_size
from geminga.wire.pulsar.texts import subscription_refusal

#: Key: new subscriptions have names as tenants have.
STRICT_NAMES: Final = "strictlyVerifySubscriptionName"
#: What is said of a topic that is not there and may not be made by asking for a subscription.
NOT_CREATED: Final = "Topic does not exist and cannot be auto-created"


async def list_subscriptions(request: Request) -> Response:
    """Names of the subscriptions; of all partitions together for a partitioned topic."""
    topics, name = context_of(request).topics, topic_of(request)
    names: dict[str, None] = {}
    async for target in partitions_or_self(topics, name, used=True):
        try:
            topic = await existing_topic(topics, target)
        except TopicNotFoundError:
            if target == name:
                raise
            continue
        names.update(dict.fromkeys(topic.subscriptions))
    return json_response([*names])


async def create_subscription(request: Request) -> Response:
    """Create a durable subscription at the position in the body (default: latest); makes the topic if allowed."""
    topics, name = context_of(request).topics, new_topic_of(request)
    subscription = subscription_name(request)
    body = await json_body(request)
    position = LATEST if body is None else position_of(body)
    properties: dict[str, str] = {}
    if isinstance(body, dict):
        if _is_excluded(body) and position not in (EARLIEST, LATEST):
            position = Position(position.ledger_id, position.entry_id + 1)
        given = body.get("properties")
        if given is not None:
            properties = {key: text_of(value, key) for key, value in object_of(given, "properties").items()}
    if refusal := subscription_refusal(subscription, properties):
        raise PreconditionFailedError(refusal)
    if not name.is_persistent:
        # As in Pulsar: it would be there until its last consumer goes.
        raise RestError(400, "Create subscription on non-persistent topic can only be done through client")
    await require_namespace(topics, name)
    if context_of(request).policies.settings[STRICT_NAMES] and not is_valid_named_entity(subscription):
        raise PreconditionFailedError(UNFIT_NAME.format(subscription))
    is_replicated = request.query_params.get("replicated", "").strip().lower() == "true"
    await _require_creatable(topics, name)
    if replicators.is_replicators(request):
        return await replicators.create(request, position)
    new = NewSubscription(subscription, properties, is_replicated)
    async with topics.partitions.creation_of(name, subscription):
        await _create(topics, name, new, position)
    return no_content()


async def _create(topics: AdministeredTopics, name: TopicName, new: NewSubscription, position: Position) -> None:
    made = 0
    async for target in partitions_or_self(topics, name):
        topic = await topics.registry.get(target, create=True)
        if new.name in topic.subscriptions:
            continue
        try:
            await topic.create_subscription(new.name, position, new.properties, is_replicated=new.is_replicated)
        except NotAllowedError as error:
            raise ConflictError(error.told) from error  # there are as many as there may be
        made += 1
    # A creation that was cut short after some partitions is finished by the next call.
    if not made:
        raise ConflictError("Subscription already exists for topic")


async def _require_creatable(topics: AdministeredTopics, name: TopicName) -> None:
    """Raise unless the topic is there or may be made; it is made if it is to be partitioned."""
    if name.is_partition and not await topics.registry.exists(name):
        if not await is_partitioned(topics, name.partitioned_topic):
            raise ConflictError(f"Partition metadata not found for the partitioned topic: {name}")
        raise PreconditionFailedError(NOT_CREATED)
    try:
        await topics.registry.partitioned_count(name, create=True)
    except TopicNotFoundError as error:
        raise PreconditionFailedError(NOT_CREATED) from error


async def delete_subscription(request: Request) -> Response:
    """Delete; with ``force`` also while consumers are connected."""
    if replicators.is_replicators(request):
        return await replicators.delete(request)
    topics, name = context_of(request).topics, topic_of(request)
    subscription = subscription_name(request)
    found = False
    async for target in partitions_or_self(topics, name, used=True):
        try:
            topic = await existing_topic(topics, target)
            if subscription not in topic.subscriptions:
                raise no_subscription(target, subscription)
            await topic.delete_subscription(subscription, force=flag(request, "force"))
            found = True
        except (TopicNotFoundError, SubscriptionNotFoundError):
            if target == name:
                raise
    if not found:
        raise SubscriptionNotFoundError("Subscription not found")
    return no_content()


def _is_excluded(body: Document) -> bool:
    """By the name of Pulsar's documentation, or that which Java's admin client writes and Pulsar's broker reads."""
    given = [boolean_of(body[name], name) for name in ("excluded", "isExcluded") if body.get(name) is not None]
    return any(given)


async def _each(request: Request, what: str = "") -> list[Subscription]:
    """The subscription on the topic or on every partition that has it; 404 if none has.

    ``what`` is done to it is not allowed on a non-persistent topic; empty: it has none.
    """
    topics, name = context_of(request).topics, topic_of(request)
    subscription = subscription_name(request)
    found: list[Subscription] = []
    async for target in partitions_or_self(topics, name, used=True):
        try:
            found.append(await subscription_of(topics, target, subscription, what))
        except (TopicNotFoundError, SubscriptionNotFoundError):
            if target == name:
                raise
    if not found:
        raise no_subscription(name, subscription)
    return found


async def skip_all(request: Request) -> Response:
    """Acknowledge everything."""
    if replicators.is_replicators(request):
        return await replicators.skip_all(request)
    for subscription in await _each(request, "Skip messages"):
        await seek.clear_backlog(subscription)
    return no_content()


async def skip(request: Request) -> Response:
    """Acknowledge the next so many entries; one partition only."""
    topics, name = context_of(request).topics, topic_of(request)
    await refuse_partitioned(topics, name, "Skip messages on a partitioned topic is not allowed")
    count = path_int(request, "count")
    if count < 0:
        raise RestError(412, "the number of messages to skip can not be negative")
    if replicators.is_replicators(request):
        return await replicators.skip(request, count)
    await seek.skip(await subscription_of(topics, name, subscription_name(request), "Skip messages"), count)
    return no_content()


async def expire_messages(request: Request) -> Response:
    """Acknowledge what was published more than so many seconds ago."""
    if replicators.is_replicators(request):
        return await replicators.expire(request)
    seconds = path_int(request, "seconds")
    await _expire(await _each(request, "Expire messages"), seconds)
    return no_content()


async def _expire(subscriptions: list[Subscription], seconds: int) -> None:
    """Raise ConflictError (409) where there was nothing to look at, when all was tried, as Pulsar does."""
    nothing = [subscription for subscription in subscriptions if not subscription.cursor.backlog_count]
    if seconds < 0 and len(nothing) < len(subscriptions):
        # In Pulsar everything would expire.
        raise RestError(412, "messages can not expire before they are published: seconds must be 0 or more")
    for subscription in subscriptions:
        if subscription not in nothing:
            await seek.expire(subscription, seconds * 1000)
    if nothing:
        raise ConflictError(
            f"Expire message by timestamp not issued on topic {nothing[0].topic.name} for subscription "
            f"{nothing[0].name} due to ongoing message expiration not finished or subscription almost catch  up. "
            "If it's performed on a partitioned topic operation might succeeded on other partitions, please check "
            "stats of individual partition."
        )


async def expire_messages_up_to(request: Request) -> Response:
    """Acknowledge everything up to the message id in the body; one partition only."""
    topics, name = context_of(request).topics, topic_of(request)
    body = await required_body(request)
    position = position_of(body)
    await refuse_partitioned(topics, name, "Expire message at position is not supported for partitioned-topic")
    given = body.get("partitionIndex") if isinstance(body, dict) else None
    if (-1 if given is None else number_of(given, "partitionIndex")) != name.partition:
        raise PreconditionFailedError(
            "Invalid parameter for expire message by position, partition index of passed in message position "
            "doesn't match partition index for the topic"
        )
    subscription = await subscription_of(topics, name, subscription_name(request), "Expire messages")
    topic = await persistent_topic(topics, name)
    if position > topic.max_read_position:
        raise ConflictError(
            f"Expire message by position not issued on topic {name} for subscription {subscription.name} due to "
            "ongoing message expiration not finished or invalid message position provided."
        )
    if isinstance(body, dict) and _is_excluded(body):
        position = topic.ledger.ledgers.previous_position(position)
    seek.expire_up_to(subscription, position)
    return no_content()


async def expire_all(request: Request) -> Response:
    """As :func:`expire_messages`, for every subscription."""
    topics, name = context_of(request).topics, topic_of(request)
    seconds = path_int(request, "seconds")
    found: list[Subscription] = []
    async for target in partitions_or_self(topics, name, used=True):
        topic = await persistent_topic(topics, target, "Expire messages for all subscriptions")
        found += [one for one in topic.subscriptions.values() if isinstance(one, Subscription)]
    await _expire(found, seconds)
    return no_content()


async def reset_to_time(request: Request) -> Response:
    """The next message delivered is the first one published at that time (ms since the epoch) or later."""
    timestamp_ms = path_int(request, "timestamp", LONG_MAX)
    for subscription in await _each(request):
        await seek.seek_to_time(subscription, timestamp_ms)
    return no_content()


async def reset_to_position(request: Request) -> Response:
    """The next message delivered is that of the id in the body, or the one behind it with ``isExcluded``."""
    topics, name = context_of(request).topics, topic_of(request)
    body = await required_body(request)
    position = position_of(body)
    await refuse_partitioned(topics, name, "Reset-cursor at position is not allowed for partitioned-topic")
    subscription = await subscription_of(topics, name, subscription_name(request), "Reset-cursor")
    if position in (EARLIEST, LATEST):
        await seek.seek(subscription, position)
        return no_content()
    position, ack_set = await _start_of(subscription, position, body if isinstance(body, dict) else {})
    await seek.seek(subscription, position, ack_set)
    return no_content()


async def _start_of(
    subscription: Subscription, position: Position, body: Document
) -> tuple[Position, list[int] | None]:
    """Where to begin, given ``isExcluded`` and ``batchIndex``: a position, and the bits still to deliver of it."""
    ledger = subscription.topic.ledger
    excluded, given = _is_excluded(body), body.get("batchIndex")
    index = -1 if given is None else number_of(given, "batchIndex")
    if index < 0:
        return (ledger.ledgers.next_position(position) if excluded else position), None
    entries = await ledger.reader.read([position])
    metadata = peek_metadata(entries[0].data) if entries else None
    size = batch_size(metadata, len(entries[0].data)) if metadata is not None else 1
    first = index + 1 if excluded else index
    if first >= size:
        return ledger.ledgers.next_position(position), None
    return (position, ack_set_from(first, size)) if first > 0 else (position, None)


def ack_set_from(first: int, size: int) -> list[int]:
    """Ack set of a batch of ``size`` whose messages from ``first`` on are not acknowledged, as signed int64 words."""
    bits = ((1 << size) - 1) & ~((1 << first) - 1)
    words = [(bits >> shift) & ((1 << 64) - 1) for shift in range(0, size, 64)]
    return [word - (1 << 64) if word > LONG_MAX else word for word in words]


async def analyze_backlog(request: Request) -> Response:
    """Entries and messages not acknowledged, from the message id in the body on, counted by looking at them."""
    topics, name = context_of(request).topics, topic_of(request)
    body = await json_body(request)
    start = None if body is None else position_of(body)
    if start is not None and start.entry_id < 0 <= start.ledger_id:
        raise RestError(412, f"there is no entry {start.entry_id} of a ledger to begin with")
    await refuse_partitioned(
        topics,
        name,
        "Analyze backlog on a partitioned topic is not allowed, please try do it on specific topic partition",
    )
    further, is_placed = request.query_params.get("start"), flag(request, "positions")
    if further is not None:
        start = _position(further)
    found = await analyze(await subscription_of(topics, name, subscription_name(request)), start, places=is_placed)
    document: Document = {
        "entries": found.entries,
        "messages": found.messages,
        "markerMessages": found.markers,
        # There are no entry filters.
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": found.entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": found.messages,
        "filterRescheduledMessages": 0,
        "aborted": found.is_aborted,
    }
    if found.first is not None:
        document |= {"firstMessageId": str(found.first), "lastMessageId": str(found.last)}
    if is_placed:
        # Not in Pulsar: where they are, of a batch with the indexes that are left where others are acknowledged.
        document["positions"] = [
            {"id": str(position), **({"indexes": list(_set_bits(bits))} if bits else {})}
            for position, bits in found.places
        ]
        if found.further is not None:
            document["nextMessageId"] = str(found.further)
    return json_response(document)


def _position(text: str) -> Position:
    """``ledger:entry``; raises RestError."""
    ledger, _, entry = text.partition(":")
    if not (ledger.isascii() and ledger.isdecimal() and entry.isascii() and entry.isdecimal()):
        raise RestError(412, f"start is {text!r}: expected ledger:entry")
    return Position(number_of(ledger, "start", LONG_MAX), number_of(entry, "start", LONG_MAX))


def _set_bits(bits: int) -> Iterator[int]:
    index = 0
    while bits:
        if bits & 1:
            yield index
        bits >>= 1
        index += 1


async def get_properties(request: Request) -> Response:
    """The subscription's properties."""
    subscription = (await _each(request))[0]
    properties: dict[str, Json] = {**subscription.cursor.cursor_properties}
    return json_response(properties)


async def set_properties(request: Request) -> Response:
    """Replace the subscription's properties."""
    properties = await text_map_body(request)
    check_properties_size("a subscription", properties)
    for subscription in await _each(request):
        await subscription.set_properties(properties)
    return no_content()


async def get_replicated(request: Request) -> Response:
    """Whether the subscription is replicated, by topic: of each partition that has it."""
    _require_persistent(request)
    return json_response({str(each.topic.name): seek.is_replicated(each) for each in await _each(request)})


async def set_replicated(request: Request) -> Response:
    """Whether its position is told to the other clusters, of each partition that has it."""
    is_wanted = boolean_of(await json_body(request), "the body")
    _require_persistent(request)
    for subscription in await _each(request):
        await seek.set_replicated(subscription, is_wanted)
    return no_content()


def _require_persistent(request: Request) -> None:
    if not topic_of(request).is_persistent:
        raise NotAllowedError("a subscription of a non-persistent topic is never replicated")


_PATH = f"{TOPIC_PATH}/subscription/{{subscription}}"

ROUTES = [
    Route("GET", f"{TOPIC_PATH}/subscriptions", list_subscriptions, TopicOperation.GET_SUBSCRIPTIONS),
    Route("PUT", _PATH, create_subscription, TopicOperation.SUBSCRIBE),
    Route("DELETE", _PATH, delete_subscription, TopicOperation.UNSUBSCRIBE),
    Route("POST", f"{_PATH}/skip_all", skip_all, TopicOperation.SKIP),
    Route("POST", f"{_PATH}/skip/{{count}}", skip, TopicOperation.SKIP),
    Route("POST", f"{_PATH}/expireMessages/{{seconds}}", expire_messages, TopicOperation.EXPIRE_MESSAGES),
    Route("POST", f"{_PATH}/expireMessages", expire_messages_up_to, TopicOperation.EXPIRE_MESSAGES),
    Route(
        "POST", f"{TOPIC_PATH}/all_subscription/expireMessages/{{seconds}}", expire_all, TopicOperation.EXPIRE_MESSAGES
    ),
    Route("POST", f"{_PATH}/resetcursor/{{timestamp}}", reset_to_time, TopicOperation.RESET_CURSOR),
    Route("POST", f"{_PATH}/resetcursor", reset_to_position, TopicOperation.RESET_CURSOR),
    Route("POST", f"{_PATH}/analyzeBacklog", analyze_backlog, TopicOperation.CONSUME),
    Route("GET", f"{_PATH}/properties", get_properties, TopicOperation.CONSUME),
    Route("PUT", f"{_PATH}/properties", set_properties, TopicOperation.CONSUME),
    Route("GET", f"{_PATH}/replicatedSubscriptionStatus", get_replicated, TopicOperation.GET_SUBSCRIPTIONS),
    Route("POST", f"{_PATH}/replicatedSubscriptionStatus", set_replicated, TopicOperation.SUBSCRIBE),
]
