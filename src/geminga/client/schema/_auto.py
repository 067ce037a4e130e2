"""Schemas that take what the topic has: AUTO_CONSUME reads each message by its schema, AUTO_PRODUCE checks bytes.

They are for tools, bridges and sinks, which know no class of the data they move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from google.protobuf import message_factory

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._base import Schema, SchemaEncoder, SchemaSerializationError
from geminga.client.schema._key_value import KeyValueEncoding, KeyValueSchema
from geminga.client.schema._primitives import PRIMITIVES, BytesSchema
from geminga.client.schema._protobuf import ProtobufNativeSchema
from geminga.client.schema._protocol import MessageEncoder, SchemaInfo, SchemaSource, SchemaType
from geminga.client.schema._struct import AvroSchema, load_json
from geminga.wire.pulsar.protobuf_definition import root_message
from geminga.wire.pulsar.schema_info import key_value_parts

#: Schemas that one AUTO_CONSUME keeps ready; the oldest is forgotten first.
SCHEMAS_MAX: Final = 1000


class GenericRecord(Mapping[str, Any]):
    """A record without a class: its fields by name, and the schema it was written with."""

    __slots__ = ("_fields", "schema_info")

    def __init__(self, fields: Mapping[str, Any], schema_info: SchemaInfo) -> None:
        self._fields = fields
        #: What the writer used.
        self.schema_info = schema_info

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"GenericRecord({dict(self._fields)!r})"


class AutoConsumeSchema(Schema[Any]):
    """Reads each message by the schema it was written with.

    Values: Python's own for primitive schemas (bytes where there was no schema), :class:`GenericRecord` for AVRO and
    JSON, a message for PROTOBUF_NATIVE, :class:`KeyValue` of these, the bytes themselves for PROTOBUF.
    """

    needs_writer: ClassVar[bool] = True

    def __init__(self) -> None:
        self._schemas: dict[tuple[int, bytes, str], Schema[Any]] = {}

    @property
    def info(self) -> SchemaInfo:
        """Type AUTO_CONSUME: the broker compares nothing. Brokers before protocol 21 must not be sent it."""
        return SchemaInfo("AUTO_CONSUME", SchemaType.AUTO_CONSUME)

    def encode(self, value: Any) -> bytes:  # noqa: ANN401
        """Refused: only consumers can use it. Raises SchemaSerializationError."""
        raise SchemaSerializationError("AUTO_CONSUME is for consumers: producers use AutoProduceBytesSchema")

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[Any]:
        """Refused: only consumers can use it. Raises InvalidConfiguration."""
        raise InvalidConfiguration("AutoConsumeSchema is for consumers: producers use AutoProduceBytesSchema")

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> Any:  # noqa: ANN401
        """The value by the writer's schema. Raises SchemaSerializationError."""
        if writer is None:
            return data
        identity = (int(writer.type), writer.schema, str(writer.properties))
        schema = self._schemas.get(identity)
        if schema is None:
            schema = self._schemas[identity] = schema_of_info(writer)
            if len(self._schemas) > SCHEMAS_MAX:
                del self._schemas[next(iter(self._schemas))]
        return schema.decode(data, key=key)


class AutoProduceBytesSchema(Schema[bytes]):
    """Takes bytes that are of the topic's schema already, and checks that they are.

    The schema is that which the topic has when the producer is created; without one, any bytes are taken.
    """

    def __init__(self, *, validate: bool = True) -> None:
        """``validate``: decode every message before it is sent; off, whoever reads finds out."""
        self._validate = validate

    @property
    def info(self) -> SchemaInfo:
        """None of its own."""
        return SchemaInfo("BYTES", SchemaType.BYTES)

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[bytes]:
        """An encoder with the topic's schema.

        Raises what asking the broker for it raises, and SchemaSerializationError for one that is broken.
        """
        found = await source.get_schema(topic)
        if found is None:
            return SchemaEncoder(BytesSchema(), None)
        checked = _CheckedBytes(schema_of_info(found.info) if self._validate else BytesSchema())
        return SchemaEncoder(checked, found.info)

    def encode(self, value: bytes) -> bytes:
        """Refused: it is bound to a topic first. Raises SchemaSerializationError."""
        raise SchemaSerializationError("AutoProduceBytesSchema encodes for a topic only: give it to create_producer")


class _CheckedBytes(Schema[bytes]):
    def __init__(self, schema: Schema[Any]) -> None:
        self._schema = schema

    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise SchemaSerializationError(f"expected bytes of the topic's schema, not {type(value).__name__}")
        self._schema.decode(value)
        return value


class _GenericAvro(AvroSchema[Any]):
    def __init__(self, written: SchemaInfo) -> None:
        super().__init__(schema_definition=written.schema.decode())
        self._written = written

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> Any:  # noqa: ANN401
        value = super().decode(data)
        return GenericRecord(value, self._written) if isinstance(value, dict) else value


class _GenericJson(Schema[Any]):
    def __init__(self, written: SchemaInfo) -> None:
        self._written = written

    @property
    def info(self) -> SchemaInfo:
        return self._written

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> Any:  # noqa: ANN401
        value = load_json(data)
        return GenericRecord(value, self._written) if isinstance(value, dict) else value


class _GenericBytes(BytesSchema):
    def __init__(self, written: SchemaInfo) -> None:
        super().__init__()
        self._info = written


def schema_of_info(info: SchemaInfo) -> Schema[Any]:
    """A schema that decodes what was written with ``info``. Raises SchemaSerializationError for a broken definition."""
    if info.type in PRIMITIVES:
        return PRIMITIVES[info.type]()
    try:
        if info.type is SchemaType.AVRO:
            return _GenericAvro(info)
        if info.type is SchemaType.JSON:
            return _GenericJson(info)
        if info.type is SchemaType.KEY_VALUE:
            parts = key_value_parts(info)
            encoding = KeyValueEncoding(parts.encoding)
            return KeyValueSchema(schema_of_info(parts.key), schema_of_info(parts.value), encoding)
        if info.type is SchemaType.PROTOBUF_NATIVE:
            return ProtobufNativeSchema(message_factory.GetMessageClass(root_message(info.schema)))
    except (InvalidConfiguration, ValueError) as error:
        raise SchemaSerializationError(f"the {info.type.name} schema of the topic: {error}") from error
    # PROTOBUF: its definition does not say the fields' numbers, so nobody can read it without the class.
    return _GenericBytes(info)
