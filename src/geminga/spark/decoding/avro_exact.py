"""Definitions as fastavro reads by them, so that it gives each value whole.

It gives the default of a field as it stands in the definition: bytes as characters, times as numbers, which a column
takes for microseconds. And it rounds decimals to the digits that their definition allows, before anybody can see that
they have more; what it takes for that goes by the square of a number that whoever wrote the message chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from geminga.spark.decoding.avro_values import TIMES
from geminga.spark.decoding.exact import exact
from geminga.spark.source_rules.errors import SchemaError

_RECORDS: Final = ("record", "error")
_WHOLE: Final = ("int", "long")
_FLOATING: Final = {"float": exact(pa.float32()), "double": exact(pa.float64())}
#: What whole numbers are called for fastavro where they may be read as floating point, to which it rounds them.
_PROMOTED: Final = "geminga-promoted"
#: What decimals are called for fastavro, which has another way of its own with those that are called so.
_DECIMAL: Final = "geminga-decimal"
#: Bytes of a number without those that only repeat its sign; no column has more than 76 digits.
_DECIMAL_BYTES_MAX: Final = 32


def parsed_exactly(definition: Any, read_as: str = "") -> Any:  # noqa: ANN401 - any JSON value, and of fastavro
    """A definition for :func:`fastavro.schemaless_reader`; ``read_as``: the text of another one, if values are read as
    it says. Raises SchemaError for a default that no value can be."""
    import fastavro  # of the extra avro

    for base in ("bytes", "fixed"):
        fastavro.read.LOGICAL_READERS[f"{base}-{_DECIMAL}"] = _read_decimal
    for base in _WHOLE:
        fastavro.read.LOGICAL_READERS[f"{base}-{_PROMOTED}"] = _promoted
    if any(f'"{name}"' in read_as for name in _FLOATING):
        definition = _with_whole_marked(definition)
    parsed = fastavro.parse_schema(definition)
    _Preparation().look_at(parsed)
    return parsed


def _read_decimal(data: bytes, written: Mapping[str, Any] | None = None, _: object = None) -> Decimal:
    assert written is not None
    return _decimal(data, written.get("scale", 0))


def _with_whole_marked(kind: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same definition, whose whole numbers are given to :func:`_promoted`."""
    if isinstance(kind, list):
        return [_with_whole_marked(branch) for branch in kind]
    if isinstance(kind, str):
        return {"type": kind, "logicalType": _PROMOTED} if kind in _WHOLE else kind
    if not isinstance(kind, dict):
        return kind
    made = dict(kind)
    if kind.get("type") in _WHOLE:
        made.setdefault("logicalType", _PROMOTED)
    elif not isinstance(kind.get("type"), str):
        made["type"] = _with_whole_marked(kind.get("type"))
    for inner in ("items", "values"):
        if inner in kind:
            made[inner] = _with_whole_marked(kind[inner])
    if "fields" in kind:
        made["fields"] = [{**field, "type": _with_whole_marked(field["type"])} for field in kind["fields"]]
    return made


def _promoted(data: int, _: object = None, read_as: Any = None) -> int | float:  # noqa: ANN401 - of fastavro
    """A whole number as it is read; raises ValueError for one that floating point does not hold."""
    name = read_as["type"] if isinstance(read_as, Mapping) else read_as
    check = _FLOATING.get(name) if isinstance(name, str) else None
    return data if check is None else float(check(data))


def _decimal(data: bytes, scale: int) -> Decimal:
    """Raises ValueError for one of more digits than any column has."""
    size = len(data.lstrip(b"\xff" if data[:1] >= b"\x80" else b"\0"))
    if size > _DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {size} bytes: no column has so many digits")
    unscaled = int.from_bytes(data, "big", signed=True)
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


class _Preparation:
    """Of one definition, in which references are full names of what came before."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def look_at(self, kind: Any) -> None:  # noqa: ANN401 - of fastavro
        if isinstance(kind, list):
            for branch in kind:
                self.look_at(branch)
        if not isinstance(kind, dict):
            return
        if "name" in kind:
            self._named[kind["name"]] = kind
        if kind.get("logicalType") == "decimal":
            kind["logicalType"] = _DECIMAL
        for field in kind.get("fields", ()):
            self.look_at(field["type"])
            if "default" in field:
                try:
                    field["default"] = self._decoded(field["type"], field["default"])
                except (ValueError, OverflowError) as error:
                    raise SchemaError(f"{field['name']}: the default can not be: {error}") from None
        for inner in ("items", "values", "type"):
            self.look_at(kind.get(inner))

    def _decoded(self, kind: Any, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """A default as a value that was written would be given; what is no value of the type stays what it is."""
        if value is None:
            return None
        if isinstance(kind, list):
            return self._in_union([self._resolved(branch) for branch in kind if branch != "null"], value)
        kind = self._resolved(kind)
        name = kind["type"] if isinstance(kind, Mapping) else kind
        logical = kind.get("logicalType") if isinstance(kind, Mapping) else None
        if name in ("bytes", "fixed") and isinstance(value, str):
            data = value.encode("latin-1")
            return _decimal(data, kind.get("scale", 0)) if logical == _DECIMAL else data
        if isinstance(logical, str) and logical in TIMES and type(value) is int:
            return TIMES[logical](value)
        if name in _RECORDS and isinstance(value, dict):
            types = {field["name"]: field["type"] for field in kind["fields"]}
            return {key: self._decoded(types[key], one) if key in types else one for key, one in value.items()}
        if name == "array" and isinstance(value, list):
            return [self._decoded(kind["items"], one) for one in value]
        if name == "map" and isinstance(value, dict):
            return {key: self._decoded(kind["values"], one) for key, one in value.items()}
        return value

    def _in_union(self, branches: list[Any], value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """A default is one of the first branch; a record among several comes with its name."""
        if not branches:
            return value
        records = [branch for branch in branches if isinstance(branch, Mapping) and branch["type"] in _RECORDS]
        found = self._decoded(branches[0], value)
        return (branches[0]["name"], found) if len(records) > 1 and branches[0] in records else found

    def _resolved(self, kind: Any) -> Any:  # noqa: ANN401 - of fastavro
        return self._named.get(kind, kind) if isinstance(kind, str) else kind
