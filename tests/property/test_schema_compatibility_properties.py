"""Schema resolution and the strategies, over generated schemas; fastavro is the judge of what can be read."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from geminga.broker.schema.core.avro import canonical_form, parse_definition
from geminga.broker.schema.core.avro_resolution import why_unreadable
from geminga.broker.schema.core.compatibility import is_same_schema
from geminga.broker.schema.core.strategy import Strategy
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.house.examples import many
from support.worlds.schemas import why_incompatible

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
SYMBOLS = ("a", "b", "c")
NAMES = ("x", "y", "z")
#: A value of each primitive type, as a writer takes it.
VALUES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 1 << 40,
    "float": 1.5,
    "double": 2.5,
    "bytes": b"b",
    "string": "s",
}


@st.composite
def types(draw: st.DrawFn, depth: int, in_union: bool = False) -> Any:
    """An Avro type; named types are made unique afterwards."""
    kinds = ["primitive", "enum", "fixed"] + (["array", "map", "record"] + ["union"] * (not in_union) if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        enum = {"type": "enum", "name": "E", "symbols": symbols}
        return enum | ({"default": symbols[0]} if draw(st.booleans()) else {})
    if kind == "fixed":
        return {"type": "fixed", "name": "F", "size": draw(st.integers(1, 2))}
    if kind == "array":
        return {"type": "array", "items": draw(types(depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(types(depth - 1))}
    if kind == "union":
        branches = draw(st.lists(types(depth - 1, in_union=True), min_size=1, max_size=3, unique_by=branch_key))
        return branches
    return draw(records(depth - 1))


@st.composite
def records(draw: st.DrawFn, depth: int) -> Any:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    fields = []
    for name in names:
        type_ = draw(types(depth))
        field = {"name": name, "type": type_}
        if draw(st.booleans()):
            field["default"] = default_of(type_)
        fields.append(field)
    return {"type": "record", "name": "R", "fields": fields}


def branch_key(branch: Any) -> str:
    return branch if isinstance(branch, str) else branch.get("name", branch["type"])


def default_of(type_: Any) -> Any:
    value = value_of(type_[0] if isinstance(type_, list) else type_)
    return json.loads(json.dumps(value, default=lambda data: data.decode("latin-1")))


def value_of(type_: Any) -> Any:
    """A value that a writer takes for the type."""
    if isinstance(type_, str):
        return VALUES[type_]
    if isinstance(type_, list):
        return value_of(type_[-1])
    kind = type_["type"]
    if kind == "enum":
        return type_["symbols"][-1]
    if kind == "fixed":
        return bytes(type_["size"])
    if kind == "array":
        return [value_of(type_["items"])]
    if kind == "map":
        return {"k": value_of(type_["values"])}
    return {field["name"]: value_of(field["type"]) for field in type_["fields"]}


def with_own_names(definition: Any) -> Any:
    """Named types get names by their place: the same place in two schemas has the same name."""

    def walk(type_: Any, path: str) -> Any:
        if isinstance(type_, list):
            return [walk(branch, path) for branch in type_]
        if not isinstance(type_, dict):
            return type_
        renamed = dict(type_)
        if "name" in renamed:
            renamed["name"] = f"{type_['name']}{path}"
        for inner in ("items", "values"):
            if inner in renamed:
                renamed[inner] = walk(renamed[inner], f"{path}_{inner}")
        if "fields" in renamed:
            renamed["fields"] = [
                field | {"type": walk(field["type"], f"{path}_{field['name']}")} for field in renamed["fields"]
            ]
        return renamed

    return walk(definition, "")


schemas = records(2).map(with_own_names)


def parsed(definition: Any) -> Any:
    return parse_definition(json.dumps(definition).encode())


def info(definition: Any) -> SchemaInfo:
    return SchemaInfo("", SchemaType.AVRO, json.dumps(definition).encode())


def read_with(reader: Any, writer: Any) -> Any:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, copy.deepcopy(writer), value_of(writer))
    buffer.seek(0)
    return fastavro.schemaless_reader(buffer, copy.deepcopy(writer), copy.deepcopy(reader))


generous = settings(max_examples=many(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@generous
@given(schemas)
def test_every_schema_reads_itself(definition: Any) -> None:
    assert not why_unreadable(parsed(definition), parsed(definition))
    assert read_with(definition, definition) is not None


@generous
@given(reader=schemas, writer=schemas)
def test_what_is_said_to_be_readable_is_read_by_fastavro(reader: Any, writer: Any) -> None:
    assume(not why_unreadable(parsed(reader), parsed(writer)))
    assert read_with(reader, writer) is not None


def values_of(type_: Any) -> Any:
    """Every value of interest: each branch of a union, each symbol."""
    if isinstance(type_, list):
        return [value for branch in type_ for value in values_of(branch)]
    if isinstance(type_, str):
        return [VALUES[type_]]
    if type_["type"] == "enum":
        return list(type_["symbols"])
    return [value_of(type_)]


@generous
@given(reader=types(0), writer=types(0))
def test_what_is_said_to_be_unreadable_fails_in_fastavro_for_some_value(reader: Any, writer: Any) -> None:
    """Of types that hold no others, where fastavro's own leniency does not blur the verdict."""
    whole = {"type": "record", "name": "R", "fields": [{"name": "x", "type": writer}]}
    wanted = {"type": "record", "name": "R", "fields": [{"name": "x", "type": reader}]}
    assume(why_unreadable(parsed(wanted), parsed(whole)))
    failures = 0
    for value in values_of(writer):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, copy.deepcopy(whole), {"x": value})
        buffer.seek(0)
        try:
            fastavro.schemaless_reader(buffer, copy.deepcopy(whole), copy.deepcopy(wanted))
        except (fastavro.read.SchemaResolutionError, ValueError, TypeError):
            failures += 1
    assert failures


@generous
@given(schemas, schemas)
def test_full_is_backward_and_forward(one: Any, other: Any) -> None:
    def fits(strategy: Strategy) -> bool:
        return not why_incompatible(info(one), [info(other)], strategy)

    assert fits(Strategy.FULL) == (fits(Strategy.BACKWARD) and fits(Strategy.FORWARD))
    assert fits(Strategy.BACKWARD) == (not why_incompatible(info(other), [info(one)], Strategy.FORWARD))
    if fits(Strategy.ALWAYS_INCOMPATIBLE):
        assert is_same_schema(info(one), info(other))


@generous
@given(schemas, st.lists(schemas, min_size=1, max_size=3))
@pytest.mark.parametrize("name", ["BACKWARD", "FORWARD", "FULL"])
def test_transitive_is_the_same_with_each(name: str, new: Any, existing: list[Any]) -> None:
    infos = [info(definition) for definition in existing]
    each = [not why_incompatible(info(new), [one], Strategy(name)) for one in infos]
    assert (not why_incompatible(info(new), infos, Strategy(f"{name}_TRANSITIVE"))) == all(each)
    assert (not why_incompatible(info(new), infos, Strategy(name))) == each[-1]


@generous
@given(schemas)
def test_canonical_form_is_of_the_schema_and_not_of_its_text(definition: Any) -> None:
    spaced = json.dumps(definition | {"doc": "words"}, indent=3, sort_keys=True).encode()
    form = canonical_form(json.dumps(definition).encode())
    assert canonical_form(spaced) == form
    assert canonical_form(form.encode()) == form
