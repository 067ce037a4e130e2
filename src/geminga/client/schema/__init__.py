"""Schemas: what messages are, for producers, consumers and the broker.

``create_producer(topic, schema=JsonSchema(Reading))`` sends values of a class, ``subscribe`` with the same schema
gives them back; the broker keeps the schema's versions and refuses one that does not fit. See ``docs/schemas.md``.
"""

from __future__ import annotations

from geminga.client.schema._auto import AutoConsumeSchema, AutoProduceBytesSchema, GenericRecord
from geminga.client.schema._base import Schema, SchemaSerializationError
from geminga.client.schema._key_value import KeyValue, KeyValueEncoding, KeyValueSchema
from geminga.client.schema._primitives import (
    BooleanSchema,
    BytesSchema,
    DateSchema,
    DoubleSchema,
    FloatSchema,
    InstantSchema,
    Int8Schema,
    Int16Schema,
    Int32Schema,
    Int64Schema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    StringSchema,
    TimeSchema,
    TimestampSchema,
)
from geminga.client.schema._protobuf import ProtobufNativeSchema, ProtobufSchema
from geminga.client.schema._protocol import (
    MessageDecoder,
    MessageEncoder,
    SchemaInfo,
    SchemaSource,
    SchemaType,
    TopicSchema,
    VersionedSchema,
)
from geminga.client.schema._records import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    Record,
    String,
)
from geminga.client.schema._scalars import AvroDecimal, AvroType, Float32, Int32, Json
from geminga.client.schema._struct import AvroSchema, JsonSchema

__all__ = [
    "Array",
    "AutoConsumeSchema",
    "AutoProduceBytesSchema",
    "AvroDecimal",
    "AvroSchema",
    "AvroType",
    "Boolean",
    "BooleanSchema",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "DateSchema",
    "Double",
    "DoubleSchema",
    "Field",
    "Float",
    "Float32",
    "FloatSchema",
    "GenericRecord",
    "InstantSchema",
    "Int8Schema",
    "Int16Schema",
    "Int32",
    "Int32Schema",
    "Int64Schema",
    "Integer",
    "Json",
    "JsonSchema",
    "KeyValue",
    "KeyValueEncoding",
    "KeyValueSchema",
    "LocalDateSchema",
    "LocalDateTimeSchema",
    "LocalTimeSchema",
    "Long",
    "Map",
    "MessageDecoder",
    "MessageEncoder",
    "Null",
    "ProtobufNativeSchema",
    "ProtobufSchema",
    "Record",
    "Schema",
    "SchemaInfo",
    "SchemaSerializationError",
    "SchemaSource",
    "SchemaType",
    "String",
    "StringSchema",
    "TimeSchema",
    "TimestampSchema",
    "TopicSchema",
    "VersionedSchema",
]
