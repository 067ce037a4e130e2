"""What a user hands to ``send`` becomes an encoded message: schema, keys, times, checks."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from inspect import CO_COROUTINE
from typing import Final, Generic, TypeVar

from geminga.client._api.errors import InvalidMessage
from geminga.client._api.options import OutgoingMessage
from geminga.client._api.producer import MessageFields
from geminga.client._api.transaction import Transaction
from geminga.client.producer_rules.frame_maker import Encrypt
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.rules.option_kinds import (
    FLAG,
    INT64_MAX,
    TEXT,
    TEXTS,
    Either,
    Instance,
    Kind,
    Many,
    Number,
    problem,
)
from geminga.client.schema._protocol import MessageEncoder
from geminga.runtime import Clock
from geminga.wire._generated import pulsar_api_pb2 as pb

T = TypeVar("T")

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

    @property
    def key_of(self) -> Callable[[T], bytes] | None:
        """The key that the schema takes from a value; None: it takes none."""
        encoder = self._encoder
        return encoder.encode_key if encoder is not None and encoder.sets_key else None

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
        txn = fields.get("txn")
        if isinstance(txn, Transaction):
            message.txn = txn.core
            if len(fields) == 1:
                return
        check_names(fields)
        # Few are given as a rule: what is None costs nothing here.
        for name, value in fields.items():
            if name != "properties" and (value is not None or name == "disable_replication"):
                _check(name, value, _KINDS[name])
        properties = fields.get("properties")
        if properties is not None:
            message.properties = _checked_properties(properties)
        _set_key(message, fields.get("partition_key"))
        ordering_key = fields.get("ordering_key")
        if ordering_key is not None:
            message.ordering_key = ordering_key.encode() if isinstance(ordering_key, str) else ordering_key
        message.sequence_id = fields.get("sequence_id")
        message.event_time_ms = fields.get("event_timestamp")
        message.deliver_at_ms = fields.get("deliver_at")
        delay = fields.get("deliver_after")
        if delay is not None:
            if message.deliver_at_ms is not None:
                raise InvalidMessage("deliver_at and deliver_after: one of them")
            message.deliver_at_ms = max(0, self._clock.wall_ms() + int(delay.total_seconds() * 1000))
        clusters = [LOCAL_CLUSTER_ONLY] if fields.get("disable_replication") else fields.get("replication_clusters")
        if clusters:
            message.replicate_to = list(clusters)


def _set_key(message: EncodedMessage, key: str | bytes | None) -> None:
    if key is not None:
        if type(key) is not str or not key.isascii():
            _check("partition_key", key, _KEY)
        message.partition_key = key_text(key)
        message.is_key_base64 = not isinstance(key, str)


def key_text(key: str | bytes) -> str:
    """The key as the wire has it: bytes as base64."""
    return key if isinstance(key, str) else base64.b64encode(key).decode()


def outgoing_message(content: object, fields: MessageFields) -> OutgoingMessage:
    """What routers and interceptors see; raises InvalidMessage for a field that no message has."""
    check_names(fields)
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
        txn=message.txn,
    )


def check_names(fields: Mapping[str, object]) -> None:
    """Raise InvalidMessage for a field that no message has."""
    if not fields.keys() <= _NAMES:
        name = next(name for name in fields if name not in _NAMES)
        near = get_close_matches(name, sorted(_NAMES), 1)
        raise InvalidMessage(f"{name}: no field of a message" + (f"; did you mean {near[0]}?" if near else ""))


def check_callback(callback: object) -> None:
    """Raise InvalidMessage for what can not be called, or only awaited: nobody would hear of the message."""
    if callback is None:
        return
    code = getattr(callback, "__code__", None)
    if not callable(callback) or (code is not None and code.co_flags & CO_COROUTINE):
        raise InvalidMessage(
            f"callback={callback!r:.100}: expected a function of an error and a message id, no coroutine function, "
            "or None"
        )


def _check(name: str, value: object, kind: Kind) -> None:
    wrong = problem(name, value, kind)
    if wrong is not None:
        raise InvalidMessage(wrong)


def _checked_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    # Half a surrogate pair is found when the message is encoded: a look at each text would cost every message.
    if not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties={properties!r:.100}: expected {TEXTS.expected}")
    for name, value in properties.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidMessage(f"properties: {name!r:.100}: {value!r:.100}: expected {TEXTS.expected}")
    return dict(properties)


_KEY: Final = Either(TEXT, Instance(bytes, "bytes"))
_NUMBER: Final = Number(0, INT64_MAX)
#: What each field of a message may be, if it is given.
_KINDS: Final[Mapping[str, Kind]] = {
    "properties": TEXTS,
    "partition_key": _KEY,
    "ordering_key": _KEY,
    "sequence_id": _NUMBER,
    "event_timestamp": _NUMBER,
    "deliver_at": _NUMBER,
    "deliver_after": Instance(timedelta, "a datetime.timedelta"),
    "replication_clusters": Many(TEXT),
    "disable_replication": FLAG,
    "txn": Instance(Transaction, "a transaction, made by client.transaction()"),
}
_NAMES: Final = frozenset(_KINDS)
