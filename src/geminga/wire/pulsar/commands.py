"""Commands as frames: decoding with the generated classes, and encoders for what a broker answers.

Every encoder returns a whole frame. Commands of the data path have hand-written codecs in :mod:`.hot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from geminga.model.crc32c import crc32c
from geminga.model.errors import ProtocolError, ServerError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import encode_frame
from geminga.wire.pulsar.varint import encode_varint

#: Request id of what the broker sends unasked (as Pulsar: -1 as uint64).
UNREQUESTED: Final = (1 << 64) - 1
#: The newest protocol version spoken here (v21: AUTO_CONSUME schema known to the broker).
PROTOCOL_VERSION: Final = pb.v21

#: Field of BaseCommand that carries a type's payload: it has the type's number.
_FIELD_OF_TYPE: Final = {
    number: pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name for number in pb.BaseCommand.Type.values()
}

PING_FRAME: Final = encode_frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()).SerializeToString())
PONG_FRAME: Final = encode_frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()).SerializeToString())


def decode_command(data: bytes) -> pb.BaseCommand:
    """A command whose payload is there and complete; raises ProtocolError for anything else.

    The generated classes are lenient where the protocol is not: they leave out required fields, read an unknown
    type as the first one, and give bytes for text that is not UTF-8. All of it is refused here, once. An error of a
    number that is not known is one all the same: UnknownError.
    """
    try:
        command = pb.BaseCommand.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"{len(data)} bytes that are no command") from error
    if not command.HasField("type"):
        raise ProtocolError("a command of a type that is not known")
    name = _FIELD_OF_TYPE[command.type]
    for number in _NUMBERS.get(command.type, ()):
        _see_to_number(command, name, number)
    if not command.HasField(name) or not command.IsInitialized():
        raise ProtocolError(f"a {pb.BaseCommand.Type.Name(command.type)} command with required fields missing")
    if not data.isascii() and not _is_body_text_valid(command, name, data):
        raise ProtocolError(f"a {pb.BaseCommand.Type.Name(command.type)} command with text that is not UTF-8")
    return command


class _Number(NamedTuple):
    """A field of a command that names one of several things."""

    field: str
    number: int
    #: An error of which only the number is not known.
    is_error: bool


#: What these name changes what is done: a number of a later version must not be read as the first one.
_DECISIVE: Final = frozenset(("initialPosition", "producer_access_mode", "response", "txn_action"))


def _numbers() -> dict[int, tuple[_Number, ...]]:
    found: dict[int, tuple[_Number, ...]] = {}
    for kind, name in _FIELD_OF_TYPE.items():
        body = pb.BaseCommand.DESCRIPTOR.fields_by_name[name].message_type
        numbers = tuple(
            _Number(field.name, field.number, field.enum_type is pb.ServerError.DESCRIPTOR)
            for field in (() if body is None else body.fields)
            if field.enum_type is not None and (field.enum_type is pb.ServerError.DESCRIPTOR or field.name in _DECISIVE)
        )
        if numbers:
            found[kind] = numbers
    return found


_NUMBERS: Final = _numbers()


def _see_to_number(command: pb.BaseCommand, name: str, number: _Number) -> None:
    body = getattr(command, name)
    if body.HasField(number.field):
        return
    unknown = UnknownFieldSet(body)  # kept beside the fields
    if all(unknown[index].field_number != number.number for index in range(len(unknown))):
        return
    if not number.is_error:
        raise ProtocolError(f"a {pb.BaseCommand.Type.Name(command.type)} command with an unknown {number.field}")
    setattr(body, number.field, pb.UnknownError)


def _with_text() -> frozenset[str]:
    """Names of the messages that have text in them, or in a part."""
    parts: dict[str, list[str]] = {}
    found: set[str] = set()
    left = [pb.BaseCommand.DESCRIPTOR]
    while left:
        message = left.pop()
        if message.full_name in parts:
            continue
        inner = [field.message_type for field in message.fields if field.message_type is not None]
        parts[message.full_name] = [each.full_name for each in inner]
        left += inner
        if any(field.type == FieldDescriptor.TYPE_STRING for field in message.fields):
            found.add(message.full_name)
    while more := {name for name, inside in parts.items() if name not in found and not found.isdisjoint(inside)}:
        found |= more
    return frozenset(found)


_WITH_TEXT: Final = _with_text()


def _own_texts() -> dict[int, tuple[bytes, tuple[str, ...]]]:
    """Of types of commands whose parts have no text: the bytes of such a command up to the size of its body, and the
    body's fields that are text."""
    found: dict[int, tuple[bytes, tuple[str, ...]]] = {}
    for kind, name in _FIELD_OF_TYPE.items():
        body = pb.BaseCommand.DESCRIPTOR.fields_by_name[name].message_type
        if body is None:
            continue
        parts = [field.message_type.full_name for field in body.fields if field.message_type is not None]
        if _WITH_TEXT.isdisjoint(parts):
            head = b"\x08" + encode_varint(kind) + encode_varint(kind << 3 | 2)
            found[kind] = head, tuple(field.name for field in body.fields if field.type == FieldDescriptor.TYPE_STRING)
    return found


