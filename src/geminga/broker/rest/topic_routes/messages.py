"""Messages of a topic: peek, read by position or number, find by time or index, the backlog.

A message goes out as Pulsar does it: the payload as the body, decompressed; its metadata as ``X-Pulsar-*`` headers.
Of a batch the whole payload goes out with ``X-Pulsar-num-batch-message``, and the client takes it apart.
"""

from __future__ import annotations

import base64
import json

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.core.coercion import LONG_MAX, object_of
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    json_response,
    message_id_json,
    path_int,
    position_of,
    query_int,
    required_body,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import partitions_or_self, persistent_topic, refuse_partitioned
from geminga.broker.subscription import seek
from geminga.broker.subscription.messages import entry_timestamp_ms, position_of_index
from geminga.broker.subscription.stats import iso_time
from geminga.managed_ledger import Entry
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.model.position import EARLIEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compression import DecompressionError, decompress
from geminga.wire.pulsar.metadata import broker_entry_metadata, split_entry, text_of

#: How far behind the first unacknowledged message a peek may look.
PEEK_POSITION_MAX = 10_000
#: Largest payload that is decompressed here: what a message says of its size is its producer's word only.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


async def peek(request: Request) -> Response:
    """The n-th (from 1) entry that the subscription has not acknowledged; of one that is not there, the n-th that is
    stored. Nothing changes, and no subscription is made."""
    topics, name = context_of(request).topics, topic_of(request)
    await refuse_partitioned(topics, name, "Peek messages on a partitioned topic is not allowed")
    number = path_int(request, "position")
    topic = await persistent_topic(topics, name, "Peek messages")
    subscription = topic.subscriptions.get(subscription_name(request))
    if number < 1:
        raise RestError(412, "the position to peek at must be 1 or more")
    if number > PEEK_POSITION_MAX:
        entry = None
    elif subscription is None:
        entry = await seek.peek_stored(topic.ledger, number, context_of(request).config.dispatcher_max_read_size_bytes)
    else:
        entry, _ = await seek.peek(subscription, number)
    if entry is None:
        raise NotFoundError("Message not found")
    return entry_response(entry)


async def entry_by_position(request: Request) -> Response:
    """The entry at a ledger id and entry id."""
    topics, name = context_of(request).topics, topic_of(request)
    position = Position(path_int(request, "ledger", LONG_MAX), path_int(request, "entry", LONG_MAX))
    await refuse_partitioned(topics, name, "GetMessageById is not allowed on partitioned-topic")
    topic = await persistent_topic(topics, name, "GetMessageById")
    entries = await topic.ledger.reader.read([position])
    if not entries:
        raise NotFoundError("Message id not found")
    return entry_response(entries[0])


async def message_id_by_time(request: Request) -> Response:
    """The id of the first message published at that time (ms since the epoch) or later."""
    topics, name = context_of(request).topics, topic_of(request)
    timestamp_ms = path_int(request, "timestamp", LONG_MAX)
    if timestamp_ms < 0:
        raise RestError(412, "the timestamp must be 0 or more")
    what = "Get message ID by timestamp"
    await refuse_partitioned(
        topics, name, f"{what} on a partitioned topic is not allowed, please try do it on specific topic partition"
    )
    ledger = (await persistent_topic(topics, name, what)).ledger
    before = await ledger.reader.find_last(lambda entry: entry_timestamp_ms(entry.data) < timestamp_ms)
    position = ledger.ledgers.next_position(before if before is not None else EARLIEST)
    return json_response(message_id_json(position, name.partition))


async def examine(request: Request) -> Response:
    """The n-th (from 1) entry from the oldest on, or from the newest backwards (the default)."""
    topics, name = context_of(request).topics, topic_of(request)
    number = max(1, query_int(request, "messagePosition", LONG_MAX) or 1)
    await refuse_partitioned(
        topics,
        name,
        "Examine messages on a partitioned topic is not allowed, "
        "please try examine message on specific topic partition",
    )
    ledger = (await persistent_topic(topics, name, "Examine messages")).ledger
    count = ledger.extent.readable.entry_count
    if not count:
        raise PreconditionFailedError("Could not examine messages due to the total message is zero")
    if request.query_params.get("initialPosition") == "earliest":
        # As in Pulsar: behind the last one stands the last one.
        index = min(number, count) - 1
    elif number <= count:
        index = count - number
    else:
        raise PreconditionFailedError(f"there are {count} messages, none is number {number} from the latest one")
    entries = await ledger.reader.read([ledger.extent.readable.position_at(index)])
    if not entries:
        raise NotFoundError("Message not found")  # trimmed meanwhile
    return entry_response(entries[0])


