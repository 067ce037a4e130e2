"""Definitions as fastavro reads by them, so that it gives each value whole.

It gives the default of a field as it stands in the definition: bytes as characters, times as numbers, which are taken
for microseconds. And it rounds decimals to the digits that their definition allows, before anybody can see that they
have more; what it takes for that goes by the square of a number that whoever wrote the message chose. Whole numbers
that are read as floating point it rounds, too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any, Final

_RECORDS: Final = ("record", "error")
_WHOLE: Final = ("int", "long")
_FLOATING: Final = ("float", "double")
#: Digits with which any number of a ``float`` is told from its neighbours.
_FLOAT_DIGITS: Final = 9
#: What whole numbers are called for fastavro where they may be read as floating point, to which it rounds them.
_PROMOTED: Final = "geminga-promoted"
#: What decimals are called for fastavro, which has another way of its own with those that are called so.
_DECIMAL: Final = "geminga-decimal"
#: Bytes of a decimal without those that only repeat its sign: some 2,400 digits.
_DECIMAL_BYTES_MAX: Final = 1024
#: Characters of a number that an error shows.
_SHOWN_MAX: Final = 60

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = _EPOCH.replace(tzinfo=None)
_DAY: Final = timedelta(days=1)


class DefaultError(ValueError):
    """No value of a field's type is its default."""


def _since(epoch: datetime, unit: str) -> Callable[[int], datetime]:
    def convert(number: int) -> datetime:
        try:
            return epoch + timedelta(**{unit: number})
        except OverflowError:
            raise ValueError(f"{_shown(number)} {unit} since 1970 are not in the years 1 to 9999") from None

    return convert


def _date_of_days(number: int) -> date:
    return _since(_LOCAL_EPOCH, "days")(number).date()


def _time_of_day(unit: str) -> Callable[[int], time]:
    def convert(number: int) -> time:
        if not 0 <= number < _DAY // timedelta(**{unit: 1}):
            raise ValueError(f"{_shown(number)} is no time of a day")
        return (_EPOCH + timedelta(**{unit: number})).time()

    return convert


def _shown(number: int) -> str:
    text = str(number)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text)} characters)"


#: Times that are numbers, as they travel; raise ValueError.
TIMES: Final[Mapping[str, Callable[[int], Any]]] = {
    "date": _date_of_days,
    "timestamp-millis": _since(_EPOCH, "milliseconds"),
    "timestamp-micros": _since(_EPOCH, "microseconds"),
    "local-timestamp-millis": _since(_LOCAL_EPOCH, "milliseconds"),
    "local-timestamp-micros": _since(_LOCAL_EPOCH, "microseconds"),
    "time-millis": _time_of_day("milliseconds"),
    "time-micros": _time_of_day("microseconds"),
}


def parsed_exactly(fastavro: ModuleType, definition: Any, read_as: str = "") -> Any:  # noqa: ANN401 - any JSON value, and of fastavro
    """A definition for :func:`fastavro.schemaless_reader`; ``read_as``: the text of another one, if values are read as
    it says. Raises DefaultError for a default that no value can be, and what fastavro does for no definition."""
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
    if name not in _FLOATING:
        return data
    made = _as_float(data) if name == "float" else float(data)
    if made != data and Decimal(data) != _printed(made, name):
        raise ValueError(f"{_shown(data)} is not exactly a {name}")
    return made


def _as_float(number: float) -> float:
    """The nearest of four bytes, which hold all of eight bytes but their last digits."""
    made: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return made


def _printed(made: float, name: str) -> Decimal:
    """The shortest number that is read as ``made``, as programs print it."""
    if name == "double" or not math.isfinite(made):
        return Decimal(repr(made))
    texts = (f"{made:.{digits}g}" for digits in range(1, _FLOAT_DIGITS + 1))
    return Decimal(next(text for text in texts if _as_float(float(text)) == made))


def _decimal(data: bytes, scale: int) -> Decimal:
    """Raises ValueError for one that is too large to be told at some cost."""
    size = len(data.lstrip(b"\xff" if data[:1] >= b"\x80" else b"\0"))
    if size > _DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {size} bytes: expected at most {_DECIMAL_BYTES_MAX}")
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
                    raise DefaultError(f"{field['name']}: the default can not be: {error}") from None
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
