"""What a user hands to ``send`` becomes an encoded message: schema, keys, times, checks."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Generic, TypeVar, cast

from geminga.client._errors import InvalidMessage
from geminga.client._options import OutgoingMessage
from geminga.client._producing.producer import MessageFields
from geminga.client.core.frame_maker import Encrypt
from geminga.client.core.message import EncodedMessage
from geminga.client.schema._protocol import MessageEncoder
from geminga.runtime import Clock
from geminga.wire._generated import pulsar_api_pb2 as pb

T = TypeVar("T")

#: As the wire holds it: text in, no more than a 64-bit number.
_UINT64_MAX = (1 << 64) - 1
#: What the broker takes as "no cluster but this one".
LOCAL_CLUSTER_ONLY = "__local__"


class MessageBuilder(Generic[T]):
    """Builds the messages of one topic's producers; ``encoder`` None: contents are bytes."""

    __slots__ = ("_clock", "_encoder", "encrypt", "schema")

    def __init__(self, clock: Clock, encoder: MessageEncoder[T] | None = None, encrypt: Encrypt | None = None) -> None:
        self._clock = clock
        self._encoder = encoder
        #: For frames; None: in the clear.
        self.encrypt = encrypt
        info = encoder.info if encoder is not None else None
        #: What the broker is told; None: nothing.
        self.schema: pb.Schema | None = None if info is None else info.to_wire()

    @property
    def is_plain(self) -> bool:
        """Bytes go out as they are: the fast path applies."""
        return self._encoder is None

    def build(self, content: T | None, fields: MessageFields) -> EncodedMessage:
        """The message; raises InvalidMessage, or what the schema raises for a value that does not fit."""
        encoder = self._encoder
        if content is None:
            message = EncodedMessage(b"", is_null=True)
        elif encoder is not None:
            payload = encoder.encode(content)
            if type(payload) is not bytes:
                raise InvalidMessage(f"the schema encodes to {type(payload).__name__}: expected bytes")
            message = EncodedMessage(payload)
        elif isinstance(content, bytes):
            message = EncodedMessage(content)
        elif isinstance(content, bytearray | memoryview):
            message = EncodedMessage(bytes(content))
        else:
            raise InvalidMessage(f"content is {type(content).__name__}: expected bytes, or a schema that encodes it")
        if fields:
            self._add_fields(message, fields)
        if encoder is not None and encoder.sets_key and content is not None:
            if message.partition_key is not None:
                raise InvalidMessage("partition_key: the schema takes the key from the value")
            message.partition_key = base64.b64encode(encoder.encode_key(content)).decode()
            message.is_key_base64 = True
        return message

    def _add_fields(self, message: EncodedMessage, fields: MessageFields) -> None:
        if len(fields) == 1 and "partition_key" in fields:  # by far the most frequent
            _set_key(message, fields["partition_key"])
            return
        properties = fields.get("properties")
        if properties:
            message.properties = _checked_properties(properties)
        _set_key(message, fields.get("partition_key"))
        ordering_key = fields.get("ordering_key")
        if ordering_key is not None:
            if not isinstance(ordering_key, str | bytes):
                raise InvalidMessage(f"ordering_key={ordering_key!r}: expected text or bytes")
            message.ordering_key = ordering_key.encode() if isinstance(ordering_key, str) else ordering_key
        if "sequence_id" in fields:
            message.sequence_id = _checked_number("sequence_id", fields["sequence_id"])
        if "event_timestamp" in fields:
            message.event_time_ms = _checked_number("event_timestamp", fields["event_timestamp"])
        if "deliver_at" in fields:
            message.deliver_at_ms = _checked_number("deliver_at", fields["deliver_at"])
        delay = fields.get("deliver_after")
        if delay is not None:
            if not isinstance(delay, timedelta):
                raise InvalidMessage(f"deliver_after={delay!r}: expected a datetime.timedelta")
            if message.deliver_at_ms is not None:
                raise InvalidMessage("deliver_at and deliver_after: one of them")
            at_ms = self._clock.wall_ms() + int(delay.total_seconds() * 1000)
            message.deliver_at_ms = _checked_number("deliver_after", max(0, at_ms))
        clusters: Sequence[str] | None = fields.get("replication_clusters")
        is_local = fields.get("disable_replication", False)
        if not isinstance(is_local, bool):
            raise InvalidMessage(f"disable_replication={is_local!r}: expected True or False")
        if is_local:
            clusters = [LOCAL_CLUSTER_ONLY]
        if clusters:
            if isinstance(clusters, str) or not all(isinstance(cluster, str) for cluster in clusters):
                raise InvalidMessage(f"replication_clusters={clusters!r}: expected a list of names")
            message.replicate_to = list(clusters)


def _set_key(message: EncodedMessage, key: str | bytes | None) -> None:
    if key is not None:
        if not isinstance(key, str | bytes):
            raise InvalidMessage(f"partition_key={key!r}: expected text or bytes")
        message.partition_key = key_text(key)
        message.is_key_base64 = not isinstance(key, str)


def key_text(key: str | bytes) -> str:
    """The key as the wire has it: bytes as base64."""
    return key if isinstance(key, str) else base64.b64encode(key).decode()


def outgoing_message(content: object, fields: MessageFields) -> OutgoingMessage:
    """What routers and interceptors see."""
    return OutgoingMessage(content, **fields)


def message_fields(message: OutgoingMessage) -> MessageFields:
    """Back to what ``send`` takes."""
    return MessageFields(
        properties=message.properties,
        partition_key=message.partition_key,
        ordering_key=message.ordering_key,
        sequence_id=message.sequence_id,
        event_timestamp=message.event_timestamp,
        deliver_at=message.deliver_at,
        deliver_after=message.deliver_after,
        replication_clusters=message.replication_clusters,
        disable_replication=message.disable_replication,
    )


def _checked_number(name: str, value: int | None) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= value <= _UINT64_MAX >> 1):
        raise InvalidMessage(f"{name}={value!r}: expected a number from 0 to 2^63 - 1")
    return value


def _checked_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties={properties!r}: expected a mapping of text by text")
    for name, value in properties.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidMessage(f"properties: {name!r}: {value!r} is not text by text")
    return cast("Mapping[str, str]", dict(properties))
