"""Whether payloads are JSON objects of given columns, exactly: what ``from_json`` is not asked, or says too late.

``from_json`` drops what stands behind the first object, makes a row of nulls of nothing, replaces bytes that are no
text, and rounds: 1.25 in a decimal(5,1) is 1.3, 1e400 is infinity. Where it fails it can not say which message that
was. So each payload is looked at where it is read. What fits is what ``from_json`` reads as it stands.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from geminga.spark.decoding.avro_values import load_json
from geminga.spark.decoding.exact import exact, shown
from geminga.spark.decoding.json_columns import JsonColumns
from geminga.spark.decoding.json_limits import beyond, may_exceed
from geminga.spark.decoding.spark_moments import Moment
from geminga.spark.source_rules.ddl import ColumnType

#: A value, not null; raises ValueError.
Check = Callable[[Any], object]

_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FLOATS: Final = {"float": pa.float32(), "double": pa.float64()}
_NO_NUMBERS: Final = frozenset(["NaN", "+INF", "-INF", "Infinity", "+Infinity", "-Infinity"])
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
#: Of a decimal's exponent: Java's numbers have no others.
_EXPONENT_MAX: Final = (1 << 31) - 1
_PLANE_END: Final = "\uffff"
_MICROS: Final = 6
#: Of a timestamp, which has microseconds in 64 bits.
_SECONDS_MAX: Final = ((1 << 63) - 1) // 1_000_000


class JsonGate:
    """Of one list of columns."""

    def __init__(self, columns: Mapping[str, ColumnType], *, takes_empty: bool = False) -> None:
        """``takes_empty``: a payload of no bytes is a null, as compaction has it."""
        self._checks = {name: check_of(kind) for name, kind in columns.items()}
        self._takes_empty = takes_empty
        kinds = {name: _arrow_types(kind) for name, kind in columns.items()}
        known = {name: kind for name, kind in kinds.items() if kind is not None}
        self._together = JsonColumns.of_types(known) if len(known) == len(kinds) else None
        self._wanted = {name: kind[1] for name, kind in known.items()}

    def misfits(self, payloads: pa.Array) -> dict[int, str]:
        """Which do not fit and why; nulls do."""
        known = payloads.drop_null()
        if (
            self._together is not None
            and not may_exceed(known)
            and self._together.read(known, self._wanted) is not None
        ):
            return {}
        found = {}
        for row, payload in enumerate(payloads.to_pylist()):
            if payload is None:
                continue
            columns = self.of_payload(payload)
            if columns:
                name, text = next(iter(columns.items()))
                found[row] = f"does not fit its columns: {name}: {text}" if name else text
        return found

    def of_payload(self, payload: bytes) -> dict[str, str]:
        """Each column whose value does not fit, and why; under the empty name what is wrong with the whole."""
        if self._takes_empty and not payload:
            return {}
        try:
            value = load_json(payload.decode())
        except UnicodeDecodeError as error:
            return {"": f"is no text: {error}"}
        except (ValueError, RecursionError) as error:
            what = "nothing" if not payload.strip() else shown(payload)
            return {"": f"is no JSON: {what}: {error}"}
        if not isinstance(value, dict):
            return {"": f"is no JSON object: {shown(value)}"}
        if may_exceed(pa.array([payload], pa.binary())) and (reason := beyond(payload.decode())):
            return {"": f"is no JSON that Spark reads: {reason}"}
        found: dict[str, str] = {}
        for name, check in self._checks.items():
            given = value.get(name)
            if given is None:
                continue
            try:
                check(given)
            except ValueError as error:
                found[name] = str(error)
        return found


def check_of(kind: ColumnType) -> Check:
    """What raises ValueError for values that a column of that type does not hold as they are."""
    name = kind.name
    if name in _BITS:
        return _whole(_BITS[name])
    if name in _FLOATS:
        return _floating(exact(_FLOATS[name]))
    match name:
        case "boolean":
            return _boolean
        case "string":
            return _texts
        case "decimal":
            return _decimal(exact(pa.decimal128(kind.precision, kind.scale)))
        case "binary":
            return _base64
        case "date":
            return _day
        case "timestamp":
            return _seconds_or_moment
        case "timestamp_ntz":
            return _local_moment
        case "array":
            assert kind.item is not None
            return _array(check_of(kind.item))
        case "map":
            assert kind.item is not None
            return _object(None, check_of(kind.item))
        case "struct":
            return _object({field: check_of(one) for field, one in kind.fields}, None)
        case _:
            return lambda value: value


def _refuse(value: object, name: str) -> ValueError:
    return ValueError(f"{shown(value)} is no {name}")


def _whole(bits: int) -> Check:
    check = exact({8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits])

    def whole(value: object) -> object:
        if isinstance(value, Decimal):
            raise ValueError(f"{shown(value)} is written with a fraction or an exponent: expected a whole number")
        return check(value)

    return whole


def _floating(check: Check) -> Check:
    return lambda value: value if isinstance(value, str) and value in _NO_NUMBERS else check(value)


def _boolean(value: object) -> None:
    if type(value) is not bool:
        raise _refuse(value, "boolean")


def _texts(value: object) -> None:
    """A column of text takes any JSON value, as text; but no half a pair of surrogates."""
    if isinstance(value, str):
        if not value.isascii():
            value.encode()
    elif isinstance(value, list):
        for one in value:
            _texts(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            _texts(name)
            _texts(one)


def _decimal(check: Check) -> Check:
    def decimal(value: object) -> object:
        number = value
        if isinstance(value, str):
            text = value.replace(",", "")
            if not _NUMBER.fullmatch(text) or max(text) > _PLANE_END:
                raise _refuse(value, "decimal")
            number = Decimal(text)
        # Of others than 0 the column says it.
        if isinstance(number, Decimal) and not number and abs(int(number.as_tuple().exponent)) > _EXPONENT_MAX:
            raise _refuse(value, "decimal")
        return check(number)

    return decimal


def _base64(value: object) -> None:
    if not isinstance(value, str):
        raise _refuse(value, "base64")
    try:
        base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ValueError(f"{shown(value)} is no base64: {error}") from None


def _moment(value: object) -> Moment:
    moment = Moment.parse(value, "timestamp")
    if moment.fraction[_MICROS:].strip("0"):
        raise ValueError(f"{shown(value)} is not exactly a timestamp, which has microseconds")
    if not moment.is_timestamp:
        raise _refuse(value, "timestamp")
    return moment


def _seconds_or_moment(value: object) -> None:
    """A number is one of seconds since the epoch."""
    if type(value) is not int:
        _moment(value)
    elif abs(value) > _SECONDS_MAX:
        raise ValueError(f"{shown(value)} seconds are beyond a timestamp")


def _local_moment(value: object) -> None:
    if _moment(value).zone:
        raise ValueError(f"{shown(value)} has a time zone: expected a timestamp_ntz")


def _day(value: object) -> None:
    moment = Moment.parse(value, "date")
    if moment.time.strip("0:."):
        raise ValueError(f"{shown(value)} is not exactly a date")
    if not moment.is_date:
        raise _refuse(value, "date")


def _array(item: Check) -> Check:
    def array(value: object) -> None:
        if not isinstance(value, list):
            raise _refuse(value, "array")
        for index, one in enumerate(value):
            try:
                if one is not None:
                    item(one)
            except ValueError as error:
                raise ValueError(f"[{index}]: {error}") from None

    return array


def _object(fields: Mapping[str, Check] | None, item: Check | None) -> Check:
    """A struct of ``fields``, or a map of ``item``."""

    def check(value: object) -> None:
        if not isinstance(value, dict):
            raise _refuse(value, "object")
        for name, one in value.items():
            inner = item if fields is None else fields.get(name)
            try:
                if item is not None:
                    _texts(name)
                if inner is not None and one is not None:
                    inner(one)
            except ValueError as error:
                raise ValueError(f"{shown(name)}: {error}") from None

    return check


def _arrow_types(kind: ColumnType) -> tuple[pa.DataType, pa.DataType] | None:
    """What Arrow reads a type as and what that becomes, where it says no to what does not fit; None: it may not."""
    if kind.name in _BITS:
        return pa.int64(), {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[_BITS[kind.name]]
    if kind.name in _FLOATS:
        return pa.float64(), _FLOATS[kind.name]
    if kind.name in ("boolean", "string"):
        made = pa.bool_() if kind.name == "boolean" else pa.string()
        return made, made
    if kind.name == "array" and kind.item is not None:
        item = _arrow_types(kind.item)
        return None if item is None else (pa.list_(item[0]), pa.list_(item[1]))
    if kind.name != "struct" or not kind.fields:
        return None
    fields = [(name, _arrow_types(one)) for name, one in kind.fields]
    known = [(name, types) for name, types in fields if types is not None]
    if len(known) < len(fields):
        return None
    read, made = (pa.struct([(name, types[which]) for name, types in known]) for which in (0, 1))
    return read, made
