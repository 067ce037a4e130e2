"""The body of a request that publishes, as Pulsar has it (PIP-64), and the messages that it comes to.

Names are Pulsar's. ``encoding`` of a message is Geminga's own: ``base64`` has its payload decoded before it is encoded.
"""

from __future__ import annotations

import base64
from collections.abc import Generator, Mapping
from typing import Final, NamedTuple

from geminga.broker.core.coercion import (
    LONG_MAX,
    BodyError,
    Document,
    Json,
    boolean_of,
    number_of,
    object_of,
    shown,
    text_of,
    texts_of,
)
from geminga.broker.rest.message_routes.core.payloads import (
    Encoder,
    decoded_base64,
    encoder_of,
    encoding_steps,
    whole_json,
)
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.keys import java_string_hash
from geminga.wire.pulsar.schema_info import (
    INLINE,
    SEPARATED,
    KeyValueParts,
    SchemaInfo,
    SchemaType,
    join_key_value,
    key_value_parts,
    key_value_schema,
)
from geminga.wire.pulsar.texts import texts_refusal

#: Messages of one request.
MESSAGES_MAX: Final = 10_000
#: Of a message that is not copied to other clusters, as Pulsar writes it.
LOCAL_ONLY: Final = "__local__"
#: "No version" in a request and in an answer.
NO_VERSION: Final = -1
TEXT: Final = "text"
BASE64: Final = "base64"


class GivenMessage(NamedTuple):
    """A message as the body has it."""

    payload: str
    is_base64: bool
    key: str | None
    properties: Mapping[str, str]
    event_time_ms: int
    #: None: the next one of its producer.
    sequence_id: int | None
    #: Clusters that it is copied to; empty: as the policies say.
    clusters: tuple[str, ...]
    #: Milliseconds since the epoch, and from now on; 0: at once.
    deliver_at_ms: int
    deliver_after_ms: int


class ProduceRequest(NamedTuple):
    """The whole body."""

    messages: list[GivenMessage]
    #: Empty: the broker's own.
    producer_name: str
    #: That the payloads are written with, to be added to the topic; None: see ``version``.
    schema: SchemaInfo | None
    #: Of the topic, or :data:`NO_VERSION`.
    version: int


def parse_request(body: Json, topic: str) -> ProduceRequest:
    """Raises BodyError. ``topic``: after which a schema of keys and values is called."""
    document = object_of(body, "the body")
    given = document.get("messages")
    if not isinstance(given, list):
        raise BodyError(f"messages must be a list of messages, not {shown(given)}")
    if len(given) > MESSAGES_MAX:
        raise BodyError(f"{len(given)} messages; a request has at most {MESSAGES_MAX}")
    name = document.get("producerName")
    version = document.get("schemaVersion")
    number = NO_VERSION if version is None else number_of(version, "schemaVersion", LONG_MAX)
    return ProduceRequest(
        [_message(one, f"message {index}") for index, one in enumerate(given)],
        "" if name is None else text_of(name, "producerName"),
        _schema(document, topic) if number == NO_VERSION else None,
        number,
    )


def _message(value: Json, what: str) -> GivenMessage:
    document = object_of(value, what)
    encoding = document.get("encoding", TEXT)
    if encoding not in (TEXT, BASE64):
        raise BodyError(f"encoding of {what} is {shown(encoding)}; expected {TEXT} or {BASE64}")
    key = document.get("key")
    properties = object_of(document.get("properties") or {}, f"properties of {what}")
    clusters = document.get("replicationClusters")
    sequence_id = document.get("sequenceId")
    is_local = boolean_of(document.get("disableReplication") or False, f"disableReplication of {what}")
    return GivenMessage(
        text_of(document.get("payload"), f"payload of {what}"),
        encoding == BASE64,
        None if key is None else text_of(key, f"key of {what}"),
        {name: text_of(one, f"property {name!r} of {what}") for name, one in properties.items()},
        _time(document, "eventTime", what),
        None if sequence_id is None else _natural(sequence_id, f"sequenceId of {what}"),
        (LOCAL_ONLY,) if is_local else tuple(texts_of(clusters or [], f"replicationClusters of {what}")),
        _time(document, "deliverAt", what),
        _time(document, "deliverAfterMs", what),
    )


def _time(document: Document, name: str, what: str) -> int:
    value = document.get(name)
    return 0 if value in (None, "") else _natural(value, f"{name} of {what}")


