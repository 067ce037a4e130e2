"""``schemaMode=topic``: the columns of topics by their schemas in the registry."""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from geminga.client import Client, PulsarException
from geminga.client.schema import SchemaInfo, SchemaType
from geminga.model import TopicName
from geminga.spark.decoding.avro_types import is_record, spark_type
from geminga.spark.decoding.avro_values import avro_converter, json_converter
from geminga.spark.decoding.protobuf_types import descriptor_of, message_type
from geminga.spark.rules.columns import KEY_PART, VALUE, metadata_fields
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from geminga.spark.source.positions import find_topics, in_parallel
from geminga.spark.source_rules.errors import SchemaError, TopicError
from geminga.spark.source_rules.options import SourceOptions
from geminga.wire.pulsar.schema_info import key_value_parts

#: Columns ``value`` of primitive schemas.
PRIMITIVES: Final[dict[SchemaType, DataType]] = {
    SchemaType.BYTES: BinaryType(),
    SchemaType.NONE: BinaryType(),
    SchemaType.STRING: StringType(),
    SchemaType.BOOLEAN: BooleanType(),
    SchemaType.INT8: ByteType(),
    SchemaType.INT16: ShortType(),
    SchemaType.INT32: IntegerType(),
    SchemaType.INT64: LongType(),
    SchemaType.FLOAT: FloatType(),
    SchemaType.DOUBLE: DoubleType(),
    SchemaType.DATE: DateType(),
    SchemaType.TIMESTAMP: TimestampType(),
    SchemaType.INSTANT: TimestampType(),
    SchemaType.LOCAL_DATE: DateType(),
    SchemaType.LOCAL_DATE_TIME: TimestampNTZType(),
}
_PROTOBUF: Final = (SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE)
#: What a topic without a schema counts as.
NO_SCHEMA: Final = SchemaInfo("", SchemaType.BYTES)


async def topic_schema(client: Client, options: SourceOptions) -> StructType:
    """The columns of the topics, which must have equal schemas; raises SchemaError, TopicError."""
    names = await find_topics(client, options.topics)
    topics = sorted({str(TopicName.parse(name).partitioned_topic) for name in names})
    if not topics:
        raise TopicError(f"{options.topics.pattern}: no topic matches, so there is no schema; use schemaMode=fixed")
    found: dict[str, SchemaInfo] = {}

    async def ask(topic: str) -> None:
        versioned = await client.get_schema(topic)
        found[topic] = NO_SCHEMA if versioned is None else versioned.info

    try:
        await in_parallel(topics, ask)
    except PulsarException as error:
        raise SchemaError(f"the registry does not give the schemas: {error}") from error
    first = topics[0]
    fields = value_fields(found[first], first)
    for topic in topics[1:]:
        if value_fields(found[topic], topic) != fields:
            raise SchemaError(f"{first} and {topic} have different schemas; use schemaMode=fixed or raw")
    return StructType([*fields, *metadata_fields(options.metadata_columns)])


def value_fields(info: SchemaInfo, topic: str) -> list[StructField]:
    """The columns of values of that schema. Raises SchemaError."""
    try:
        fields = _fields(info)
    except SchemaError as error:
        raise SchemaError(f"{topic}: {error}") from error
    taken = sorted({field.name for field in fields} & set(ALL_COLUMNS))
    if taken:
        raise SchemaError(f"{topic}: the field {taken[0]} has the name of a metadata column; use schemaMode=raw")
    return fields


def _fields(info: SchemaInfo) -> list[StructField]:
    if info.type is SchemaType.KEY_VALUE:
        try:
            parts = key_value_parts(info)
        except ValueError as error:
            raise SchemaError(f"the KEY_VALUE schema can not be read: {error}") from error
        return [StructField(KEY_PART, _whole(parts.key)), StructField(VALUE, _whole(parts.value))]
    whole = _whole(info)
    if isinstance(whole, StructType) and (info.type in _PROTOBUF or is_record(json.loads(info.schema))):
        return list(whole.fields)
    return [StructField(VALUE, whole)]


def _whole(info: SchemaInfo) -> DataType:
    """The type of a payload as one column; raises SchemaError."""
    if info.type in PRIMITIVES:
        return PRIMITIVES[info.type]
    if info.type in _PROTOBUF:
        return message_type(descriptor_of(info))
    if info.type not in (SchemaType.AVRO, SchemaType.JSON):
        raise SchemaError(f"{info.type.name} schemas have no columns in Spark; use schemaMode=raw")
    definition = json.loads(info.schema)
    made = spark_type(definition)
    # Unions whose members can not be told apart are refused before anything is read.
    (avro_converter if info.type is SchemaType.AVRO else json_converter)(definition)
    return made
