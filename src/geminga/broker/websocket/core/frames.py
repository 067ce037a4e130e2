"""The frames of Pulsar's WebSocket API: texts of JSON to what they ask for, and what is told to texts of JSON.

A producer's frame is a message; a consumer's or reader's is a command, which without ``type`` acknowledges. Fields that
nobody knows are passed over, numbers where a text is meant are taken as texts, as Pulsar's reader of JSON does.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from math import inf
from typing import Final, NamedTuple, NoReturn, TypeAlias

from geminga.broker.websocket.core.parameters import INT_MAX, LONG_MAX
from geminga.model.errors import RemoteError

#: One for all: ``json.dumps`` makes one for each text that is not as Python has it by default.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_quoted: Final = _ENCODER.encode
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class ErrorCode(IntEnum):
    """Pulsar's numbers of what went wrong."""

    NOT_JSON = 3
    NOT_AUTHENTICATED = 5
    NOT_AUTHORIZED = 6
    PAYLOAD_ENCODING = 7
    UNKNOWN = 8


#: What they mean, in Pulsar's words.
DESCRIPTIONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.NOT_JSON: "Failed to de-serialize from JSON",
    ErrorCode.NOT_AUTHENTICATED: "Failed to authenticate client",
    ErrorCode.NOT_AUTHORIZED: "Client is not authorized",
    ErrorCode.PAYLOAD_ENCODING: "Invalid payload encoding",
    ErrorCode.UNKNOWN: "Unknown error",
}
#: Added to a number of Pulsar's, which closes sessions with codes that RFC 6455 leaves to nobody: from here on they
#: are an application's own.
CLOSE_CODE_BASE: Final = 4000
#: Bytes of a reason in a close frame (RFC 6455, 5.5: 125 with the code).
CLOSE_REASON_BYTES_MAX: Final = 123