def _natural(value: Json, what: str) -> int:
    number = number_of(value, what, LONG_MAX)
    if number < 0:
        raise BodyError(f"{what} must be 0 or more, not {number}")
    return number


# ---- schemas


def _schema(document: Document, topic: str) -> SchemaInfo | None:
    """None: the payloads are bytes."""
    value = document.get("valueSchema")
    key = document.get("keySchema")
    value_info = SchemaInfo("String", SchemaType.STRING) if value in (None, "") else _info(value, "valueSchema")
    if key not in (None, ""):
        parts = KeyValueParts(_info(key, "keySchema"), value_info, SEPARATED)
        return key_value_schema(f"KVSchema-{topic}", parts)
    return None if value_info.type in (SchemaType.BYTES, SchemaType.NONE) else value_info


def _info(value: Json, what: str) -> SchemaInfo:
    """A text with the JSON of a schema, or that JSON itself."""
    if isinstance(value, str):
        try:
            loaded = whole_json(value)
        except (ValueError, RecursionError) as error:
            raise BodyError(f"{what} is not the JSON of a schema: {shown(value)}") from error
        value = loaded
    document = object_of(value, what)
    kind = document.get("type")
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise BodyError(f"type of {what} is {shown(kind)}; expected such as STRING, JSON or AVRO")
    properties = object_of(document.get("properties") or {}, f"properties of {what}")
    name = document.get("name")
    return SchemaInfo(
        kind if name is None else text_of(name, f"name of {what}"),
        SchemaType[kind],
        decoded_base64(text_of(document.get("schema") or "", f"schema of {what}"), f"schema of {what}"),
        {one: text_of(text, f"property {one!r} of {what}") for one, text in properties.items()},
    )


# ---- messages


class Encoders(NamedTuple):
    """How the payloads of a request become bytes."""

    value: Encoder
    #: None: keys are texts, and no part of what the schema describes.
    key: Encoder | None = None
    is_inline: bool = False


def encoders_of(schema: SchemaInfo | None) -> Encoders:
    """Of a schema of the topic; None: bytes. Raises BodyError."""
    if schema is None or schema.type is not SchemaType.KEY_VALUE:
        return Encoders(encoder_of(schema))
    try:
        parts = key_value_parts(schema)
    except ValueError as error:
        raise BodyError(f"the schema of keys and values can not be read: {error}") from error
    return Encoders(encoder_of(parts.value), encoder_of(parts.key), parts.encoding == INLINE)


class Outgoing(NamedTuple):
    """A message that is ready but for who sends it."""

    metadata: pb.MessageMetadata
    payload: bytes


def outgoing_steps(given: GivenMessage, encoders: Encoders, now_ms: int, what: str) -> Generator[None, None, Outgoing]:
    """The message, without the version of its schema, in steps, of which one of very many values takes several.

    Raises BodyError. ``what``: what errors call it.
    """
    payload_what = f"the payload of {what}"
    if given.is_base64:
        payload = decoded_base64(given.payload, payload_what)
    else:
        payload = yield from encoding_steps(encoders.value, given.payload, payload_what)
    metadata = pb.MessageMetadata(publish_time=now_ms)
    if given.key is not None:
        if encoders.key is None:
            metadata.partition_key = given.key
        else:
            key = yield from encoding_steps(encoders.key, given.key, f"the key of {what}")
            metadata.partition_key = base64.b64encode(key).decode()
            metadata.partition_key_b64_encoded = True
            if encoders.is_inline:
                payload = join_key_value(key, payload)
    elif encoders.is_inline:
        payload = join_key_value(None, payload)
    metadata.properties.extend(pb.KeyValue(key=key, value=value) for key, value in given.properties.items())
    metadata.uncompressed_size = len(payload)
    if given.event_time_ms:
        metadata.event_time = given.event_time_ms
    metadata.replicate_to.extend(given.clusters)
    if given.deliver_at_ms or given.deliver_after_ms:
        metadata.deliver_at_time = min(given.deliver_at_ms or now_ms + given.deliver_after_ms, LONG_MAX)
    refusal = texts_refusal(metadata)
    if refusal:
        raise BodyError(f"{what}: {refusal}")
    return Outgoing(metadata, payload)


def partition_of(key: str, partitions: int) -> int:
    """Where messages with a key go: as Pulsar's Java client has it by default."""
    return java_string_hash(key) % partitions
