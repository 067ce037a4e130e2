"""Consuming over plain HTTP, Geminga's own: long polling with acknowledgment (``docs/http-messages.md``).

A consumer is made, receives, acknowledges, and is closed, each with one request; between them it lives by its lease
(:mod:`.consumers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.core.coercion import LONG_MAX, Document, Json, boolean_of, number_of, object_of, shown, text_of
from geminga.broker.rest.calls.owners import at_owner_of
from geminga.broker.rest.calls.requests import (
    NAME_CHARACTERS_MAX,
    RestError,
    context_of,
    json_body,
    json_response,
    no_content,
    object_body,
    path_text,
    query_int,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.message_routes.consumers import HttpConsumer, JoinedConsumer, Wanted
from geminga.broker.rest.message_routes.core.message_ids import MessageRef, parse_message_id
from geminga.broker.rest.message_routes.core.produce_request import BASE64, TEXT
from geminga.broker.rest.message_routes.inbox import HttpInbox
from geminga.broker.rest.message_routes.serving import (
    MESSAGES_PATH,
    doors_of,
    ownership_of,
    peer_of,
    present_topic,
    topic_with_owner,
    until_gone,
)
from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime import spawn
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.model.topic_name import TopicName

#: Milliseconds that a consumer lives without a request: the least, unless said, the most.
LEASE_MS_MIN: Final = 1000
LEASE_MS_DEFAULT: Final = 30_000
LEASE_MS_MAX: Final = 600_000
#: Milliseconds that a request waits for messages at most.
WAIT_MS_MAX: Final = 60_000
#: Messages and bytes of an answer, unless said, and at most. One message comes in any case.
MESSAGES_DEFAULT: Final = 100
MESSAGES_MAX: Final = 1000
BYTES_DEFAULT: Final = 1024 * 1024
BYTES_MAX: Final = 4 * 1024 * 1024
#: Message ids of one request.
IDS_MAX: Final = 10_000
#: Partitions of a topic that one consumer can have.
PARTITIONS_MAX: Final = 256
_TYPES: Final = {
    "Exclusive": pb.CommandSubscribe.Exclusive,
    "Shared": pb.CommandSubscribe.Shared,
    "Failover": pb.CommandSubscribe.Failover,
    "Key_Shared": pb.CommandSubscribe.Key_Shared,
}
_POSITIONS: Final = {"latest": pb.CommandSubscribe.Latest, "earliest": pb.CommandSubscribe.Earliest}


async def make(request: Request) -> Response:
    """A consumer, and its subscription if there is none: 201 with its id."""
    context, name = context_of(request), topic_of(request)
    body = await object_body(request)
    lease_ms = LEASE_MS_DEFAULT
    if body.get("leaseMs") is not None:
        lease_ms = number_of(body["leaseMs"], "leaseMs")
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise RestError(412, f"leaseMs must be {LEASE_MS_MIN} to {LEASE_MS_MAX}")
    command = _command(body, subscription_name(request))
    targets = await targets_of(request, name)
    doors = doors_of(request)
    role = request.state.principal.speaker
    topic = await context.topics.registry.get(targets[0], create=True)
    consumer = HttpConsumer(
        topic.services.runtime.rng.token(16),
        role,
        name,
        command.subscription,
        lease_ms,
        context.config.message_bytes_max,
    )
    consumer.begin()
    doors.consumers.add(consumer)
    inbox = HttpInbox(
        peer_of(request), doors.consumers.room, BYTES_DEFAULT, lambda: doors.consumers.end(consumer, _LEFT)
    )
    consumer.inbox = inbox
    inbox.begin(request.state.principal, context.access.others)
    try:
        for number, target in enumerate(targets):
            command.topic, command.consumer_id = str(target), number
            topic = await context.topics.registry.get(target, create=True)
            made = await topic.subscribe(inbox, command)
            if consumer.over:
                made.close()
                raise UnavailableError(f"{name} is moving; try again")
            consumer.members[number] = JoinedConsumer(target.partition, made)
    except GemingaError:
        doors.consumers.end(consumer, "it could not be made")
        raise
    finally:
        inbox.begun()
        doors.consumers.release(consumer)
    return json_response({"consumer": consumer.consumer_id, "leaseMs": lease_ms}, 201)


_LEFT: Final = "its topic moved, its subscription was reset or deleted, or its right is gone"


def _command(body: Document, subscription: str) -> pb.CommandSubscribe:
    """What a client would send. Raises RestError, BodyError."""
    kind, position, name = body.get("type", "Shared"), body.get("initialPosition", "latest"), body.get("name")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise RestError(412, f"type is {shown(kind)}; expected one of {', '.join(sorted(_TYPES))}")
    if not isinstance(position, str) or position not in _POSITIONS:
        raise RestError(412, f"initialPosition is {shown(position)}; expected latest or earliest")
    command = pb.CommandSubscribe(
        subscription=subscription,
        subType=_TYPES[kind],
        request_id=0,
        initialPosition=_POSITIONS[position],
    )
    if name is not None:
        command.consumer_name = text_of(name, "name")
        if len(command.consumer_name) > NAME_CHARACTERS_MAX:
            raise RestError(412, f"name has at most {NAME_CHARACTERS_MAX} characters")
    return command


async def targets_of(request: Request, name: TopicName) -> list[TopicName]:
    """The topic, or its partitions. Raises RestError where those are not all this broker's."""
    topics = context_of(request).topics
    partitions = await topics.registry.partitioned_count(name, create=True)
    if not partitions:
        return [name]
    if partitions > PARTITIONS_MAX:
        raise RestError(412, f"{name} has {partitions} partitions, more than {PARTITIONS_MAX}: consume them one by one")
    found = [name.with_partition(index) for index in range(partitions)]
    if topics.elsewhere is not None:
        others = [str(one.partition) for one in found if not await topics.elsewhere.is_here(one)]
        if others:
            raise RestError(
                412, f"partitions {', '.join(others)} of {name} are other brokers': consume partitions one by one"
            )
    return found


