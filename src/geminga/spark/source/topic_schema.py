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
    TimestampType,
)

from geminga.client import Client, PulsarException
from geminga.client.schema import SchemaInfo, SchemaType
from geminga.model import TopicName
from geminga.spark.columns import VALUE, metadata_fields
from geminga.spark.core.metadata_columns import ALL_COLUMNS
from geminga.spark.core.options import SourceOptions
from geminga.spark.source.avro_types import spark_type
from geminga.spark.source.errors import SchemaError, TopicError
from geminga.spark.source.positions import find_topics, in_parallel

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
    SchemaType.LOCAL_DATE: DateType(),
}
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
    """The columns of values of that schema."""
    if info.type in PRIMITIVES:
        return [StructField(VALUE, PRIMITIVES[info.type])]
    if info.type not in (SchemaType.AVRO, SchemaType.JSON):
        raise SchemaError(f"{topic}: {info.type.name} schemas have no columns in Spark; use schemaMode=raw")
    made = spark_type(json.loads(info.schema))
    if not isinstance(made, StructType):
        return [StructField(VALUE, made)]
    taken = sorted(set(made.fieldNames()) & set(ALL_COLUMNS))
    if taken:
        raise SchemaError(f"{topic}: the field {taken[0]} has the name of a metadata column; use schemaMode=raw")
    return list(made.fields)