async def message_id_by_index(request: Request) -> Response:
    """The id of the entry that holds the message of that index, where the broker numbers messages; -1:-1 of one that is
    older than the oldest entry's last."""
    topics, name = context_of(request).topics, topic_of(request)
    index = query_int(request, "index", LONG_MAX) or 0
    if not context_of(request).config.entry_metadata_interceptors:
        raise PreconditionFailedError("GetMessageIDByIndex is not allowed when broker entry metadata is disabled")
    if index < 0:
        raise NotFoundError(f"Invalid message index: {index}")
    await refuse_partitioned(topics, name, "GetMessageIDByIndex is not allowed on partitioned-topic")
    ledger = (await persistent_topic(topics, name, "Get message id by index")).ledger
    if not ledger.extent.readable.entry_count:
        raise NotFoundError(f"No messages found in topic {name}")
    position = await position_of_index(ledger, index)
    if position is None:
        raise NotFoundError(f"Message not found for index {index}")
    return json_response(message_id_json(position, name.partition))


async def backlog_size(request: Request) -> Response:
    """Stored bytes behind the message id in the body, readable or not; of -1:-1 all."""
    topics, name = context_of(request).topics, topic_of(request)
    body = await required_body(request)
    position = position_of(object_of(body, "the body"))
    await refuse_partitioned(topics, name, "calculate backlog size is not allowed for partitioned-topic")
    topic = await persistent_topic(topics, name, "Calculate backlog size")
    return json_response(topic.ledger.ledgers.bytes_behind(position))


async def backlog(request: Request) -> Response:
    """Stored bytes and messages, and what each subscription has not acknowledged."""
    topics, name = context_of(request).topics, topic_of(request)
    size = entries = waiting = 0
    cursors: Document = {}
    ledgers: list[Json] = []
    async for target in partitions_or_self(topics, name, used=True):
        topic = await persistent_topic(topics, target, "Get backlog")
        size += topic.ledger.ledgers.size_bytes
        entries += topic.ledger.ledgers.entry_count
        ledgers += [
            {"entries": one.entries, "timestamp": one.closed_ms, "size": one.size_bytes, "ledgerId": one.ledger_id}
            for one in topic.ledger.ledgers.infos
        ]
        for subscription in topic.subscriptions.values():
            count = subscription.cursor.backlog_count
            waiting += count
            cursors[subscription.name] = {
                "cursorBacklog": count,
                "cursorLedgerId": subscription.cursor.mark_delete_position.ledger_id,
            }
    return json_response(
        {
            "storageSize": size,
            "totalMessages": entries,
            "messageBacklog": waiting,
            "brokerName": context_of(request).status.web_url.partition("://")[2],
            "topicName": str(name),
            "dataLedgerDetails": ledgers,
            "cursorDetails": cursors,
            "statGeneratedAt": context_of(request).clock.wall_ms(),
        }
    )


def entry_response(entry: Entry) -> Response:
    """An entry as an HTTP answer; see the module."""
    metadata, start = split_entry(entry.data)
    if metadata is None:
        raise RestError(500, f"the entry {entry.position} holds no message metadata")
    payload = entry.data[start:]
    is_encrypted = bool(metadata.encryption_keys)
    headers = _headers(entry, metadata, len(payload))
    if not is_encrypted:
        payload = decompressed(metadata, payload)
    return Response(payload, headers=headers, media_type="application/octet-stream")


def decompressed(metadata: pb.MessageMetadata, payload: bytes) -> bytes:
    """The payload as it was before compression; raises :class:`RestError` for what is too large or damaged."""
    if metadata.compression == pb.NONE:
        return payload
    size = metadata.uncompressed_size
    if size > DECOMPRESSED_BYTES_MAX:
        raise RestError(413, f"the message has {size} bytes decompressed, more than {DECOMPRESSED_BYTES_MAX}")
    try:
        return decompress(metadata.compression, payload, size)
    except DecompressionError as error:
        raise RestError(500, f"the message's payload can not be decompressed: {error}") from error


