"""Avro definitions: what is one, and which are the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminga.broker.schema.core.avro import (
    DEPTH_MAX,
    PRIMITIVES,
    AvroDefinitionError,
    canonical_form,
    load_json,
    parse_definition,
)


def dump(definition: Any) -> bytes:
    return json.dumps(definition).encode()


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_primitives_are_types_in_every_writing(name: str) -> None:
    for writing in (name, {"type": name}, {"type": {"type": name}}):
        assert parse_definition(dump(writing)).kind == name


def test_names_are_resolved_in_their_namespace() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["a", "b"], "default": "a"}
    parsed = parse_definition(
        dump(record(field("one", inner), field("two", "E"), field("three", "n.s.R"), namespace="n.s"))
    )
    assert parsed.full_name == "n.s.R"
    assert parsed.name == "R"
    one, two, three = parsed.fields
    assert one.type is two.type
    assert one.type.full_name == "n.s.E"
    assert one.type.has_enum_default
    assert three.type is parsed


def test_a_dotted_name_brings_its_own_namespace() -> None:
    parsed = parse_definition(dump({"type": "fixed", "name": "a.b.F", "namespace": "other", "size": 3}))
    assert (parsed.full_name, parsed.size) == ("a.b.F", 3)


def test_names_of_nested_java_classes_are_names() -> None:
    """Apache's brokers take a dollar in every name; what Java's clients of before made of such classes was refused."""
    symbol = {"type": "enum", "name": "$E", "symbols": ["a$b", "$"]}
    parsed = parse_definition(dump(record(field("this$0", symbol), namespace="com.x.Outer$", name="In$ner")))
    assert parsed.full_name == "com.x.Outer$.In$ner"
    assert parsed.fields[0].type.full_name == "com.x.Outer$.$E"


def test_aliases_get_the_namespace() -> None:
    parsed = parse_definition(dump(record(namespace="n", aliases=["Old", "x.Older"])))
    assert parsed.aliases == ("n.Old", "x.Older")
    parsed = parse_definition(dump(record(field("a", "int", aliases=["b"]))))
    assert parsed.fields[0].aliases == ("b",)


def test_a_null_default_is_a_default() -> None:
    parsed = parse_definition(dump(record(field("a", ["null", "int"], default=None), field("b", "int"))))
    assert [item.has_default for item in parsed.fields] == [True, False]


def test_arrays_and_maps_hold_types() -> None:
    parsed = parse_definition(dump({"type": "array", "items": {"type": "map", "values": "long"}}))
    assert parsed.items is not None
    assert parsed.items.items is not None
    assert parsed.items.items.kind == "long"


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (7, "a text, a list or an object"),
        ("Unknown", "unknown type"),
        ({}, "no type"),
        ({"type": "R"}, "unknown type"),
        ({"type": "record", "fields": []}, "without a name"),
        (record(name="1x"), "no name"),
        ({"type": "record", "name": "int", "fields": []}, "declared twice"),
        ({"type": "record", "name": "R"}, "list of fields"),
        (record({"name": "a"}), "without a type"),
        (record({"type": "int"}), "no name of a field"),
        (record(field("a", "int"), field("a", "int")), "declared twice"),
        (record(field("a", record())), "declared twice"),
        (record(aliases=[1]), "list of texts"),
        ({"type": "array"}, "without 'items'"),
        ({"type": "map"}, "without 'values'"),
        ({"type": "enum", "name": "E"}, "list of symbols"),
        ({"type": "enum", "name": "E", "symbols": ["a-b"]}, "no symbol"),
        ({"type": "enum", "name": "E", "symbols": ["a", "a"]}, "declared twice"),
        ({"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}, "none of its symbols"),
        ({"type": "fixed", "name": "F"}, "size"),
        ({"type": "fixed", "name": "F", "size": True}, "size"),
        (["int", ["null"]], "within a union"),
        (["int", "int"], "twice in a union"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_reason(definition: Any, reason: str) -> None:
    with pytest.raises(AvroDefinitionError, match=reason):
        parse_definition(dump(definition))


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(AvroDefinitionError, match="not JSON"):
        load_json(data)


def test_too_deep_nesting_is_refused() -> None:
    array: Any = "int"
    chain: Any = "int"
    for depth in range(DEPTH_MAX):
        array = {"type": "array", "items": array}
        chain = record(field("a", chain), name=f"R{depth}")
    for deepest in (array, chain):
        parse_definition(dump(deepest))
        with pytest.raises(AvroDefinitionError, match="deeper"):
            parse_definition(dump({"type": "map", "values": deepest}))


def test_a_fixed_of_no_bytes_is_one() -> None:
    assert parse_definition(dump({"type": "fixed", "name": "F", "size": 0})).size == 0


def test_what_is_no_schema_has_no_canonical_form() -> None:
    with pytest.raises(AvroDefinitionError, match="size"):
        canonical_form(dump({"type": "fixed", "name": "F", "size": -1}))


def test_same_schemas_have_one_canonical_form() -> None:
    one = record(field("a", "int", doc="x"), field("b", {"type": "string"}), namespace="n", doc="d", aliases=["Q"])
    other = {"name": "n.R", "fields": [field("a", {"type": "int"}), field("b", "string")], "type": "record"}
    assert canonical_form(dump(one)) == canonical_form(dump(other))


def test_what_is_said_and_what_holds_anyway_have_one_canonical_form() -> None:
    """Avro's library takes them for equal; here each producer that wrote it the other way made a version more."""
    enum = {"type": "enum", "name": "E", "symbols": ["x"]}
    one = record(field("a", "int", order="ascending"), field("b", {**enum, "default": None}, order="Ascending"))
    assert canonical_form(dump(one)) == canonical_form(dump(record(field("a", "int"), field("b", enum))))


def test_references_are_the_same_with_and_without_namespace() -> None:
    one = record(field("a", ["null", "R"]), namespace="n")
    other = record(field("a", ["null", "n.R"]), namespace="n")
    assert canonical_form(dump(one)) == canonical_form(dump(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record(field("a", "int")), record(field("a", "long"))),
        (record(field("a", "int")), record(field("a", "int", default=1))),
        (record(field("a", "int"), field("b", "int")), record(field("b", "int"), field("a", "int"))),
        (record(field("a", "int")), record(field("a", "int", order="ignore"))),
        (record(field("a", ["null", "int"])), record(field("a", ["null", "int"], default=None))),
        ({"type": "int", "logicalType": "date"}, "int"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
    ],
)
def test_different_schemas_have_different_canonical_forms(one: Any, other: Any) -> None:
    assert canonical_form(dump(one)) != canonical_form(dump(other))
