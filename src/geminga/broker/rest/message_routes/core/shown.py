"""A stored entry as the JSON documents of its messages. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json
from geminga.broker.rest.message_routes.core.message_ids import MessageRef
from geminga.broker.rest.message_routes.core.produce_request import BASE64, TEXT
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch
from geminga.wire.pulsar.compression import DecompressionError, decompress
from geminga.wire.pulsar.metadata import broker_entry_metadata, split_entry, text_of, texts_of
from geminga.wire.pulsar.schema_info import decode_version

#: Beside its payload, what a message is taken to need of an answer, bytes.
AROUND_BYTES: Final = 200
#: Messages of a batch, and bytes of what is said of them, above which it is not taken apart: each becomes a document.
BATCH_MESSAGES_MAX: Final = 10_000
BATCH_HEADS_BYTES_MAX: Final = 4 * 1024 * 1024
_WORD: Final = (1 << 64) - 1


class ShownMessage(NamedTuple):
    """One message."""

    ref: MessageRef
    document: Document
    #: About what it takes in an answer.
    size_bytes: int


class Shown(NamedTuple):
    """The messages of an entry that are not acknowledged."""

    pieces: list[ShownMessage]
    #: All that are not acknowledged, as bits; one that is no batch has the first.
    unacknowledged: int


class _Entry(NamedTuple):
    """What its messages share."""

    partition: int
    position: Position
    metadata: pb.MessageMetadata
    redeliveries: int
    in_base64: bool
    broker: pb.BrokerEntryMetadata | None


def shown(
    data: bytes,
    partition: int,
    position: Position,
    *,
    ack_set: Sequence[int],
    redeliveries: int,
    in_base64: bool,
    decompressed_max: int,
) -> Shown:
    """``ack_set``: words of what is left of a batch; empty: all of it. ``decompressed_max``: what becomes larger
    stays compressed. ``in_base64``: payloads that are texts, too."""
    metadata, start = split_entry(data)
    if metadata is None:
        ref = MessageRef(partition, position)
        document: Document = {
            "messageId": str(ref),
            **_payload(data, in_base64=True),
            "error": "its metadata are damaged",
        }
        return Shown([ShownMessage(ref, document, len(data))], 1)
    entry = _Entry(partition, position, metadata, redeliveries, in_base64, broker_entry_metadata(data))
    payload = data[start:]
    if metadata.encryption_keys:
        return _whole(entry, payload, {"encryptionContext": _encryption(metadata)}, in_base64=True)
    if metadata.compression != pb.NONE:
        kept, error = payload, f"decompressed it has {metadata.uncompressed_size} bytes"
        if metadata.uncompressed_size <= decompressed_max:
            try:
                payload, error = decompress(metadata.compression, payload, metadata.uncompressed_size), ""
            except DecompressionError as raised:
                error = str(raised)
        if error:
            more: Document = {"compression": pb.CompressionType.Name(metadata.compression), "error": error}
            return _whole(entry, kept, more, in_base64=True)
    if not metadata.HasField("num_messages_in_batch"):
        return _whole(entry, payload, {}, in_base64=in_base64)
    count = metadata.num_messages_in_batch
    if count > BATCH_MESSAGES_MAX:
        return _whole(entry, payload, {"error": f"a batch of {count} messages", "batchSize": count}, in_base64=True)
    try:
        batch = decode_batch(payload, count, heads_bytes_max=BATCH_HEADS_BYTES_MAX)
    except ValueError as raised:
        return _whole(entry, payload, {"error": str(raised)}, in_base64=True)
    return _of_batch(entry, batch, ack_set)


def _whole(entry: _Entry, payload: bytes, more: Document, *, in_base64: bool) -> Shown:
    metadata = entry.metadata
    ref = MessageRef(entry.partition, entry.position)
    document = _common(entry, ref)
    _add_message(document, metadata, payload, in_base64=in_base64)
    if metadata.num_chunks_from_msg > 1:
        document["chunk"] = {
            "uuid": text_of(metadata.uuid),
            "id": metadata.chunk_id,
            "count": metadata.num_chunks_from_msg,
            "totalSize": metadata.total_chunk_msg_size,
        }
    document.update(more)
    return Shown([ShownMessage(ref, document, _size_of(document))], 1)


def _of_batch(entry: _Entry, batch: Sequence[tuple[pb.SingleMessageMetadata, bytes]], ack_set: Sequence[int]) -> Shown:
    left = (1 << len(batch)) - 1
    if ack_set:
        left &= sum((word & _WORD) << 64 * index for index, word in enumerate(ack_set))
    pieces = []
    for index, (single, payload) in enumerate(batch):
        if not left >> index & 1:
            continue
        if single.compacted_out:
            left &= ~(1 << index)
            continue
        ref = MessageRef(entry.partition, entry.position, index)
        document = _common(entry, ref)
        _add_message(document, single, payload, in_base64=entry.in_base64)
        document["batchSize"] = len(batch)
        pieces.append(ShownMessage(ref, document, _size_of(document)))
    return Shown(pieces, left)


def _add_message(
    document: Document, metadata: pb.MessageMetadata | pb.SingleMessageMetadata, payload: bytes, *, in_base64: bool
) -> None:
    document.update(_payload(payload, in_base64=in_base64, is_null=metadata.null_value))
    _add_key(document, metadata)
    if metadata.HasField("ordering_key"):
        document["orderingKey"] = base64.b64encode(metadata.ordering_key).decode()
    if metadata.HasField("event_time") and metadata.event_time:
        document["eventTime"] = metadata.event_time
    document["properties"] = _texts(texts_of(metadata.properties))
    document["sequenceId"] = metadata.sequence_id


def _common(entry: _Entry, ref: MessageRef) -> Document:
    metadata, broker = entry.metadata, entry.broker
    document: Document = {
        "messageId": str(ref),
        "publishTime": metadata.publish_time,
        "redeliveryCount": entry.redeliveries,
        "producerName": text_of(metadata.producer_name),
    }
    if len(metadata.schema_version) >= 8:
        document["schemaVersion"] = decode_version(metadata.schema_version)
    if metadata.HasField("deliver_at_time"):
        document["deliverAt"] = metadata.deliver_at_time
    if metadata.HasField("replicated_from"):
        document["replicatedFrom"] = text_of(metadata.replicated_from)
    if broker is not None and broker.HasField("broker_timestamp"):
        document["brokerPublishTime"] = broker.broker_timestamp
    if broker is not None and broker.HasField("index"):
        behind = 0 if ref.batch_index < 0 else metadata.num_messages_in_batch - 1 - ref.batch_index
        document["index"] = broker.index - behind
    return document


def _add_key(document: Document, metadata: pb.MessageMetadata | pb.SingleMessageMetadata) -> None:
    if metadata.HasField("partition_key"):
        document["key"] = text_of(metadata.partition_key)
        if metadata.partition_key_b64_encoded:
            document["keyEncoding"] = BASE64


def _payload(payload: bytes, *, in_base64: bool, is_null: bool = False) -> Document:
    if is_null:
        return {"payload": None, "encoding": TEXT}
    if not in_base64:
        try:
            return {"payload": payload.decode(), "encoding": TEXT}
        except UnicodeDecodeError:
            pass  # no text: as base64, and said so
    return {"payload": base64.b64encode(payload).decode(), "encoding": BASE64}


def _encryption(metadata: pb.MessageMetadata) -> Document:
    """As Pulsar's WebSocket service tells it."""
    keys: Document = {
        text_of(key.key): {
            "keyValue": base64.b64encode(key.value).decode(),
            "metadata": _texts(texts_of(key.metadata)),
        }
        for key in metadata.encryption_keys
    }
    found: Document = {
        "keys": keys,
        "param": base64.b64encode(metadata.encryption_param).decode(),
        "algorithm": text_of(metadata.encryption_algo),
        "compressionType": pb.CompressionType.Name(metadata.compression),
        "uncompressedMessageSize": metadata.uncompressed_size,
    }
    if metadata.HasField("num_messages_in_batch"):
        found["batchSize"] = metadata.num_messages_in_batch
    return found


def _texts(texts: dict[str, str]) -> dict[str, Json]:
    return {**texts}


def _size_of(document: Document) -> int:
    payload = document["payload"]
    properties = document["properties"]
    size = AROUND_BYTES + (len(payload) if isinstance(payload, str) else 0)
    if isinstance(properties, dict):
        size += sum(len(key) + len(str(value)) for key, value in properties.items())
    return size
