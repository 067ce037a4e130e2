"""Schemas as the protocol carries them: type, definition, properties; and the layout of KeyValue schemas and messages.

A KeyValue schema's definition, and an INLINE KeyValue message, is::

    4 bytes  length of the key part, big-endian, -1: there is none
    n bytes  the key part
    4 bytes  length of the value part, -1: there is none
    m bytes  the value part

What the parts of a definition are is said by its properties: ``key.schema.name``, ``key.schema.type`` (a name of
:class:`SchemaType`), ``key.schema.properties`` (JSON), the same for ``value``, and ``kv.encoding.type`` (``INLINE`` or
``SEPARATED``: the key is the message's key). Example, STRING and INT32: ``00000000 00000000``; the message
("k", 7) INLINE: ``00000001 6b 00000004 00000007``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, cast

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import texts_of

KEY_VALUE_ENCODING: Final = "kv.encoding.type"
INLINE: Final = "INLINE"
SEPARATED: Final = "SEPARATED"
_LENGTH: Final = struct.Struct(">i")
_VERSION: Final = struct.Struct(">q")
#: Of a version that is a number; brokers look at no more of it.
SCHEMA_VERSION_BYTES: Final = _VERSION.size


class SchemaType(IntEnum):
    """``Schema.Type`` of the wire protocol; BYTES has no number there and goes as NONE."""

    BYTES = -1
    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    EXTERNAL = 22

    @property
    def is_avro_based(self) -> bool:
        """Whether the definition is an Avro schema in JSON."""
        return self in _AVRO_BASED

    @property
    def is_primitive(self) -> bool:
        """Whether the type says everything and there is no definition."""
        return self not in _NOT_PRIMITIVE


_AVRO_BASED: Final = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF))
_NOT_PRIMITIVE: Final = _AVRO_BASED | {
    SchemaType.KEY_VALUE,
    SchemaType.PROTOBUF_NATIVE,
    SchemaType.AUTO_CONSUME,
    SchemaType.EXTERNAL,
}


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema as the broker stores it."""

    name: str
    type: SchemaType
    #: The definition: Avro JSON for AVRO, JSON and PROTOBUF, descriptors for PROTOBUF_NATIVE, empty for primitives.
    schema: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> pb.Schema:
        """As a field of PRODUCER, SUBSCRIBE or GET_OR_CREATE_SCHEMA."""
        number = cast("pb.Schema.Type", max(0, int(self.type)))
        wire = pb.Schema(name=self.name, schema_data=self.schema, type=number)
        pairs = cast("list[pb.KeyValue]", wire.properties)
        pairs.extend(pb.KeyValue(key=key, value=value) for key, value in sorted(self.properties.items()))
        return wire

    @classmethod
    def from_wire(cls, schema: pb.Schema) -> SchemaInfo:
        """From a command."""
        pairs = cast("Iterable[pb.KeyValue]", schema.properties)
        return cls(schema.name, SchemaType(schema.type), schema.schema_data, texts_of(pairs))


def encode_version(version: int) -> bytes:
    """A schema version as messages and commands carry it: 8 bytes, big-endian."""
    return _VERSION.pack(version)


def decode_version(data: bytes) -> int:
    """The number of a schema version. Raises ValueError for fewer than 8 bytes; what follows is not looked at."""
    if len(data) < _VERSION.size:
        raise ValueError(f"a schema version has 8 bytes, not {len(data)}")
    number: int = _VERSION.unpack_from(data)[0]
    return number


class KeyValueParts(NamedTuple):
    """The two schemas of a KeyValue schema, and how messages carry the key."""

    key: SchemaInfo
    value: SchemaInfo
    #: ``INLINE`` or ``SEPARATED``.
    encoding: str


def join_key_value(key: bytes | None, value: bytes | None) -> bytes:
    """Both parts in the layout of the module's docstring."""
    return b"".join((_part(key), _part(value)))


def split_key_value(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value part. Raises ValueError for anything that is not exactly two parts."""
    key, offset = _take(data, 0)
    value, offset = _take(data, offset)
    if offset != len(data):
        raise ValueError(f"{len(data) - offset} bytes behind the value")
    return key, value


def key_value_schema(name: str, parts: KeyValueParts) -> SchemaInfo:
    """The KeyValue schema of two schemas."""
    properties = {KEY_VALUE_ENCODING: parts.encoding}
    for side, info in (("key", parts.key), ("value", parts.value)):
        properties[f"{side}.schema.name"] = info.name
        properties[f"{side}.schema.type"] = info.type.name
        properties[f"{side}.schema.properties"] = json.dumps(dict(info.properties), separators=(",", ":"))
    return SchemaInfo(name, SchemaType.KEY_VALUE, join_key_value(parts.key.schema, parts.value.schema), properties)


def key_value_parts(info: SchemaInfo) -> KeyValueParts:
    """The two schemas of a KeyValue schema; what its properties leave out is BYTES and INLINE. Raises ValueError."""
    key, value = split_key_value(info.schema)
    encoding = info.properties.get(KEY_VALUE_ENCODING, INLINE)
    if encoding not in (INLINE, SEPARATED):
        raise ValueError(f"{KEY_VALUE_ENCODING}={encoding}: expected {INLINE} or {SEPARATED}")
    return KeyValueParts(_side(info, "key", key), _side(info, "value", value), encoding)


def _side(info: SchemaInfo, side: str, definition: bytes | None) -> SchemaInfo:
    name = info.properties.get(f"{side}.schema.type", "BYTES")
    if name not in SchemaType.__members__:
        raise ValueError(f"{side}.schema.type={name} is no type of schema")
    text = info.properties.get(f"{side}.schema.properties", "")
    try:
        properties = json.loads(text) if text else {}
    except RecursionError as error:
        raise ValueError(f"{side}.schema.properties: {error}") from error
    if not isinstance(properties, dict):
        raise ValueError(f"{side}.schema.properties is not a JSON object")
    return SchemaInfo(
        info.properties.get(f"{side}.schema.name", ""),
        SchemaType[name],
        definition or b"",
        {str(key): str(value) for key, value in properties.items()},
    )


def _part(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


def _take(data: bytes, offset: int) -> tuple[bytes | None, int]:
    start = offset + _LENGTH.size
    if len(data) < start:
        raise ValueError("cut off in a length")
    length: int = _LENGTH.unpack_from(data, offset)[0]
    if length == -1:
        return None, start
    if length < 0 or len(data) - start < length:
        raise ValueError(f"a part of {length} bytes, {len(data) - start} are left")
    return bytes(data[start : start + length]), start + length
