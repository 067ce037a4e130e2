"""Avro's schema resolution, rule by rule of the specification."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from geminga.broker.schema.core.avro import PRIMITIVES, AvroField, AvroType, parse_definition
from geminga.broker.schema.core.avro_resolution import why_unreadable

WIDER = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def unreadable(reader: Any, writer: Any) -> str:
    return why_unreadable(parse_definition(json.dumps(reader).encode()), parse_definition(json.dumps(writer).encode()))


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


@pytest.mark.parametrize(("writer", "reader"), list(itertools.product(sorted(PRIMITIVES), repeat=2)))
def test_primitives_are_promoted_as_specified(writer: str, reader: str) -> None:
    is_readable = writer == reader or reader in WIDER.get(writer, ())
    assert bool(unreadable(reader, writer)) != is_readable


def test_arrays_and_maps_are_resolved_by_what_they_hold() -> None:
    for kind, inner in (("array", "items"), ("map", "values")):
        assert not unreadable({"type": kind, inner: "long"}, {"type": kind, inner: "int"})
        assert "[]: long can not be read as int" in unreadable(
            {"type": kind, inner: "int"}, {"type": kind, inner: "long"}
        )
    assert unreadable({"type": "array", "items": "int"}, {"type": "map", "values": "int"})


def test_a_field_the_writer_lacks_needs_a_default() -> None:
    writer = record(field("a", "int"))
    assert not unreadable(record(field("a", "int"), field("b", "int", default=1)), writer)
    assert "field b is missing" in unreadable(record(field("a", "int"), field("b", "int")), writer)


def test_a_field_the_reader_lacks_is_ignored() -> None:
    assert not unreadable(record(), record(field("a", "int")))


def test_fields_are_found_by_name_in_any_order_or_by_alias() -> None:
    writer = record(field("a", "int"), field("b", "string"))
    assert not unreadable(record(field("b", "string"), field("a", "long")), writer)
    assert not unreadable(record(field("c", "int", aliases=["a"])), writer)
    assert "c: string" in unreadable(record(field("c", "int", aliases=["b"])), writer)


def test_records_of_other_names_are_matched_by_structure() -> None:
    assert not unreadable(record(field("a", "int"), name="User2"), record(field("a", "int"), name="User1"))


def test_obstacles_are_named_by_their_path() -> None:
    def outer(inner: Any) -> Any:
        return record(field("list", {"type": "array", "items": record(field("x", inner), name="I")}))

    assert unreadable(outer("int"), outer("string")) == "list[].x: string can not be read as int"


def test_enums_need_every_symbol_or_a_default() -> None:
    assert not unreadable(enum("a", "b"), enum("a"))
    assert "symbol b" in unreadable(enum("a"), enum("a", "b"))
    assert not unreadable(enum("a", default="a"), enum("a", "b"))


def test_enums_and_fixed_agree_in_unqualified_names_or_aliases() -> None:
    assert not unreadable(enum("a", name="n.E"), enum("a", name="m.E"))
    assert unreadable(enum("a", name="Other"), enum("a"))
    assert not unreadable(enum("a", name="Other", aliases=["E"]), enum("a"))
    assert not unreadable(fixed(4), fixed(4))
    assert "4 bytes, 5 are read" in unreadable(fixed(5), fixed(4))
    assert unreadable(fixed(4, name="G"), fixed(4))
    assert unreadable(fixed(4), enum("a"))


def test_a_union_reads_what_one_of_its_branches_reads() -> None:
    assert not unreadable(["null", "string"], "string")
    assert not unreadable(["null", "long"], "int")
    assert "not in the union" in unreadable(["null", "string"], "int")
    assert unreadable([], "int")


def test_what_a_union_wrote_must_be_readable_branch_by_branch() -> None:
    assert unreadable("int", ["null", "int"])
    assert not unreadable("long", ["int", "long"])
    assert not unreadable(["null", "string", "int"], ["null", "string"])
    assert unreadable(["null", "string"], ["null", "string", "int"])
    assert not unreadable("int", [])


def test_recursive_records_are_resolved() -> None:
    def tree(value: Any) -> Any:
        return record(field("value", value), field("next", ["null", "R"]))

    assert not unreadable(tree("long"), tree("int"))
    assert unreadable(tree("int"), tree("long"))


def test_a_failed_trial_of_a_union_leaves_nothing_behind() -> None:
    """Reader branch A fails late, after it took R = R for granted; B must not believe that."""
    writer = record(field("next", ["null", "R"]), field("v", "string"))
    narrow = record(field("next", ["null", "A"], default=None), field("v", "int"), name="A")
    reader = [narrow, record(field("next", ["null", "A"], default=None), field("v", "string"), name="B")]
    assert unreadable(reader, writer)
    assert not unreadable([narrow, record(field("v", "string"), name="B")], writer)
    # What was read on the way rested on A, too: D must not believe that C can be read.
    writer = record(field("c", record(field("r", ["null", "R"]), name="C")))
    inner = record(field("r", ["null", "A"]), name="C")
    reader = [record(field("c", inner), field("more", "int"), name="A"), record(field("c", "C"), name="D")]
    assert unreadable(reader, writer)


def test_schemas_that_multiply_end_as_too_complex() -> None:
    def chain(length: int, name: str) -> Any:
        definition: Any = f"{name}0"
        for index in reversed(range(length)):
            definition = record(field("n", definition), name=f"{name}{index}")
        return definition

    assert "too complex" in unreadable(chain(59, "A"), chain(61, "B"))


class Symbol(str):
    """Counts with what it is compared, character by character."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Symbol.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_symbols_of_large_enums_are_not_compared_each_with_each() -> None:
    """200,000 of them, a schema of 1.4 MB, held the broker for minutes."""
    writer, reader = (
        AvroType("enum", "E", symbols=tuple(Symbol(f"s{each}") for each in numbers))
        for numbers in (range(2_000), reversed(range(2_000)))
    )
    Symbol.compared = 0
    assert why_unreadable(reader, writer) == ""
    assert Symbol.compared < 10_000