_OWN_TEXTS: Final = _own_texts()
_NO_TEXTS: Final[tuple[bytes, tuple[str, ...]]] = (b"", ())
#: Largest body whose size is one byte.
_SHORT_BODY_BYTES: Final = 127


def _is_body_text_valid(command: pb.BaseCommand, name: str, data: bytes) -> bool:
    """As :func:`_is_text_valid`, quick where ``data`` is a type and a short body with nothing around them."""
    head, texts = _OWN_TEXTS.get(command.type, _NO_TEXTS)
    start = len(head) + 1
    size = len(data) - start
    if not head or not 0 <= size <= _SHORT_BODY_BYTES or data[:start] != head + bytes((size,)):
        return _is_text_valid(command)
    body = getattr(command, name)
    for text in texts:
        value = getattr(body, text)
        if not isinstance(value, str) and (
            isinstance(value, bytes) or not all(isinstance(each, str) for each in value)
        ):
            return False
    return True


def _is_text_valid(message: Message) -> bool:
    for field, value in message.ListFields():
        kind = field.type
        if kind == FieldDescriptor.TYPE_STRING:
            if not all(isinstance(text, str) for text in ([value] if isinstance(value, (str, bytes)) else value)):
                return False
        elif field.message_type is None or field.message_type.full_name not in _WITH_TEXT:
            continue
        elif not all(_is_text_valid(part) for part in ([value] if isinstance(value, Message) else value)):
            return False
    return True


def encode_command(command: pb.BaseCommand) -> bytes:
    """The command as a frame."""
    return encode_frame(command.SerializeToString())


def success(request_id: int) -> bytes:
    """SUCCESS."""
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=request_id)))


def error(request_id: int, code: ServerError, message: str) -> bytes:
    """ERROR."""
    return encode_command(
        pb.BaseCommand(
            type=pb.BaseCommand.ERROR,
            error=pb.CommandError(request_id=request_id, error=error_code(code), message=message),
        )
    )


def send_error(producer_id: int, sequence_id: int, code: ServerError, message: str) -> bytes:
    """SEND_ERROR."""
    return encode_command(
        pb.BaseCommand(
            type=pb.BaseCommand.SEND_ERROR,
            send_error=pb.CommandSendError(
                producer_id=producer_id, sequence_id=sequence_id, error=error_code(code), message=message
            ),
        )
    )


def connected(server_version: str, protocol_version: int, max_message_bytes: int, flags: pb.FeatureFlags) -> bytes:
    """CONNECTED."""
    return encode_command(
        pb.BaseCommand(
            type=pb.BaseCommand.CONNECTED,
            connected=pb.CommandConnected(
                server_version=server_version,
                protocol_version=protocol_version,
                max_message_size=max_message_bytes,
                feature_flags=flags,
            ),
        )
    )


def producer_success(
    request_id: int,
    producer_name: str,
    *,
    last_sequence_id: int,
    schema_version: bytes,
    topic_epoch: int | None,
    is_ready: bool,
) -> bytes:
    """PRODUCER_SUCCESS; ``last_sequence_id`` -1 if nothing is known of this producer."""
    answer = pb.CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        schema_version=schema_version,
        producer_ready=is_ready,
        topic_epoch=topic_epoch,
    )
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS, producer_success=answer))