# ---- requests of a consumer


@contextmanager
def _used(request: Request) -> Iterator[HttpConsumer]:
    """The consumer that the path names, whose lease does not run meanwhile. Raises RestError."""
    consumers = doors_of(request).consumers
    role: str = request.state.principal.speaker
    found = consumers.find(path_text(request, "consumer"), role, topic_of(request), subscription_name(request))
    found.begin()
    try:
        yield found
    finally:
        consumers.release(found)


async def receive(request: Request) -> Response:
    """Messages that are there, or come within ``waitMs``."""
    wanted = _wanted(request)
    doors, context = doors_of(request), context_of(request)
    with _used(request) as consumer:
        await _require_same_partitions(request, consumer)
        _require_life(consumer)
        inbox = consumer.inbox
        assert inbox is not None
        gone = False

        def leave() -> None:
            nonlocal gone
            gone = True
            inbox.news.set()

        watch = spawn(until_gone(request.receive, leave), name="who receives over HTTP")
        try:
            doors.make_room(context.clock.monotonic())
            with doors.waiting.one():
                messages = await consumer.receive(
                    wanted, context.clock.monotonic, lambda: gone, partial(request.state.asks_again, request)
                )
        finally:
            watch.cancel()
        _require_life(consumer)
        answer: Document = {"messages": cast("list[Json]", messages), "leaseMs": consumer.lease_ms}
        if not messages and consumer.is_at_end:
            answer["endOfTopic"] = True
        return json_response(answer)


async def _require_same_partitions(request: Request, consumer: HttpConsumer) -> None:
    """A consumer that lacks new partitions would miss what is in them: it ends. Raises RestError."""
    partitions = await context_of(request).topics.registry.partitioned_count(consumer.topic)
    if max(partitions, 1) != len(consumer.members):
        doors_of(request).consumers.end(consumer, f"its topic has {partitions} partitions now")


def _require_life(consumer: HttpConsumer) -> None:
    if consumer.over:
        raise RestError(404, f"consumer {consumer.consumer_id} is over: {consumer.over}; make a new one")


def _wanted(request: Request) -> Wanted:
    encoding = request.query_params.get("encoding", TEXT)
    if encoding not in (TEXT, BASE64):
        raise RestError(412, f"encoding is {encoding[:40]!r}; expected {TEXT} or {BASE64}")
    return Wanted(
        _bounded(request, "max", 1, MESSAGES_DEFAULT, MESSAGES_MAX),
        _bounded(request, "maxBytes", 1, BYTES_DEFAULT, BYTES_MAX),
        _bounded(request, "waitMs", 0, 0, WAIT_MS_MAX),
        encoding == BASE64,
    )


def _bounded(request: Request, name: str, least: int, default: int, most: int) -> int:
    found = query_int(request, name, LONG_MAX)
    if found is None:
        return default
    if not least <= found <= most:
        raise RestError(412, f"{name} must be {least} to {most}, not {found}")
    return found


async def acknowledge(request: Request) -> Response:
    """Acknowledge messages, or all up to one of each partition; durable with the answer."""
    body = object_of(await json_body(request, None), "the body")
    refs = _refs(body)
    is_cumulative = boolean_of(body.get("cumulative") or False, "cumulative")
    with _used(request) as consumer:
        unknown = await consumer.acknowledge(refs, is_cumulative=is_cumulative)
    return json_response({"acknowledged": len(refs) - len(unknown), "unknown": [str(ref) for ref in unknown]})


async def negative_acknowledge(request: Request) -> Response:
    """Have messages sent again, or all that are not acknowledged."""
    body = object_of(await json_body(request, None), "the body")
    is_all = boolean_of(body.get("all") or False, "all")
    refs = None if is_all else _refs(body)
    with _used(request) as consumer:
        count = len(consumer.held) if refs is None else len(refs)
        unknown = consumer.give_back(refs)
    return json_response({"givenBack": count - len(unknown), "unknown": [str(ref) for ref in unknown]})


async def close(request: Request) -> Response:
    """It is done; what it holds goes to others at once."""
    with _used(request) as consumer:
        doors_of(request).consumers.end(consumer, "it was closed")
    return no_content()


def _refs(body: Document) -> Sequence[MessageRef]:
    given = body.get("messageIds")
    if not isinstance(given, list):
        raise RestError(400, f"messageIds must be a list of message ids, not {shown(given)}")
    if len(given) > IDS_MAX:
        raise RestError(400, f"{len(given)} message ids; a request has at most {IDS_MAX}")
    return [parse_message_id(text_of(one, "a message id"), "a message id") for one in given]


_CONSUMERS: Final = f"{MESSAGES_PATH}/subscriptions/{{path_subscription}}/consumers"
_CONSUMER: Final = f"{_CONSUMERS}/{{consumer}}"
ROUTES: Final = [
    *at_owner_of([Route("POST", _CONSUMERS, make, TopicOperation.CONSUME)], topic_with_owner, ownership_of),
    *at_owner_of(
        [
            Route("POST", f"{_CONSUMER}/receive", receive, TopicOperation.CONSUME),
            Route("POST", f"{_CONSUMER}/acknowledge", acknowledge, TopicOperation.CONSUME),
            Route("POST", f"{_CONSUMER}/negativeAcknowledge", negative_acknowledge, TopicOperation.CONSUME),
            Route("DELETE", _CONSUMER, close, TopicOperation.CONSUME),
        ],
        present_topic,
        ownership_of,
    ),
]
