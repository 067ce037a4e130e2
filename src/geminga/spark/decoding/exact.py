"""Decoded values as a column holds them: exactly, or an error that says why not.

Arrow by itself makes 2 of 2.5 for a whole-number column, and 1.0 of true. Of a number that was written with a fraction
or an exponent (``Decimal``, JSON's) a column of floating point has the nearest, as whoever wrote it had; one that was
written as a whole number (``int``) it has as it is, or as floating point is printed: 9007199254740993 is not rounded to
9007199254740992. Of ``float`` (Avro's and protobuf's, which are binary) it has that number or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

#: A decoded value, not null -> the same as Arrow takes it; raises ValueError.
Exact = Callable[[Any], Any]

#: Characters of a value that an error shows.
SHOWN_MAX: Final = 60
#: Decimal digits in front of the point that no column has.
_DIGITS_MAX: Final = 400
_MICROS_BITS: Final = 63


def shown(value: object) -> str:
    """A value for an error's text, cut."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}... ({len(text)} characters)"


def exact(kind: pa.DataType) -> Exact:
    """For values of a column of that type."""
    types = pa.types
    if types.is_integer(kind):
        return _integer(kind)
    if types.is_float64(kind):
        return lambda value: _floating(value, float, "double")
    if types.is_float32(kind):
        return lambda value: _floating(value, lambda one: float(np.float32(one)), "float")
    if types.is_decimal(kind):
        return _decimal(kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(exact(kind.value_type))
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_map(kind):
        return _map(exact(kind.key_type), exact(kind.item_type))
    if types.is_string(kind) or types.is_large_string(kind):
        return _text
    if types.is_timestamp(kind):
        return _moment
    if types.is_date(kind):
        return _day
    for is_kind, classes, name in _PLAIN:
        if is_kind(kind):
            return _of_class(classes, name)
    return lambda value: value


def _refuse(value: object, name: str) -> ValueError:
    return ValueError(f"{shown(value)} ({type(value).__name__}) is no {name}")


def _of_class(classes: tuple[type, ...], name: str) -> Exact:
    def check(value: object) -> object:
        if type(value) not in classes:
            raise _refuse(value, name)
        return value

    return check


_PLAIN: Final = (
    (pa.types.is_boolean, (bool,), "boolean"),
    (pa.types.is_binary, (bytes,), "binary"),
    (pa.types.is_large_binary, (bytes,), "binary"),
    (pa.types.is_time, (time,), "time of day"),
)


def whole(value: object) -> int:
    """A number without a fraction, however it was written; raises ValueError."""
    if type(value) is int:
        return value
    if isinstance(value, Decimal | float):
        number = Decimal(value)
        if number.is_finite() and number.adjusted() <= _DIGITS_MAX and number == number.to_integral_value():
            return int(number)
    raise _refuse(value, "whole number")


def _integer(kind: pa.DataType) -> Exact:
    bits = kind.bit_width
    least, most = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)
    )

    def check(value: object) -> int:
        number = value if type(value) is int else whole(value)
        if not least <= number <= most:
            raise ValueError(f"{shown(value)} is beyond {bits} bits")
        return number

    return check


def _floating(value: object, rounded: Callable[[float], float], name: str) -> float:
    if type(value) is float:
        if math.isfinite(value) and rounded(value) != value:
            raise ValueError(f"{shown(value)} is not exactly a {name}")
        return value
    if type(value) is not int and not isinstance(value, Decimal):
        raise _refuse(value, name)
    try:
        with np.errstate(over="ignore"):
            made = rounded(float(value))
    except OverflowError:
        made = math.inf
    if not math.isfinite(made):
        if isinstance(value, Decimal) and not value.is_finite():
            return made
        raise ValueError(f"{shown(value)} is beyond a {name}")
    if not isinstance(value, Decimal) and value != made and value != _printed(made, name):
        raise ValueError(f"{shown(value)} is not exactly a {name}")
    return made


def _printed(made: float, name: str) -> Decimal:
    """The shortest number that is read as ``made``, as programs print it."""
    return Decimal(repr(made) if name == "double" else str(np.float32(made)))


def _decimal(kind: pa.DataType) -> Exact:
    digits, scale = kind.precision, kind.scale

    def check(value: object) -> Decimal:
        if type(value) is not int and not isinstance(value, Decimal):
            raise _refuse(value, str(kind))
        number = Decimal(value)
        if not number.is_finite():
            raise _refuse(value, str(kind))
        _, places, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        figures = len(places)  # without zeros at the end; normalize() rounds to 28
        while figures > 1 and not places[figures - 1]:
            figures -= 1
        exponent += len(places) - figures
        if number and (-exponent > scale or figures + exponent > digits - scale):
            raise ValueError(f"{shown(value)} is not exactly a decimal({digits},{scale})")
        return number

    return check


def _text(value: object) -> str:
    if type(value) is not str:
        raise _refuse(value, "string")
    if not value.isascii():
        value.encode()  # what has half a pair of surrogates is no Unicode: a ValueError
    return value


def _moment(value: object) -> object:
    if type(value) is int and value.bit_length() <= _MICROS_BITS:
        return value  # microseconds
    if type(value) is not datetime:
        raise _refuse(value, "timestamp")
    return value


def _day(value: object) -> object:
    if type(value) is datetime and value.time() == time():
        return value.date()
    if type(value) is not date:
        raise _refuse(value, "date")
    return value


def _list(item: Exact) -> Exact:
    def check(value: object) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _refuse(value, "array")
        found = []
        for index, one in enumerate(value):
            try:
                found.append(None if one is None else item(one))
            except ValueError as error:
                raise ValueError(f"[{index}]: {error}") from None
        return found

    return check


def _struct(kind: pa.DataType) -> Exact:
    fields = [(field.name, exact(field.type)) for field in kind.fields]

    def check(value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _refuse(value, "record")
        found = {}
        for name, one in fields:
            given = value.get(name)
            try:
                found[name] = None if given is None else one(given)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return found

    return check


def _map(key: Exact, item: Exact) -> Exact:
    def check(value: object) -> list[tuple[Any, Any]]:
        pairs: Sequence[Any] = list(value.items()) if isinstance(value, Mapping) else _pairs(value)
        found = []
        for name, one in pairs:
            try:
                found.append((key(name), None if one is None else item(one)))
            except ValueError as error:
                raise ValueError(f"[{shown(name)}]: {error}") from None
        return found

    return check


def _pairs(value: object) -> Sequence[Any]:
    if not isinstance(value, list) or not all(isinstance(one, tuple) and len(one) == 2 for one in value):
        raise _refuse(value, "map")
    return value


def exact_array(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """A column, and of the rows whose value it can not hold (null there), which and why."""
    check = exact(kind)
    made: list[Any] = []
    misfits: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            made.append(None if value is None else check(value))
        except ValueError as error:
            misfits[row] = str(error)
            made.append(None)
    return arrow_array(made, kind, misfits), misfits


#: What Arrow raises for a value that it does not take.
ARROW_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


def arrow_array(values: list[Any], kind: pa.DataType, misfits: dict[int, str]) -> pa.Array:
    """``values`` as Arrow takes them; those that it does not take are null, and among the misfits."""
    try:
        return pa.array(values, kind)
    except ARROW_MISFITS:
        pass
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except ARROW_MISFITS as error:
            misfits[row] = f"{shown(value)}: {str(error)[:SHOWN_MAX]}"
            values[row] = None
    return pa.array(values, kind)