def _assigned(url: str, url_tls: str) -> dict[str, str | None]:
    return {"assignedBrokerServiceUrl": url or None, "assignedBrokerServiceUrlTls": url_tls or None}


def close_producer(producer_id: int, request_id: int, url: str = "", url_tls: str = "") -> bytes:
    """CLOSE_PRODUCER, as a broker tells a client to look its topic up again, or that the broker at ``url`` has it."""
    close = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id, **_assigned(url, url_tls))
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=close))


def close_consumer(consumer_id: int, request_id: int, url: str = "", url_tls: str = "") -> bytes:
    """CLOSE_CONSUMER, as a broker tells a client to look its topic up again, or that the broker at ``url`` has it."""
    close = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id, **_assigned(url, url_tls))
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=close))


def topic_migrated(resource_id: int, url: str, url_tls: str, *, is_producer: bool) -> bytes:
    """TOPIC_MIGRATED, as a broker tells a client that a producer or consumer goes on in another cluster."""
    kinds = pb.CommandTopicMigrated
    moved = kinds(
        resource_id=resource_id,
        resource_type=kinds.Producer if is_producer else kinds.Consumer,
        brokerServiceUrl=url or None,
        brokerServiceUrlTls=url_tls or None,
    )
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.TOPIC_MIGRATED, topicMigrated=moved))


def lookup_connect(
    request_id: int,
    broker_url: str,
    broker_url_tls: str,
    *,
    is_authoritative: bool,
    is_through_service_url: bool = False,
) -> bytes:
    """LOOKUP_RESPONSE: connect to this broker; ``is_through_service_url``: by the address that the client has."""
    kind = pb.CommandLookupTopicResponse.Connect
    return _lookup_response(
        kind, request_id, broker_url, broker_url_tls, is_authoritative, is_through_service_url=is_through_service_url
    )


def lookup_redirect(request_id: int, broker_url: str, broker_url_tls: str, *, is_authoritative: bool) -> bytes:
    """LOOKUP_RESPONSE: ask this broker; ``is_authoritative``: and tell it that it was named."""
    kind = pb.CommandLookupTopicResponse.Redirect
    return _lookup_response(kind, request_id, broker_url, broker_url_tls, is_authoritative)


def _lookup_response(
    kind: pb.CommandLookupTopicResponse.LookupType,
    request_id: int,
    broker_url: str,
    broker_url_tls: str,
    is_authoritative: bool,
    *,
    is_through_service_url: bool = False,
) -> bytes:
    answer = pb.CommandLookupTopicResponse(
        request_id=request_id,
        brokerServiceUrl=broker_url,
        brokerServiceUrlTls=broker_url_tls or None,
        response=kind,
        authoritative=is_authoritative,
        proxy_through_service_url=is_through_service_url or None,
    )
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


def lookup_failed(request_id: int, code: ServerError, message: str) -> bytes:
    """LOOKUP_RESPONSE with an error."""
    kinds = pb.CommandLookupTopicResponse
    answer = kinds(request_id=request_id, response=kinds.Failed, error=error_code(code), message=message)
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


def partitions_failed(request_id: int, code: ServerError, message: str) -> bytes:
    """PARTITIONED_METADATA_RESPONSE with an error; without one: ``hot.encode_partitions``."""
    kinds = pb.CommandPartitionedTopicMetadataResponse
    answer = kinds(request_id=request_id, response=kinds.Failed, error=error_code(code), message=message)
    command = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer)
    return encode_command(command)


def topics_hash(topics: Sequence[str]) -> str:
    """The hash of a topic list that clients send back: CRC32C of the sorted names joined by commas.

    Hex digits of the four bytes, lowest byte first (as Guava prints an int hash).
    """
    joined = ",".join(sorted(topics)).encode()
    return int(crc32c(joined)).to_bytes(4, "little").hex()


def error_code(code: ServerError) -> pb.ServerError:
    """The generated class's number of an error."""
    # The model's enum and the generated one have the same numbers (held by a test); at run time both are ints.
    number: int = code
    return cast("pb.ServerError", number)