class FrameError(RemoteError):
    """A frame that can not be carried out."""

    def __init__(self, code: ErrorCode, reason: str, context: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        #: The producer's own, if it could be read.
        self.context = context


# ---- what producers send


class OutgoingFrame(NamedTuple):
    """A message to publish."""

    payload: bytes
    properties: Mapping[str, str]
    context: str | None
    key: str | None
    #: None: wherever the namespace's messages go.
    replication_clusters: Sequence[str] | None
    disable_replication: bool
    #: Milliseconds since the epoch.
    event_time_ms: int | None
    deliver_at_ms: int | None
    deliver_after_ms: int | None
    #: None: the producer counts on.
    sequence_id: int | None


def decode_outgoing(text: str) -> OutgoingFrame:
    """A producer's frame; raises FrameError, which is answered with its context."""
    fields = _object(text)
    context = _text(fields, "context", None)
    payload = _payload(fields.get("payload"), context)
    return OutgoingFrame(
        payload,
        _properties(fields.get("properties"), context),
        context,
        _text(fields, "key", context),
        _clusters(fields.get("replicationClusters"), context),
        _flag(fields, "disableReplication", context),
        _event_time(_text(fields, "eventTime", context), context),
        # 0 is Pulsar's "not given".
        _number(fields, "deliverAt", context, 0, LONG_MAX) or None,
        _number(fields, "deliverAfterMs", context, 0, LONG_MAX) or None,
        _number(fields, "sequenceId", context, 0, LONG_MAX),
    )


def _payload(given: Json, context: str | None) -> bytes:
    if not isinstance(given, str):
        raise FrameError(ErrorCode.PAYLOAD_ENCODING, "payload: expected a text in base64", context)
    try:
        # Java takes it without the signs that fill it up, too.
        return base64.b64decode(given + "=" * (-len(given) % 4) if not given.endswith("=") else given, validate=True)
    except (binascii.Error, ValueError) as error:
        reason = f"Invalid Base64 message-payload error={error}"
        raise FrameError(ErrorCode.PAYLOAD_ENCODING, reason, context) from None


def _properties(given: Json, context: str | None) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise FrameError(ErrorCode.NOT_JSON, "properties: expected an object of texts", context)
    return {name: _text_of(value, f"properties.{name:.40}", context) for name, value in given.items()}


def _clusters(given: Json, context: str | None) -> Sequence[str] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise FrameError(ErrorCode.NOT_JSON, "replicationClusters: expected a list of names", context)
    return [str(name) for name in given]


def _event_time(given: str | None, context: str | None) -> int | None:
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            raise ValueError("no offset")
        found = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        found = -1
    if found < 0:
        reason = f"eventTime {given[:40]!r}: expected a time from 1970 on such as 2021-10-29T16:01:38.967-07:00"
        raise FrameError(ErrorCode.PAYLOAD_ENCODING, reason, context)
    return found


# ---- what consumers and readers send


class AckFrame(NamedTuple):
    """A message is done."""

    #: As it was told with the message.
    message_id: str
    is_cumulative: bool = False


class NegativeAckFrame(NamedTuple):
    """A message is to come again."""

    message_id: str


class PermitFrame(NamedTuple):
    """So many messages more may come, in pull mode."""

    messages: int


class UnsubscribeFrame(NamedTuple):
    """The subscription is to go."""


class EndOfTopicFrame(NamedTuple):
    """Whether there will be no more is asked for."""


ConsumerFrame: TypeAlias = AckFrame | NegativeAckFrame | PermitFrame | UnsubscribeFrame | EndOfTopicFrame


def decode_command(text: str) -> ConsumerFrame:
    """A consumer's frame; raises FrameError."""
    fields = _object(text)
    kind = _text(fields, "type", None)
    if kind == "permit":
        messages = _number(fields, "permitMessages", None, 1, INT_MAX)
        if messages is None:
            raise FrameError(ErrorCode.NOT_JSON, "Missing required permitMessages field for 'permit' command")
        return PermitFrame(messages)
    if kind == "unsubscribe":
        return UnsubscribeFrame()
    if kind == "isEndOfTopic":
        return EndOfTopicFrame()
    message_id = _text(fields, "messageId", None)
    if not message_id:
        raise FrameError(ErrorCode.NOT_JSON, "messageId: expected that of a message, in base64")
    if kind == "negativeAcknowledge":
        return NegativeAckFrame(message_id)
    return AckFrame(message_id, (_text(fields, "ackType", None) or "").lower() == "cumulative")


def decode_passed(text: str) -> bool:
    """A reader's frame: whether one message more may come; False: it asks for the topic's end. Raises FrameError."""
    return _text(_object(text), "type", None) != "isEndOfTopic"


def message_id_bytes(text: str) -> bytes:
    """The bytes of a message id; raises FrameError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FrameError(ErrorCode.NOT_JSON, f"messageId {text[:40]!r}: expected base64") from None


# ---- what they are told


def encode_stored(message_id: bytes, context: str | None) -> str:
    """A producer's message is stored."""
    told = f'{{"result":"ok","messageId":"{_base64(message_id)}"'
    return told + "}" if context is None else f'{told},"context":{_quoted(context)}}}'


def encode_refused(code: ErrorCode, reason: str, context: str | None) -> str:
    """A producer's message is not stored, or nobody knows."""
    fields: dict[str, Json] = {"result": f"send-error:{int(code)}", "errorMsg": reason}
    if context is not None:
        fields["context"] = context
    return _dumped(fields)


class EncryptionFields(NamedTuple):
    """How a message was encrypted that is handed on as it came."""

    #: Key's name -> (the data key as that key encrypted it, its metadata).
    keys: Mapping[str, tuple[bytes, Mapping[str, str]]]
    param: bytes
    algorithm: str
    compression: str
    uncompressed_bytes: int
    #: -1: it is no batch.
    batch_size: int


class ToldMessage(NamedTuple):
    """A message for a consumer or reader."""

    message_id: str
    payload: bytes
    properties: Mapping[str, str]
    #: Texts of times; the second is empty where the producer gave none.
    publish_time: str
    event_time: str
    redelivery_count: int
    #: None: it has none.
    key: str | None
    encryption: EncryptionFields | None = None


def encode_message(message: ToldMessage) -> str:
    """A message."""
    fields: dict[str, Json] = {
        "messageId": message.message_id,
        "payload": _base64(message.payload),
        "properties": dict(message.properties),
        "publishTime": message.publish_time,
        "redeliveryCount": message.redelivery_count,
    }
    if message.event_time:
        fields["eventTime"] = message.event_time
    if message.encryption is not None:
        fields["encryptionContext"] = _encryption(message.encryption)
    if message.key is not None:
        fields["key"] = message.key
    return _dumped(fields)


def _encryption(given: EncryptionFields) -> Json:
    keys: dict[str, Json] = {
        name: {"keyValue": _base64(key), "metadata": dict(metadata)} for name, (key, metadata) in given.keys.items()
    }
    fields: dict[str, Json] = {
        "keys": keys,
        "param": _base64(given.param),
        "algorithm": given.algorithm,
        "compressionType": given.compression,
        "uncompressedMessageSize": given.uncompressed_bytes,
    }
    if given.batch_size >= 0:
        fields["batchSize"] = given.batch_size
    return fields


def encode_end_of_topic(*, is_reached: bool) -> str:
    """Whether there will be no more."""
    return _dumped({"endOfTopic": is_reached})


def message_id_text(message_id: bytes) -> str:
    """An id as it is told, and comes back."""
    return _base64(message_id)


def close_reason(code: ErrorCode, reason: str = "") -> tuple[int, str]:
    """Code and text of a close frame."""
    said = DESCRIPTIONS[code]
    # What an answer to a producer says already begins so.
    text = reason if reason.startswith(said) else f"{said}: {reason}" if reason else said
    return CLOSE_CODE_BASE + code, text.encode()[:CLOSE_REASON_BYTES_MAX].decode(errors="ignore")


# ---- JSON


def _object(text: str) -> dict[str, Json]:
    try:
        found: Json = json.loads(text, parse_constant=_no_constant)
        # Half a surrogate pair can be read, and neither kept nor sent on.
        text.encode() if text.isascii() and "\\u" not in text else json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise FrameError(ErrorCode.NOT_JSON, f"{DESCRIPTIONS[ErrorCode.NOT_JSON]}: {error}") from None
    if not isinstance(found, dict):
        raise FrameError(ErrorCode.NOT_JSON, f"{DESCRIPTIONS[ErrorCode.NOT_JSON]}: expected an object")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no value of JSON")


def _text(fields: Mapping[str, Json], name: str, context: str | None) -> str | None:
    value = fields.get(name)
    return None if value is None else _text_of(value, name, context)


def _text_of(value: Json, name: str, context: str | None) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float) and abs(value) != inf:  # a number beyond a double is not what was sent
        return json.dumps(value)
    raise FrameError(ErrorCode.NOT_JSON, f"{name}: expected a text", context)


def _number(fields: Mapping[str, Json], name: str, context: str | None, least: int, most: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise FrameError(ErrorCode.NOT_JSON, f"{name}: expected a whole number from {least} to {most}", context)
    return value


def _flag(fields: Mapping[str, Json], name: str, context: str | None) -> bool:
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise FrameError(ErrorCode.NOT_JSON, f"{name}: expected true or false", context)
    return value


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _dumped(fields: Mapping[str, Json]) -> str:
    return _ENCODER.encode(fields)
