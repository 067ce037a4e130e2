"""Avro definitions, which AVRO and JSON schemas of topics have, as Spark's types; JSON values as what Arrow takes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from geminga.spark.source.errors import SchemaError

_SIMPLE: Final[Mapping[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: Final[Mapping[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "uuid": StringType(),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: A JSON value -> what Arrow takes.
Convert = Callable[[Any], Any]


def spark_type(definition: object, named: dict[str, DataType] | None = None) -> DataType:
    """The type of an Avro definition; raises SchemaError for what Spark has no type for."""
    named = {} if named is None else named
    if isinstance(definition, list):
        return _of_union(definition, named)
    if isinstance(definition, str):
        found = _SIMPLE.get(definition) or named.get(definition.rpartition(".")[2])
        if found is None:
            raise SchemaError(f"{definition!r}: a type that is not known, or holds itself")
        return found
    if not isinstance(definition, Mapping):
        raise SchemaError(f"{definition!r} is no Avro type")
    kind = definition["type"]
    if not isinstance(kind, str):
        return spark_type(kind, named)
    logical = definition.get("logicalType")
    if logical == "decimal":
        return DecimalType(definition["precision"], definition.get("scale", 0))
    if logical in ("time-millis", "time-micros"):
        raise SchemaError(f"{logical}: Spark has no type for a time of day; use schemaMode=raw")
    if isinstance(logical, str) and logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        return ArrayType(spark_type(definition["items"], named))
    if kind == "map":
        return MapType(StringType(), spark_type(definition["values"], named))
    if kind not in ("record", "error"):
        return _remembered(definition, spark_type(kind, named), named)
    fields = [StructField(field["name"], spark_type(field["type"], named)) for field in definition["fields"]]
    return _remembered(definition, StructType(fields), named)


def _remembered(definition: Mapping[str, Any], found: DataType, named: dict[str, DataType]) -> DataType:
    if "name" in definition:
        named[definition["name"].rpartition(".")[2]] = found
    return found


def _of_union(branches: list[object], named: dict[str, DataType]) -> DataType:
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise SchemaError(f"a union of {len(others)} types: Spark has none; use schemaMode=raw")
    return spark_type(others[0], named)


def json_converter(definition: object, named: dict[str, Convert] | None = None) -> Convert:
    """What makes of a JSON value (times are numbers, bytes are base64) what Arrow takes."""
    named = {} if named is None else named
    if isinstance(definition, list):
        others = [branch for branch in definition if branch != "null"]
        inner = json_converter(others[0], named) if others else _as_it_is
        return inner if inner is _as_it_is else lambda value: None if value is None else inner(value)
    if isinstance(definition, str):
        return _from_base64 if definition in ("bytes", "fixed") else named.get(definition, _as_it_is)
    assert isinstance(definition, Mapping)
    kind, logical = definition["type"], definition.get("logicalType")
    if logical == "date":
        return lambda value: date(1970, 1, 1) + timedelta(days=value)
    if logical == "timestamp-millis":
        return lambda value: _EPOCH + timedelta(milliseconds=value)
    if logical == "timestamp-micros":
        return lambda value: _EPOCH + timedelta(microseconds=value)
    if logical == "decimal":
        return lambda value: Decimal(str(value))
    if kind == "array":
        item = json_converter(definition["items"], named)
        return lambda value: [item(one) for one in value]
    if kind == "map":
        of_value = json_converter(definition["values"], named)
        return lambda value: [(key, of_value(one)) for key, one in value.items()]
    if kind == "record":
        fields = [(field["name"], json_converter(field["type"], named)) for field in definition["fields"]]

        def record(value: Mapping[str, Any]) -> dict[str, Any]:
            return {name: convert(value[name]) for name, convert in fields if value.get(name) is not None}

        named[definition["name"]] = record
        return record
    return json_converter(kind, named)


def _as_it_is(value: object) -> object:
    return value


def _from_base64(value: str) -> bytes:
    return base64.b64decode(value)
