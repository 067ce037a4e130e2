"""Publishing by REST, as Pulsar has it: PIP-64, ``org.apache.pulsar.broker.rest.Topics``.

The topic's owner answers (307 to it). Of a partitioned topic any broker takes the messages: those with a key go where a
client sends them, others to one partition after the other, and what another broker owns is passed on to it. All
messages are looked at before the first is stored; what could not be stored is told message by message.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.core.coercion import Document, Json
from geminga.broker.core.dedup_source import is_replicator
from geminga.broker.rest.calls.owners import at_owner_of
from geminga.broker.rest.calls.requests import (
    NAME_CHARACTERS_MAX,
    RestError,
    context_of,
    json_response,
    new_topic_of,
    path_int,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.message_routes.core.produce_request import (
    NO_VERSION,
    Outgoing,
    ProduceRequest,
    encoders_of,
    outgoing_steps,
    parse_request,
    partition_of,
)
from geminga.broker.rest.message_routes.publishing import Outcome, Stored
from geminga.broker.rest.message_routes.serving import (
    MESSAGES_PATH,
    doors_of,
    ownership_of,
    peer_of,
    topic_with_owner,
    whole_body,
)
from geminga.model.errors import (
    GemingaError,
    PreconditionFailedError,
    ProducerBusyError,
    ProducerFencedError,
    StorageError,
    TooManyRequestsError,
    UnavailableError,
)
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.model.topic_name import PARTITION_SUFFIX, TopicName
from geminga.runtime import Turns, next_turn
from geminga.wire.pulsar.metadata import text_of
from geminga.wire.pulsar.schema_info import SchemaInfo, decode_version, encode_version

if TYPE_CHECKING:
    from geminga.broker.peers.topics import PeerTopics
    from geminga.broker.rest.calls.context import RestContext
    from geminga.broker.topic.base import Topic

#: Of a message that is stored; that may be sent again; that would be refused again.
OK: Final = 0
TRY_AGAIN: Final = 1
REFUSED: Final = 2
#: Messages that are encoded in one turn of the loop.
MESSAGES_A_TURN: Final = 100
#: Bytes of their payloads, and of one more.
BYTES_A_TURN: Final = 256 * 1024
#: Of a frame to a consumer, beside a message's payload, key, properties and producer's name: command, lengths, numbers.
BESIDE_MESSAGE_BYTES: Final = 512


async def produce(request: Request) -> Response:
    """Publish to a topic; to a partitioned one, to all its partitions."""
    context, name = context_of(request), new_topic_of(request)
    given = await _given(request, name)
    partitions = await context.topics.registry.partitioned_count(name, create=True)
    if not partitions:
        return await _publish(request, name, given, lambda _: name)
    doors = doors_of(request)

    def target(message: Outgoing) -> TopicName:
        if message.metadata.HasField("partition_key"):
            return name.with_partition(partition_of(text_of(message.metadata.partition_key), partitions))
        doors.next_partition += 1
        return name.with_partition(doors.next_partition % partitions)

    return await _publish(request, name, given, target)


async def produce_to_partition(request: Request) -> Response:
    """Publish to one partition."""
    name = new_topic_of(request)
    partition = await _partition(request)
    return await _publish(request, name, await _given(request, name), lambda _: partition)


async def _partition(request: Request) -> TopicName:
    """Raises RestError for one that the topic has not."""
    name, index = new_topic_of(request), path_int(request, "partition")
    if PARTITION_SUFFIX in name.local_name:
        raise RestError(400, f"Topic name can't contain '{PARTITION_SUFFIX}' suffix.")
    partitions = await context_of(request).topics.registry.partitioned_count(name)
    if not 0 <= index < partitions:
        has = f"{partitions} partitions" if partitions else "no partitions"
        raise RestError(404, f"partition {index} of {name}: it has {has}")
    return name.with_partition(index)


class _Given(NamedTuple):
    """The body, and as it came."""

    request: ProduceRequest
    messages: Sequence[Json]


async def _given(request: Request, name: TopicName) -> _Given:
    body = await whole_body(request)
    found = parse_request(body, name.local_name)
    if len(found.producer_name) > NAME_CHARACTERS_MAX:
        raise RestError(412, f"producerName has at most {NAME_CHARACTERS_MAX} characters")
    if is_replicator(found.producer_name):
        raise RestError(412, f"producerName {found.producer_name} is that of a replicator between clusters")
    return _Given(found, cast("list[Json]", cast("Document", body)["messages"]))


async def _publish(
    request: Request, name: TopicName, given: _Given, target: Callable[[Outgoing], TopicName]
) -> Response:
    context = context_of(request)
    version = given.request.version
    schema = given.request.schema if version == NO_VERSION else await _known_schema(context, name, version)
    encoded = await _encoded(context, given.request, schema)
    if not name.is_partition and await context.topics.registry.partitioned_count(name) == 0:
        # The topic comes before its schema, which would be left of one that can not be.
        await _topic(context, name)
    if version == NO_VERSION:
        added = await context.schemas.add(name, schema)
        version = decode_version(added) if added else NO_VERSION
    by_target: dict[TopicName, list[int]] = {}
    for index, message in enumerate(encoded):
        if version != NO_VERSION:
            message.metadata.schema_version = encode_version(version)
        by_target.setdefault(target(message), []).append(index)
    groups = await asyncio.gather(
        *(_publish_group(request, there, given, encoded, indexes, version) for there, indexes in by_target.items())
    )
    results = {index: result for group in groups for index, result in group}
    return json_response(
        {"messagePublishResults": [results[index] for index in range(len(encoded))], "schemaVersion": version}
    )


async def _encoded(context: RestContext, given: ProduceRequest, schema: SchemaInfo | None) -> list[Outgoing]:
    """All of them, before anything is done: of a request that is refused nothing stays. Raises BodyError, RestError."""
    encoders = encoders_of(schema)
    now_ms, limit = context.clock.wall_ms(), context.config.message_bytes_max
    # No client takes a larger frame: who is sent one closes the connection, and is sent it again.
    whole_limit = limit + FRAME_PADDING_BYTES - BESIDE_MESSAGE_BYTES - len(given.producer_name.encode())
    encoded: list[Outgoing] = []
    count = size = 0
    for index, one in enumerate(given.messages):
        count, size = count + 1, size + len(one.payload)
        steps = outgoing_steps(one, encoders, now_ms, f"message {index}")
        message = await Turns(context.clock, steps_max=1).through(steps)
        if len(message.payload) > limit:
            raise RestError(413, f"message {index} has {len(message.payload)} bytes, more than maxMessageSize={limit}")
        size_bytes = len(message.metadata.SerializePartialToString()) + len(message.payload)
        if size_bytes > whole_limit:
            what = f"message {index} has {size_bytes} bytes of payload, key and properties"
            raise RestError(413, f"{what}, more than consumers can be sent ({whole_limit})")
        encoded.append(message)
        if count >= MESSAGES_A_TURN or size >= BYTES_A_TURN:
            count = size = 0
            await next_turn()
    return encoded


async def _known_schema(context: RestContext, name: TopicName, version: int) -> SchemaInfo:
    """Raises RestError."""
    found = await context.schemas.find(name, version)
    if found is None or found.is_deleted:
        raise RestError(404, f"{name} has no schema of version {version}")
    return found.info


async def _topic(context: RestContext, name: TopicName) -> Topic:
    topic = await context.topics.registry.get(name, create=True)
    if topic.is_encryption_required:
        raise PreconditionFailedError(f"Encryption is required in {name}: messages over HTTP are not encrypted")
    return topic


async def _publish_group(
    request: Request,
    there: TopicName,
    given: _Given,
    encoded: Sequence[Outgoing],
    indexes: Sequence[int],
    version: int,
) -> Iterable[tuple[int, Document]]:
    """What came of the messages of one topic or partition, by their indexes."""
    context, messages = context_of(request), given.request.messages
    elsewhere = context.topics.elsewhere
    try:
        if elsewhere is not None and not await elsewhere.is_here(there):
            results = await _passed_on(elsewhere, there, given, indexes, version)
        else:
            outcomes = await doors_of(request).outlets.publish(
                await _topic(context, there),
                peer_of(request),
                given.request.producer_name,
                [encoded[index] for index in indexes],
                [messages[index].sequence_id for index in indexes],
            )
            results = [_result(outcome, there, version) for outcome in outcomes]
    except GemingaError as error:
        if len(indexes) == len(messages):
            raise _as_refused(error) from error  # nothing is stored of all of it
        results = [_result(error, there, version) for _ in indexes]
    return zip(indexes, results, strict=True)


def _as_refused(error: GemingaError) -> GemingaError:
    if isinstance(error, ProducerBusyError | ProducerFencedError):
        return RestError(409, error.told)
    return error


def _result(outcome: Outcome, there: TopicName, version: int) -> Document:
    if isinstance(outcome, Stored):
        told = f"{outcome.ledger_id}:{outcome.entry_id}:{there.partition}"
        return {"messageId": told, "errorCode": OK, "schemaVersion": version}
    code = TRY_AGAIN if isinstance(outcome, UnavailableError | StorageError) else REFUSED
    return {"errorCode": code, "errorMsg": outcome.told, "schemaVersion": version}


async def _passed_on(
    peers: PeerTopics, there: TopicName, given: _Given, indexes: Sequence[int], version: int
) -> list[Document]:
    """What the owner of a partition says. Raises UnavailableError, RestError: nothing is known to be stored."""
    whole = there.partitioned_topic
    path = f"/topics/{there.domain}/{there.namespace}/{quote(whole.local_name, safe='')}/partitions/{there.partition}"
    schema: Document = {"schemaVersion": version} if version != NO_VERSION else {"valueSchema": _BYTES}
    named: Document = {"producerName": given.request.producer_name} if given.request.producer_name else {}
    body: Document = {**schema, **named, "messages": [given.messages[index] for index in indexes]}
    answer = await peers.ask_owner(there, "POST", path, body=json.dumps(body).encode())
    if not answer.is_good:
        is_refused = answer.status < 500 and answer.status != TooManyRequestsError.http_status
        raise RestError(answer.status, answer.reason) if is_refused else UnavailableError(answer.reason)
    found = answer.json()
    results = found.get("messagePublishResults") if isinstance(found, dict) else None
    if not isinstance(results, list) or len(results) != len(indexes):
        raise UnavailableError(f"the broker at {answer.url} answered what is no list of {len(indexes)} results")
    return [dict(one) if isinstance(one, dict) else {} for one in results]


_BYTES: Final = json.dumps({"name": "", "type": "BYTES", "schema": "", "properties": {}})


ROUTES: Final = [
    *at_owner_of([Route("POST", MESSAGES_PATH, produce, TopicOperation.PRODUCE)], topic_with_owner, ownership_of),
    *at_owner_of(
        [Route("POST", f"{MESSAGES_PATH}/partitions/{{partition}}", produce_to_partition, TopicOperation.PRODUCE)],
        _partition,
        ownership_of,
    ),
]
