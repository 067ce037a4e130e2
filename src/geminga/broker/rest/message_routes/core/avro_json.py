"""A JSON value as Avro binary, by the Avro 1.12 specification ("JSON Encoding", "Binary Encoding").

A value of a union is ``null`` or an object of one member, the branch's name. Where the union has one branch beside
``null``, the value may stand there without it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from math import isinf
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Json
from geminga.broker.schema.core.avro import AvroType

#: Values nested deeper than this are refused.
DEPTH_MAX: Final = 128
#: Values that are encoded before others have their turn.
VALUES_A_STEP: Final = 2000
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_INTEGER_BITS: Final = {"int": 31, "long": 63}
_SHOWN_CHARACTERS: Final = 40


class AvroValueError(ValueError):
    """A value that is none of its type; the text says where, and what was expected."""


#: Of unions and enums that were met: name of a branch, or symbol -> its number.
Places = dict[AvroType, dict[str, int]]


class _Out(bytearray):
    """What is encoded so far."""

    __slots__ = ("places",)

    places: Places


class _Place(NamedTuple):
    """Where a value is, in words only if it is wrong: a key of a map may be as long as the body."""

    above: _Place | None = None
    #: A field's name; empty: an item.
    field: str = ""
    #: Of an item.
    key: str | int = ""

    def __str__(self) -> str:
        steps: list[str] = []
        place = self
        while place.above is not None:
            steps.append(f".{place.field}" if place.field else f"[{_shown(place.key)}]")
            place = place.above
        return "the value" + "".join(reversed(steps))


#: A value of a type, and where it is.
_Within = tuple[AvroType, Json, _Place]


def avro_steps(kind: AvroType, value: Json, places: Places | None = None) -> Generator[None, None, bytes]:
    """The bytes, in steps of :data:`VALUES_A_STEP` values. Raises AvroValueError.

    ``places``: what was found of the type is kept for other values of it: a union or an enum may have very many names,
    and none is gone through for each value.
    """
    out = _Out()
    out.places = {} if places is None else places
    #: What is under way, the innermost last.
    within: list[Iterator[_Within]] = [iter(((kind, value, _Place()),))]
    count = 0
    while within:
        for inner_kind, inner, where in within[-1]:
            count += 1
            if count % VALUES_A_STEP == 0:
                yield
            opened = _WITHIN.get(inner_kind.kind)
            if opened is not None:
                if len(within) > DEPTH_MAX:
                    raise AvroValueError(f"values nested deeper than {DEPTH_MAX}")
                within.append(opened(inner_kind, inner, out, where))
                break
            _encode_plain(inner_kind, inner, out, where)
        else:
            within.pop()
    return bytes(out)


def _places(kind: AvroType, out: _Out) -> dict[str, int]:
    found = out.places.get(kind)
    if found is None:
        names = kind.symbols or [branch.full_name or branch.kind for branch in kind.branches]
        found = out.places[kind] = {}
        for number, name in enumerate(names):
            found.setdefault(name, number)
    return found


def _encode_plain(kind: AvroType, value: Json, out: _Out, where: _Place) -> None:
    name = kind.kind
    if name == "null":
        if value is not None:
            raise _wrong(where, "null", value)
    elif name == "boolean":
        if not isinstance(value, bool):
            raise _wrong(where, "true or false", value)
        out.append(value)
    elif name in _INTEGER_BITS:
        limit = 1 << _INTEGER_BITS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise _wrong(where, f"a whole number of {_INTEGER_BITS[name] + 1} bits", value)
        _long(value, out)
    elif name in ("float", "double"):
        out += _real(name, value, where)
    elif name == "enum":
        places = _places(kind, out)
        if not isinstance(value, str) or value not in places:
            raise _wrong(where, f"one of {', '.join(kind.symbols)}", value)
        _long(places[value], out)
    elif name == "string":
        if not isinstance(value, str):
            raise _wrong(where, "a text", value)
        _sized(value.encode(), out)
    else:
        _encode_bytes(kind, value, out, where)


def _encode_bytes(kind: AvroType, value: Json, out: _Out, where: _Place) -> None:
    expected = "a text of characters up to U+00FF, one a byte"
    if not isinstance(value, str):
        raise _wrong(where, expected, value)
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise _wrong(where, expected, value) from error
    if kind.kind == "bytes":
        _sized(data, out)
    elif len(data) != kind.size:
        raise _wrong(where, f"{kind.size} bytes", value)
    else:
        out += data


def _real(name: str, value: Json, where: _Place) -> bytes:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(where, "a number", value)
    try:
        # JSON has no infinity: what is read as one was a number beyond a double.
        if not isinf(value):
            return (_FLOAT if name == "float" else _DOUBLE).pack(value)
        error: Exception | None = None
    except (OverflowError, struct.error) as overflow:
        error = overflow
    raise _wrong(where, f"a number that a {name} can hold", value) from error


def _fields_of(kind: AvroType, value: Json, out: _Out, where: _Place) -> Iterator[_Within]:
    del out
    if not isinstance(value, dict):
        raise _wrong(where, f"an object, a {kind.full_name}", value)
    strange = value.keys() - {field.name for field in kind.fields}
    if strange:
        raise AvroValueError(f"{where}: {kind.full_name} has no field {_shown(min(strange))}")
    for field in kind.fields:
        if field.name not in value:
            raise AvroValueError(f"{where}: field {field.name} of {kind.full_name} is missing")
        yield field.type, value[field.name], _Place(where, field.name)


def _items_of(kind: AvroType, value: Json, out: _Out, where: _Place) -> Iterator[_Within]:
    assert kind.items is not None
    is_map = kind.kind == "map"
    if not isinstance(value, dict if is_map else list):
        raise _wrong(where, "an object" if is_map else "a list", value)
    assert isinstance(value, dict | list)
    if value:
        _long(len(value), out)
    if isinstance(value, dict):
        for key, item in value.items():
            _sized(key.encode(), out)
            yield kind.items, item, _Place(where, key=key)
    else:
        for index, item in enumerate(value):
            yield kind.items, item, _Place(where, key=index)
    _long(0, out)


def _branch_of(kind: AvroType, value: Json, out: _Out, where: _Place) -> Iterator[_Within]:
    places = _places(kind, out)
    if value is None and "null" in places:
        _long(places["null"], out)
        return
    if isinstance(value, dict) and len(value) == 1 and (name := next(iter(value))) in places and name != "null":
        index = places[name]
        _long(index, out)
        yield kind.branches[index], value[name], where
        return
    if len(places) - ("null" in places) != 1:
        raise _wrong(where, f"an object of one member, named {' or '.join(places)}", value)
    other = next(index for name, index in places.items() if name != "null")
    _long(other, out)
    yield kind.branches[other], value, where


def _long(value: int, out: bytearray) -> None:
    """Zigzag, then seven bits a byte, the lowest first."""
    left = (value << 1) ^ (value >> 63)
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)


def _sized(data: bytes, out: bytearray) -> None:
    _long(len(data), out)
    out += data


def _wrong(where: _Place, expected: str, value: Json) -> AvroValueError:
    return AvroValueError(f"{where}: expected {expected}, not {_shown(value)}")


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


#: Of types whose values hold others: writes what is between these, and gives each of them when its turn has come.
_WITHIN: Final[Mapping[str, Callable[[AvroType, Json, _Out, _Place], Iterator[_Within]]]] = {
    "record": _fields_of,
    "union": _branch_of,
    "array": _items_of,
    "map": _items_of,
}
