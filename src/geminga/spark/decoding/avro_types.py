"""Avro definitions, which AVRO and JSON schemas of topics have, as Spark's types."""

from __future__ import annotations

from collections.abc import Mapping
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
    TimestampNTZType,
    TimestampType,
)

from geminga.spark.decoding.avro_names import with_full_names
from geminga.spark.source_rules.errors import SchemaError

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
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "uuid": StringType(),
}
_TIMES: Final = ("time-millis", "time-micros")
#: What logical types stand on; on another type they say nothing, as Avro has it.
_BASES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("date", "time-millis"), ("int",)),
    **dict.fromkeys(("time-micros", "timestamp-millis", "timestamp-micros"), ("long",)),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), ("long",)),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}
_UUID_BYTES: Final = 16
#: Of Spark's decimals.
_DIGITS_MAX: Final = 38


def spark_type(definition: object) -> DataType:
    """The type of an Avro definition; raises SchemaError, which names the field, for what Spark has no type for."""
    return _type(with_full_names(definition), {}, "")


def _type(definition: object, named: dict[str, DataType], path: str) -> DataType:
    if isinstance(definition, list):
        return _of_union(definition, named, path)
    if isinstance(definition, str):
        found = _SIMPLE.get(definition) or named.get(definition)
        if found is None:
            raise SchemaError(f"{at(path)}{definition!r}: a type that is not known, or holds itself")
        return found
    if not isinstance(definition, Mapping):
        raise SchemaError(f"{at(path)}{definition!r} is no Avro type")
    kind = definition["type"]
    if not isinstance(kind, str):
        return _type(kind, named, path)
    logical = logical_of(definition)
    if logical == "decimal":
        return _remembered(definition, _decimal(definition.get("precision"), definition.get("scale", 0), path), named)
    if logical in _TIMES:
        raise SchemaError(
            f"{at(path)}{logical}: Spark has no type for a time of day that is on by default; use schemaMode=raw, or "
            "schemaMode=fixed with TIME and spark.sql.timeType.enabled"
        )
    if logical in _LOGICAL:
        return _remembered(definition, _LOGICAL[logical], named)
    if kind == "array":
        return ArrayType(_type(definition["items"], named, f"{path}[]"))
    if kind == "map":
        return MapType(StringType(), _type(definition["values"], named, f"{path}[]"))
    if kind not in ("record", "error"):
        return _remembered(definition, _type(kind, named, path), named)
    fields = []
    for field in definition["fields"]:
        inner = _type(field["type"], named, f"{path}.{field['name']}".lstrip("."))
        fields.append(StructField(field["name"], inner))
    return _remembered(definition, StructType(fields), named)


def logical_of(definition: Mapping[str, Any]) -> str:
    """The logical type of a definition; empty: none that is known, or none that can be of its type."""
    logical, kind = definition.get("logicalType"), definition["type"]
    if not isinstance(logical, str) or not isinstance(kind, str) or kind not in _BASES.get(logical, ()):
        return ""
    return "" if (logical, kind) == ("uuid", "fixed") and definition.get("size") != _UUID_BYTES else logical


def _decimal(precision: object, scale: object, path: str) -> DecimalType:
    if (
        type(precision) is not int
        or type(scale) is not int
        or not 0 <= scale <= precision <= _DIGITS_MAX
        or not precision
    ):
        raise SchemaError(
            f"{at(path)}a decimal of precision {precision} and scale {scale}: Spark's have 1 to {_DIGITS_MAX} digits, "
            "of which the scale are behind the point; use schemaMode=raw"
        )
    return DecimalType(precision, scale)


def at(path: str) -> str:
    """The beginning of an error's text."""
    return f"{path}: " if path else ""


def _remembered(definition: Mapping[str, Any], found: DataType, named: dict[str, DataType]) -> DataType:
    if "name" in definition:
        named[definition["name"]] = found
    return found


def _of_union(branches: list[object], named: dict[str, DataType], path: str) -> DataType:
    others = [branch for branch in branches if branch != "null"]
    if len(others) < 2:
        return _type(others[0] if others else "null", named, path)
    if set(map(str, others)) == {"int", "long"}:
        return LongType()
    if set(map(str, others)) == {"float", "double"}:
        return DoubleType()
    members = [_type(branch, named, f"{path}.member{index}") for index, branch in enumerate(others)]
    return StructType([StructField(f"member{index}", member) for index, member in enumerate(members)])


def is_record(definition: object) -> bool:
    """Whether a definition is a record, or one that may be null: its fields are columns."""
    if isinstance(definition, list):
        others = [branch for branch in definition if branch != "null"]
        return len(others) == 1 and is_record(others[0])
    return isinstance(definition, Mapping) and definition["type"] in ("record", "error")
