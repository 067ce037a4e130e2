"""JSON values as Avro binary, against what an independent library makes of the same."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from geminga.broker.core.steps import drained
from geminga.broker.rest.message_routes.core.avro_json import (
    DEPTH_MAX,
    VALUES_A_STEP,
    AvroValueError,
    Places,
    avro_steps,
)
from geminga.broker.schema.core.avro import AvroType, parse_definition


def all_steps(kind: AvroType, value: Any, places: Places | None = None) -> bytes:
    return drained(avro_steps(kind, value, places))


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "a.b",
    "fields": [
        {"name": "nothing", "type": "null"},
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "items", "type": {"type": "array", "items": "long"}},
        {"name": "none", "type": {"type": "array", "items": "long"}},
        {"name": "table", "type": {"type": "map", "values": "string"}},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "missing", "type": ["null", "string"]},
        {"name": "either", "type": ["int", "string", "Suit"]},
    ],
}
VALUE = {
    "nothing": None,
    "flag": True,
    "small": -(1 << 31),
    "large": (1 << 63) - 1,
    "single": 1.5,
    "double": -0.1,
    "raw": "\u0000\u00ff",
    "text": "ä€",
    "suit": "SPADES",
    "four": "\u0001\u0002\u0003\u0004",
    "items": [0, -1, 64, 1 << 40],
    "none": [],
    "table": {"a": "b", "ä": ""},
    "maybe": {"string": "x"},
    "missing": None,
    "either": {"a.b.Suit": "HEARTS"},
}
#: The same for the library, which has types of Python's.
THEIRS = {
    **VALUE,
    "raw": b"\x00\xff",
    "four": b"\x01\x02\x03\x04",
    "maybe": "x",
    "either": ("a.b.Suit", "HEARTS"),
}


def encoded(definition: Any, value: Any) -> bytes:
    return all_steps(parse_definition(json.dumps(definition).encode()), value)


def test_each_type_is_encoded_as_a_library_does() -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVERYTHING), THEIRS)
    assert encoded(EVERYTHING, VALUE) == out.getvalue()


def test_union_of_null_and_one_more_takes_its_value_without_the_branch() -> None:
    assert encoded(["null", "string"], "x") == encoded(["null", "string"], {"string": "x"}) == b"\x02\x02x"
    assert encoded(["null", "string"], None) == b"\x00"
    with pytest.raises(AvroValueError, match="an object of one member, named int or string"):
        encoded(["int", "string"], "x")


@pytest.mark.parametrize(
    ("definition", "value", "told"),
    [
        ("null", 0, "the value: expected null, not 0"),
        ("boolean", 1, "expected true or false, not 1"),
        ("int", 1 << 31, "expected a whole number of 32 bits, not 2147483648"),
        ("int", -(1 << 31) - 1, "expected a whole number of 32 bits"),
        ("int", True, "expected a whole number of 32 bits, not True"),
        ("long", 1.5, "expected a whole number of 64 bits, not 1.5"),
        ("float", 1e39, "expected a number that a float can hold"),
        ("double", "1", "expected a number, not '1'"),
        ("double", 10**309, "expected a number that a double can hold"),
        ("double", json.loads("1e400"), "expected a number that a double can hold"),
        ("float", json.loads("-1e400"), "expected a number that a float can hold"),
        ("string", None, "expected a text, not None"),
        ("bytes", "€", "a text of characters up to U.00FF"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "expected 2 bytes, not 'abc'"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "expected one of A, B, not 'C'"),
        ({"type": "array", "items": "int"}, {}, "expected a list"),
        ({"type": "array", "items": "int"}, [1, "x"], r"the value\[1\]: expected a whole number"),
        ({"type": "map", "values": "int"}, [], "expected an object"),
        ({"type": "map", "values": "int"}, {"k" * 90: ""}, r"^the value\['k{39}\.\.\.\]: expected a whole number"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, {}, "field a of R is missing"),
        ({"type": "record", "name": "R", "fields": []}, {"z": 1}, "R has no field 'z'"),
        ({"type": "record", "name": "R", "fields": []}, [], "expected an object, a R"),
    ],
)
def test_value_that_is_none_of_its_type_is_refused_with_its_place(definition: Any, value: Any, told: str) -> None:
    with pytest.raises(AvroValueError, match=told):
        encoded(definition, value)


class UntoldKey(str):
    """Of a map; nobody puts it in words."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise AssertionError("nothing is wrong with it")


def test_where_a_value_is_is_told_of_a_wrong_one_alone() -> None:
    """A key of three megabytes was copied for each of 250,000 items below it: the broker stood still for minutes."""
    items = {"type": "map", "values": {"type": "array", "items": "int"}}
    assert encoded(items, {UntoldKey("k"): [1, 2]}) == b"\x02\x02k\x04\x02\x04\x00\x00"
    nested = {"type": "map", "values": {"type": "map", "values": {"type": "array", "items": "int"}}}
    with pytest.raises(AvroValueError, match=r"the value\['a'\]\['b'\]\[1\]: expected a whole number"):
        encoded(nested, {"a": {"b": [0, "x"]}})


def test_values_nested_too_deep_are_refused() -> None:
    chain = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    value: dict[str, Any] | None = None
    for _ in range(DEPTH_MAX):
        value = {"next": value}
    with pytest.raises(AvroValueError, match="nested deeper"):
        encoded(chain, value)


class Counted(tuple[Any, ...]):
    """How often it was gone through."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        self.looks += 1
        return super().__iter__()

    def __contains__(self, wanted: object) -> bool:
        self.looks += 1
        return super().__contains__(wanted)

    def index(self, *wanted: Any) -> int:
        self.looks += 1
        return super().index(*wanted)


def test_names_of_a_union_and_symbols_of_an_enum_are_not_gone_through_for_each_value() -> None:
    """A body of many values of a union of many branches would hold the broker for minutes."""
    symbols, branches = Counted("ABC"), Counted([AvroType("null"), AvroType("int"), AvroType("string")])
    enum, union = AvroType("enum", "E", symbols=symbols), AvroType("union", branches=branches)
    places: Places = {}
    for _ in range(3):
        assert all_steps(AvroType("array", items=enum), ["A", "B", "C"] * 10, places)[:4] == b"<\x00\x02\x04"
        assert all_steps(AvroType("array", items=union), [None, {"string": "x"}] * 10, places)[:5] == b"(\x00\x04\x02x"
    assert (symbols.looks, branches.looks) == (1, 1)
    with pytest.raises(AvroValueError, match="expected one of A, B, C, not"):
        all_steps(enum, ["A"], places)


def test_a_value_of_very_many_is_encoded_in_steps_that_come_to_the_same() -> None:
    kind = parse_definition(b'{"type":"map","values":{"type":"array","items":["null","long"]}}')
    value: dict[str, Any] = {f"{number}": [*range(number % 7), None] for number in range(5000)}
    steps, count = avro_steps(kind, value), 0
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
            count += 1
    # Each array, its items and what they are a union of.
    values = 1 + 5000 + sum(2 * (number % 7) + 1 for number in range(5000))
    assert count == values // VALUES_A_STEP
    assert end.value.value == all_steps(kind, value)
