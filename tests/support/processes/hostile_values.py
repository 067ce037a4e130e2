"""Every field of every command and of message metadata, each with values at its borders, from the descriptors.

A case is one well-formed message with one field changed. Values are written as they go over the wire, so that also
those are sent which the generated classes refuse to hold: numbers of other widths, unknown values of enumerations,
texts that are no UTF-8, required fields that are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.varint import encode_varint

#: Messages within messages are changed this deep.
DEPTH_MAX: Final = 3
MANY: Final = 1000

NUMBERS: Final = (
    *(0, 1, 2, -1, 63, 64, 65, 999, 65_535, 65_536),
    *((1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1, 1 << 32),
    *((1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1, (1 << 64) - 2),
)
TEXTS: Final = (
    *(b"", b"x", b"0", b"-1", b"\x00", b"\xff\xfe", b"a" * 70_000, b"%2F..%00", b"../../..", "\U0001f600\n".encode()),
    *(b"persistent://public/default/hostile", b"non-persistent://public/default/hostile", b"public/default"),
    b"persistent://public/default/hostile-partition-99999999999",
)
_VARINTS: Final = frozenset(
    (
        *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32),
        *(FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM),
    )
)

Path = tuple[FieldDescriptor, ...]


class Case(NamedTuple):
    """One changed field."""

    #: From the outermost message inwards.
    path: Path
    #: What is sent in place of the field, and what to call it.
    value: bytes
    name: str

    @property
    def field_name(self) -> str:
        """``ack.message_id.ledgerId``."""
        return ".".join(field.name for field in self.path)

    def __str__(self) -> str:
        return f"{self.field_name} = {self.name}"


def cases_of(descriptor: Descriptor, prefix: Path = ()) -> Iterator[Case]:
    """Every field of a message, and of the messages within it, with every value."""
    for field in descriptor.fields:
        path = (*prefix, field)
        for name, value in values_of(field):
            yield Case(path, value, name)
        if field.message_type is not None and len(path) <= DEPTH_MAX:
            yield from cases_of(field.message_type, path)


def values_of(field: FieldDescriptor) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the values to try."""
    yield "absent", b""
    if field.type in _VARINTS:
        numbers = list(NUMBERS)
        if field.enum_type is not None:
            numbers += [value.number for value in field.enum_type.values if value.number not in numbers]
        for number in numbers:
            yield str(number), tag(field, 0) + encode_varint(number & ((1 << 64) - 1))
        if field.is_repeated:
            yield f"{MANY} x -1", (tag(field, 0) + encode_varint((1 << 64) - 1)) * MANY
    elif field.message_type is not None:
        yield "empty", tag(field, 2) + b"\x00"
        yield "garbage", tag(field, 2) + b"\x03\xff\xff\xff"
    elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        for text in TEXTS:
            yield repr(text[:40]), delimited(field, text)
        if field.is_repeated:
            yield f"{MANY} x 'x'", delimited(field, b"x") * MANY
    else:
        for text in (bytes(8), b"\xff" * 8, b"\x00" * 6 + b"\xf0\x7f"):
            yield text.hex(), tag(field, 1) + text
    yield "of another wire type", tag(field, 5) + b"\xff\xff\xff\xff"


def tag(field: FieldDescriptor, wire_type: int) -> bytes:
    """What stands before a value."""
    return encode_varint(field.number << 3 | wire_type)


def delimited(field: FieldDescriptor, data: bytes) -> bytes:
    """A length-delimited value."""
    return tag(field, 2) + encode_varint(len(data)) + data


def changed(message: Message, path: Path, value: bytes) -> bytes:
    """``message`` with the field at ``path`` replaced; messages on the way there are made if need be."""
    field = path[0]
    rest = type(message)()
    rest.CopyFrom(message)
    rest.ClearField(field.name)
    if len(path) == 1:
        return rest.SerializePartialToString() + value
    if field.is_repeated:
        inner = list(getattr(message, field.name))
        child = inner[0] if inner else getattr(type(message)(), field.name).add()
        others = b"".join(delimited(field, other.SerializePartialToString()) for other in inner[1:])
    else:
        child, others = getattr(message, field.name), b""
    if not child.ListFields():
        fill_required(child)
    return rest.SerializePartialToString() + delimited(field, changed(child, path[1:], value)) + others


#: What a required, or usual, field has where it makes sense.
USUAL: Final[dict[str, object]] = {
    "topic": "persistent://public/default/hostile",
    "namespace": "public/default",
    "topics_pattern": "persistent://public/default/h.*",
    "subscription": "made-by-chance",
    "messagePermits": 10,
    "key": "k",
    "value": "v",
    "name": "n",
    "schema_data": b"",
    "type": 1,
    "client_version": "hostile",
    "producer_name": "hostile",
    "publish_time": 1_700_000_000_000,
}


def fill_required(message: Message) -> None:
    """Give required fields values that make sense."""
    for field in message.DESCRIPTOR.fields:
        if field.is_required:
            if field.message_type is not None:
                child = getattr(message, field.name)
                child.SetInParent()
                fill_required(child)
            else:
                usual, neutral = USUAL.get(field.name), _neutral(field)
                setattr(message, field.name, usual if isinstance(usual, type(neutral)) else neutral)


def _neutral(field: FieldDescriptor) -> object:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return b"x" if field.type == FieldDescriptor.TYPE_BYTES else "x"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return False
    if field.enum_type is not None:
        return field.enum_type.values[0].number
    return 0


def command_fields() -> list[FieldDescriptor]:
    """The commands: fields of ``BaseCommand``."""
    return [field for field in pb.BaseCommand.DESCRIPTOR.fields if field.message_type is not None]


def type_of(field: FieldDescriptor) -> int:
    """The ``BaseCommand.Type`` of a command's field: they have the same numbers."""
    numbers = {value.number for value in pb.BaseCommand.Type.DESCRIPTOR.values}
    assert field.number in numbers, field.name
    return field.number