def _headers(entry: Entry, metadata: pb.MessageMetadata, payload_size: int) -> dict[str, str]:
    headers = {"X-Pulsar-Message-ID": str(entry.position)}
    broker_metadata = broker_entry_metadata(entry.data)
    if broker_metadata is not None:
        if broker_metadata.HasField("broker_timestamp"):
            headers["X-Pulsar-Broker-Entry-METADATA-timestamp"] = iso_time(broker_metadata.broker_timestamp)
        if broker_metadata.HasField("index"):
            headers["X-Pulsar-Broker-Entry-METADATA-index"] = str(broker_metadata.index)
    headers["X-Pulsar-producer-name"] = text_of(metadata.producer_name)
    headers["X-Pulsar-sequence-id"] = str(metadata.sequence_id)
    headers["X-Pulsar-publish-time"] = iso_time(metadata.publish_time)
    for key, name in (
        ("event_time", "X-Pulsar-event-time"),
        ("deliver_at_time", "X-Pulsar-deliver-at-time"),
    ):
        if metadata.HasField(key):
            headers[name] = iso_time(getattr(metadata, key))
    for key, name in (
        ("replicated_from", "X-Pulsar-replicated-from"),
        ("partition_key", "X-Pulsar-partition-key"),
        ("uncompressed_size", "X-Pulsar-uncompressed-size"),
        ("encryption_algo", "X-Pulsar-encryption-algo"),
        ("marker_type", "X-Pulsar-marker-type"),
        ("txnid_least_bits", "X-Pulsar-txnid-least-bits"),
        ("txnid_most_bits", "X-Pulsar-txnid-most-bits"),
        ("highest_sequence_id", "X-Pulsar-highest-sequence-id"),
        ("uuid", "X-Pulsar-uuid"),
        ("num_chunks_from_msg", "X-Pulsar-PROPERTY-TOTAL-CHUNKS"),
        ("chunk_id", "X-Pulsar-PROPERTY-CHUNK-ID"),
        ("total_chunk_msg_size", "X-Pulsar-total-chunk-msg-size"),
    ):
        if metadata.HasField(key):
            value = getattr(metadata, key)
            headers[name] = text_of(value) if isinstance(value, bytes) else str(value)
    for key, name in (
        ("partition_key_b64_encoded", "X-Pulsar-partition-key-b64-encoded"),
        ("null_value", "X-Pulsar-null-value"),
        ("null_partition_key", "X-Pulsar-null-partition-key"),
    ):
        if metadata.HasField(key):
            headers[name] = "true" if getattr(metadata, key) else "false"
    for key, name in (
        ("ordering_key", "X-Pulsar-Base64-ordering-key"),
        ("encryption_param", "X-Pulsar-Base64-encryption-param"),
        ("schema_version", "X-Pulsar-Base64-schema-version"),
        # Pulsar's Java client looks for this name, which its broker does not send.
        ("schema_version", "X-Pulsar-Base64-schema-version-b64encoded"),
    ):
        if metadata.HasField(key):
            headers[name] = base64.b64encode(getattr(metadata, key)).decode()
    if "X-Pulsar-partition-key" in headers and not _fits_a_header(headers["X-Pulsar-partition-key"]):
        # Geminga's own, of a key that no header can carry.
        headers["X-Pulsar-Base64-partition-key"] = base64.b64encode(text_of(metadata.partition_key).encode()).decode()
    if metadata.compression != pb.NONE:
        headers["X-Pulsar-compression"] = pb.CompressionType.Name(metadata.compression)
    if metadata.encryption_keys:
        headers["X-Pulsar-Is-Encrypted"] = "true"
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(payload_size)
    if metadata.properties:
        properties = {text_of(pair.key): text_of(pair.value) for pair in metadata.properties}
        headers["X-Pulsar-PROPERTY"] = json.dumps(properties)
    return {name: value for name, value in headers.items() if _fits_a_header(value)}


def _fits_a_header(value: str) -> bool:
    # Names and keys are free text; what HTTP can not carry in a header is left out rather than changed.
    return value.isprintable() and value.isascii()


ROUTES = [
    Route(
        "GET", f"{TOPIC_PATH}/subscription/{{subscription}}/position/{{position}}", peek, TopicOperation.PEEK_MESSAGES
    ),
    Route("GET", f"{TOPIC_PATH}/ledger/{{ledger}}/entry/{{entry}}", entry_by_position, TopicOperation.PEEK_MESSAGES),
    Route("GET", f"{TOPIC_PATH}/messageid/{{timestamp}}", message_id_by_time, TopicOperation.PEEK_MESSAGES),
    Route("GET", f"{TOPIC_PATH}/examinemessage", examine, TopicOperation.PEEK_MESSAGES),
    Route("GET", f"{TOPIC_PATH}/getMessageIdByIndex", message_id_by_index, TopicOperation.PEEK_MESSAGES),
    Route("PUT", f"{TOPIC_PATH}/backlogSize", backlog_size, TopicOperation.GET_BACKLOG_SIZE),
    Route("GET", f"{TOPIC_PATH}/backlog", backlog, TopicOperation.GET_BACKLOG_SIZE),
]
