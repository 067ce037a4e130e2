"""The Avro definition of a record that Spark columns become, from Spark's types in their JSON form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

from geminga.spark.rules.option_values import OptionError

#: Spark's plain types in Avro.
_PLAIN: Final[Mapping[str, object]] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)

#: A Spark type as JSON: a name, or the description of a nested one.
SparkType = str | Mapping[str, object]
#: (name, type, whether it may be null).
Field = tuple[str, SparkType, bool]


def record_definition(fields: Sequence[Field], name: str = "row") -> str:
    """The definition as JSON text; nested records are named after the path to them. Raises OptionError."""
    return json.dumps(_record(fields, name, set()), separators=(",", ":"))


def struct_fields(kind: Mapping[str, object]) -> list[Field]:
    """The fields of a struct type."""
    fields = kind["fields"]
    assert isinstance(fields, list)
    return [(field["name"], field["type"], bool(field["nullable"])) for field in fields]


def has_decimal(kind: object) -> bool:
    """Whether a decimal is anywhere in a type."""
    if isinstance(kind, str):
        return kind.startswith("decimal")
    if isinstance(kind, Mapping):
        return any(has_decimal(value) for value in kind.values())
    return isinstance(kind, list) and any(has_decimal(value) for value in kind)


def _record(fields: Sequence[Field], path: str, taken: set[str]) -> dict[str, object]:
    """``taken``: names of records so far, of which no two may be the same."""
    name = _free_name(path, taken)
    made: list[dict[str, object]] = []
    for field, kind, is_nullable in fields:
        if not _NAME.fullmatch(field):
            raise OptionError(f"column {field!r} can not be a field of a record: letters, digits and _ only; rename it")
        definition = _type(kind, f"{path}_{field}", taken)
        if is_nullable:
            made.append({"name": field, "type": ["null", definition], "default": None})
        else:
            made.append({"name": field, "type": definition})
    return {"type": "record", "name": name, "fields": made}


def _free_name(path: str, taken: set[str]) -> str:
    """The first one of a path has it for its name: paths that read alike, as a_b and b in a, are few."""
    names = (path if number == 1 else f"{path}_{number}" for number in count(1))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name


def _type(kind: object, path: str, taken: set[str]) -> object:
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None:
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": int(decimal[1]),
                "scale": int(decimal[2]),
            }
        if kind not in _PLAIN:
            raise OptionError(f"column {path.partition('_')[2]} is {kind}, which a record can not hold: cast it")
        return _PLAIN[kind]
    assert isinstance(kind, Mapping)
    if kind["type"] == "struct":
        return _record(struct_fields(kind), path, taken)
    if kind["type"] == "array":
        return {"type": "array", "items": _item(kind["elementType"], kind["containsNull"], f"{path}_item", taken)}
    if kind["type"] == "map" and kind["keyType"] == "string":
        return {"type": "map", "values": _item(kind["valueType"], kind["valueContainsNull"], f"{path}_value", taken)}
    raise OptionError(f"column {path.partition('_')[2]} is {kind['type']}, which a record can not hold: cast it")


def _item(kind: object, is_nullable: object, path: str, taken: set[str]) -> object:
    definition = _type(kind, path, taken)
    return ["null", definition] if is_nullable else definition