class Name(str):
    """May not be made part of another text."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        raise AssertionError("a path was written that nobody reads")


def test_where_an_obstacle_is_is_written_only_if_there_is_one() -> None:
    """Names of 10 kB in types that nest 200 times: each of 50,000 paths was copied, 2 MB each."""

    def nested(inner: AvroType) -> AvroType:
        return AvroType("record", "R", fields=(AvroField(Name("f"), (), AvroType("array", items=inner), False),))

    assert why_unreadable(nested(nested(AvroType("int"))), nested(nested(AvroType("int")))) == ""


def test_an_obstacle_is_told_with_the_last_names_of_its_place_and_a_part_of_long_ones() -> None:
    def nested(depth: int, inner: Any) -> Any:
        for each in range(depth):
            inner = record(field(f"f{each}", inner), name=f"R{each}")
        return inner

    assert unreadable(
        nested(3, {"type": "array", "items": "int"}), nested(3, {"type": "array", "items": "string"})
    ) == ("f2.f1.f0[]: string can not be read as int")
    assert unreadable(nested(30, "int"), nested(30, "string")).startswith("....f19.f18.f17.")
    name = "n" * 100_000
    assert len(unreadable(record(field(name, fixed(1, name))), record(field(name, fixed(2, name))))) < 1_000


def test_fields_that_many_trials_look_at_again_are_too_complex() -> None:
    """Each branch of a union is tried with the whole record, and failed trials are forgotten: they multiply."""
    wide = [field(f"d{each}", "int", default=0) for each in range(2_000)]
    trial = {"type": "record", "name": "T", "fields": [*wide, field("missing", "int")]}
    reader = record(
        field("first", [trial, record(name="S")]), *(field(f"u{each}", ["T", "S"]) for each in range(1_200))
    )
    writer = record(field("first", record(name="W")), *(field(f"u{each}", "W") for each in range(1_200)))
    assert "too complex to compare" in unreadable(reader, writer)
    few = record(field("first", [trial, record(name="S")]), *(field(f"u{each}", ["T", "S"]) for each in range(80)))
    assert not unreadable(few, writer)
