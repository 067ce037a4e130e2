"""Names and types of the columns of a topic, for Spark and for Arrow; used by source and sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from geminga.spark.rules import metadata_columns as names

if TYPE_CHECKING:
    import pyarrow as pa

#: The column of a message's payload, unless a schema makes columns of it.
VALUE: Final = "value"
#: The column of a pair's key.
KEY_PART: Final = "key"

_TYPES: Final[Mapping[str, DataType]] = {
    names.KEY: BinaryType(),
    names.TOPIC: StringType(),
    names.MESSAGE_ID: BinaryType(),
    names.PUBLISH_TIME: TimestampType(),
    names.EVENT_TIME: TimestampType(),
    names.PROPERTIES: MapType(StringType(), StringType()),
    names.PARTITION: IntegerType(),
    names.REDELIVERY_COUNT: IntegerType(),
    names.PRODUCER_NAME: StringType(),
    names.SEQUENCE_ID: LongType(),
    names.SCHEMA_VERSION: BinaryType(),
    names.INVALID: StringType(),
}


def raw_schema(metadata_columns: Sequence[str]) -> StructType:
    """``value`` as bytes, and the metadata columns."""
    return StructType([StructField(VALUE, BinaryType()), *metadata_fields(metadata_columns)])


def metadata_fields(metadata_columns: Sequence[str]) -> list[StructField]:
    """The metadata columns."""
    return [StructField(name, _TYPES[name]) for name in metadata_columns]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark demands for ``schema``, to the letter."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
