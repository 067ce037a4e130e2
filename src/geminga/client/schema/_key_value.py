"""KeyValue schemas: two schemas in one. INLINE: both parts in the payload; SEPARATED: the key is the message's key."""

from __future__ import annotations

from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar, cast

from geminga.client._api.options import check_argument
from geminga.client.rules.option_kinds import Instance, Member
from geminga.client.schema._base import Schema, SchemaSerializationError
from geminga.client.schema._protocol import SchemaInfo, SchemaType
from geminga.wire.pulsar.schema_info import (
    INLINE,
    SEPARATED,
    KeyValueParts,
    join_key_value,
    key_value_parts,
    key_value_schema,
    split_key_value,
)

K = TypeVar("K")
V = TypeVar("V")

_SCHEMA: Final = Instance(Schema, "a schema such as StringSchema()")


class KeyValueEncoding(Enum):
    """Where the key goes."""

    INLINE = INLINE
    SEPARATED = SEPARATED


class KeyValue(NamedTuple, Generic[K, V]):
    """A key and a value; INLINE either may be None."""

    key: K
    value: V


class KeyValueSchema(Schema[KeyValue[K, V]]):
    """Pairs of a key and a value, each with a schema of its own."""

    def __init__(self, key: Schema[K], value: Schema[V], encoding: KeyValueEncoding = KeyValueEncoding.INLINE) -> None:
        """``encoding``: with SEPARATED, messages are routed, compacted and shared by the key.

        Raises InvalidConfiguration for what is no schema, or no encoding.
        """
        check_argument("key", key, _SCHEMA)
        check_argument("value", value, _SCHEMA)
        check_argument("encoding", encoding, Member(KeyValueEncoding))
        self._key, self._value, self._encoding = key, value, encoding
        self._info = key_value_schema("KeyValue", KeyValueParts(key.info, value.info, encoding.value))

    @property
    def info(self) -> SchemaInfo:
        """Type KEY_VALUE, made of the parts."""
        return self._info

    @property
    def sets_key(self) -> bool:
        """With SEPARATED."""
        return self._encoding is KeyValueEncoding.SEPARATED

    @property
    def _needs_writer(self) -> bool:
        return self._key._needs_writer or self._value._needs_writer

    def encode(self, value: KeyValue[K, V]) -> bytes:
        """Both parts, or with SEPARATED the value's. Raises SchemaSerializationError."""
        key_part, value_part = _pair(value)
        if self.sets_key:
            if value_part is None:
                raise SchemaSerializationError("SEPARATED takes no None: send None with a partition_key instead")
            return self._value.encode(value_part)
        return join_key_value(
            None if key_part is None else self._key.encode(key_part),
            None if value_part is None else self._value.encode(value_part),
        )

    def encode_key(self, value: KeyValue[K, V]) -> bytes:
        """The key's part. Raises SchemaSerializationError."""
        key_part, _ = _pair(value)
        if key_part is None:
            raise SchemaSerializationError("SEPARATED needs a key")
        return self._key.encode(key_part)

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> KeyValue[K, V]:
        """The pair. Raises SchemaSerializationError."""
        parts = _parts_of(writer)
        key_part: bytes | None
        value_part: bytes | None
        if self.sets_key:
            key_part, value_part = key, data
        else:
            try:
                key_part, value_part = split_key_value(data)
            except ValueError as error:
                raise SchemaSerializationError(f"{len(data)} bytes are no KeyValue: {error}") from error
        return KeyValue(
            _decoded(self._key, key_part, None if parts is None else parts.key),
            _decoded(self._value, value_part, None if parts is None else parts.value),
        )

    def __repr__(self) -> str:
        return f"KeyValueSchema({self._key!r}, {self._value!r}, {self._encoding})"


def _pair(value: KeyValue[K, V]) -> tuple[K, V]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise SchemaSerializationError(f"expected KeyValue, not {type(value).__name__}")
    return value


def _parts_of(writer: SchemaInfo | None) -> KeyValueParts | None:
    if writer is None:
        return None
    if writer.type is not SchemaType.KEY_VALUE:
        raise SchemaSerializationError(f"the message was written with a {writer.type.name} schema, not KEY_VALUE")
    try:
        return key_value_parts(writer)
    except ValueError as error:
        raise SchemaSerializationError(f"the writer's KeyValue schema: {error}") from error


def _decoded(schema: Schema[K], data: bytes | None, writer: SchemaInfo | None) -> K:
    if data is None:
        # Only what was sent as None comes back so; the types say what is usual.
        return cast("K", None)
    return schema.decode(data, writer=writer)
