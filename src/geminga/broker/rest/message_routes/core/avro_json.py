"""A JSON value as Avro binary, by the Avro 1.12 specification ("JSON Encoding", "Binary Encoding").

A value of a union is ``null`` or an object of one member, the branch's name. Where the union has one branch beside
``null``, the value may stand there without it.
"""

from __future__ import annotations

import struct
from typing import Final

from geminga.broker.core.coercion import Json
from geminga.broker.schema.core.avro import AvroType

#: Values nested deeper than this are refused: encoding them recurses.
DEPTH_MAX: Final = 128
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


def encode_avro(kind: AvroType, value: Json, places: Places | None = None) -> bytes:
    """Raises AvroValueError. ``places``: what was found of the type is kept for other values of it: a union or an enum
    may have very many names, and none is gone through for each value."""
    out = _Out()
    out.places = {} if places is None else places
    _encode(kind, value, out, "the value", 0)
    return bytes(out)


def _places(kind: AvroType, out: _Out) -> dict[str, int]:
    found = out.places.get(kind)
    if found is None:
        names = kind.symbols or [branch.full_name or branch.kind for branch in kind.branches]
        found = out.places[kind] = {}
        for number, name in enumerate(names):
            found.setdefault(name, number)
    return found


def _encode(kind: AvroType, value: Json, out: _Out, where: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise AvroValueError(f"values nested deeper than {DEPTH_MAX}")
    if kind.kind == "record":
        _encode_record(kind, value, out, where, depth)
    elif kind.kind == "union":
        _encode_union(kind, value, out, where, depth)
    elif kind.kind in ("array", "map"):
        _encode_items(kind, value, out, where, depth)
    elif kind.kind == "enum":
        places = _places(kind, out)
        if not isinstance(value, str) or value not in places:
            raise _wrong(where, f"one of {', '.join(kind.symbols)}", value)
        _long(places[value], out)
    else:
        _encode_plain(kind, value, out, where)


def _encode_plain(kind: AvroType, value: Json, out: _Out, where: str) -> None:
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
    elif name == "string":
        if not isinstance(value, str):
            raise _wrong(where, "a text", value)
        _sized(value.encode(), out)
    else:
        _encode_bytes(kind, value, out, where)


def _encode_bytes(kind: AvroType, value: Json, out: _Out, where: str) -> None:
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


def _real(name: str, value: Json, where: str) -> bytes:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(where, "a number", value)
    try:
        return (_FLOAT if name == "float" else _DOUBLE).pack(value)
    except (OverflowError, struct.error) as error:
        raise _wrong(where, f"a number that a {name} can hold", value) from error


def _encode_record(kind: AvroType, value: Json, out: _Out, where: str, depth: int) -> None:
    if not isinstance(value, dict):
        raise _wrong(where, f"an object, a {kind.full_name}", value)
    strange = value.keys() - {field.name for field in kind.fields}
    if strange:
        raise AvroValueError(f"{where}: {kind.full_name} has no field {min(strange)}")
    for field in kind.fields:
        if field.name not in value:
            raise AvroValueError(f"{where}: field {field.name} of {kind.full_name} is missing")
        _encode(field.type, value[field.name], out, f"{where}.{field.name}", depth + 1)


def _encode_items(kind: AvroType, value: Json, out: _Out, where: str, depth: int) -> None:
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
            _encode(kind.items, item, out, f"{where}[{key!r}]", depth + 1)
    else:
        for index, item in enumerate(value):
            _encode(kind.items, item, out, f"{where}[{index}]", depth + 1)
    _long(0, out)


def _encode_union(kind: AvroType, value: Json, out: _Out, where: str, depth: int) -> None:
    places = _places(kind, out)
    if value is None and "null" in places:
        _long(places["null"], out)
        return
    if isinstance(value, dict) and len(value) == 1 and (name := next(iter(value))) in places and name != "null":
        index = places[name]
        _long(index, out)
        _encode(kind.branches[index], value[name], out, where, depth + 1)
        return
    if len(places) - ("null" in places) != 1:
        raise _wrong(where, f"an object of one member, named {' or '.join(places)}", value)
    other = next(index for name, index in places.items() if name != "null")
    _long(other, out)
    _encode(kind.branches[other], value, out, where, depth + 1)


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


def _wrong(where: str, expected: str, value: Json) -> AvroValueError:
    text = repr(value)
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return AvroValueError(f"{where}: expected {expected}, not {shown}")
