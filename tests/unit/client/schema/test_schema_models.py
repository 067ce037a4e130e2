"""Dataclasses and pydantic models as records."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Annotated, Any, Generic, TypeVar

import pydantic
import pytest

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._models import codec_of_class
from geminga.client.schema._scalars import AvroType
from geminga.client.schema._struct import AvroSchema, JsonSchema

T = TypeVar("T")


@dataclasses.dataclass
class Leaf:
    n: int
    note: str | None = None


@dataclasses.dataclass
class Tree:
    leaf: Leaf
    children: list[Tree] = dataclasses.field(default_factory=list)
    size: int | str | None = 5
    computed: int = dataclasses.field(init=False, default=3)


@dataclasses.dataclass
class Cat:
    name: str


@dataclasses.dataclass
class Dog:
    name: str


@dataclasses.dataclass
class Owner:
    pet: Cat | Dog


class Inner(pydantic.BaseModel):
    n: int


class Outer(pydantic.BaseModel):
    inner: Inner
    many: list[Leaf] = pydantic.Field(default_factory=list)
    short: int = pydantic.Field(gt=0, alias="shortName")


SCHEMAS = [JsonSchema, AvroSchema]


def definition(python_type: type) -> Any:
    return codec_of_class(python_type).definition(set())


def test_defaults_are_part_of_the_definition() -> None:
    assert definition(Leaf) == {
        "type": "record",
        "name": "Leaf",
        "fields": [{"name": "n", "type": "long"}, {"name": "note", "default": None, "type": ["null", "string"]}],
    }
    fields = {field["name"]: field for field in definition(Tree)["fields"]}
    assert fields["children"] == {"name": "children", "default": [], "type": {"type": "array", "items": "Tree"}}
    # Avro: the default of a union is of its first branch.
    assert fields["size"] == {"name": "size", "default": 5, "type": ["long", "null", "string"]}
    assert "computed" not in fields


@pytest.mark.parametrize("schema", SCHEMAS)
def test_recursive_dataclasses_survive(schema: Any) -> None:
    value = Tree(Leaf(1, "x"), [Tree(Leaf(2), size=None), Tree(Leaf(3), size="big")])
    made = schema(Tree)
    assert made.decode(made.encode(value)) == value


@pytest.mark.parametrize("schema", SCHEMAS)
def test_pydantic_models_survive_and_are_validated(schema: Any) -> None:
    made = schema(Outer)
    value = Outer(inner=Inner(n=1), many=[Leaf(2)], shortName=3)
    assert made.decode(made.encode(value)) == value
    bad = Outer.model_construct(inner=Inner(n=1), many=[], short=-1)
    with pytest.raises(SchemaSerializationError, match="Outer"):
        made.decode(made.encode(bad))


def test_unions_of_records_come_back_as_the_class_that_was_sent() -> None:
    made = AvroSchema(Owner)
    for pet in (Cat("c"), Dog("d")):
        assert made.decode(made.encode(Owner(pet))) == Owner(pet)


def test_fields_that_are_missing_need_a_default() -> None:
    made = JsonSchema(Leaf)
    assert made.decode(b'{"n":1,"unknown":[]}') == Leaf(1)
    with pytest.raises(SchemaSerializationError, match="Leaf"):
        made.decode(b"{}")
    with pytest.raises(SchemaSerializationError, match=r"Leaf\.n: "):
        made.decode(b'{"n":"x"}')
    with pytest.raises(SchemaSerializationError, match="Leaf"):
        made.decode(b"[]")


def test_namespaces_and_names_of_generic_models() -> None:
    @dataclasses.dataclass
    class Spaced:
        __avro_namespace__ = "n.s"
        a: int

    assert definition(Spaced)["namespace"] == "n.s"
    assert codec_of_class(Spaced).union_key == "n.s.Spaced"

    class Box(pydantic.BaseModel):
        a: int

    Box.__name__ = "Box[int]"
    assert definition(Box)["name"] == "Box_int"


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    short: Annotated[int, AvroType("int")] = 0


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_generic_models_have_the_types_that_they_were_given(kind: Any) -> None:
    """It was that the variable has no type in Avro."""
    fields = definition(Page[str])["fields"]
    assert [field["type"] for field in fields] == [{"type": "array", "items": "string"}, "int"]
    schema = kind(Page[str])
    assert schema.decode(schema.encode(Page[str](items=["a"], short=2))) == Page[str](items=["a"], short=2)
    with pytest.raises(InvalidConfiguration, match="field items of Page"):
        kind(Page)


def test_two_classes_of_one_name_are_refused() -> None:
    def other() -> type:
        @dataclasses.dataclass
        class Leaf:
            z: int

        return Leaf

    both = dataclasses.make_dataclass("Both", [("one", Leaf), ("two", other())])
    with pytest.raises(InvalidConfiguration, match="two classes are called Leaf"):
        codec_of_class(both)


@pytest.mark.parametrize("odd", [int, dict, "text", None, Leaf(1)])
def test_what_is_no_record_class_is_refused(odd: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="no record"):
        codec_of_class(odd)


def test_fields_without_a_type_in_avro_are_named() -> None:
    odd = dataclasses.make_dataclass("Odd", [("fine", int), ("what", complex)])
    with pytest.raises(InvalidConfiguration, match="field what of Odd: complex"):
        codec_of_class(odd)
    unknown = dataclasses.make_dataclass("Unknown", [("x", "NoSuchClass")])
    with pytest.raises(InvalidConfiguration, match="NoSuchClass"):
        codec_of_class(unknown)


def test_definitions_are_json() -> None:
    assert json.loads(AvroSchema(Tree).info.schema) == definition(Tree)


class Shade(enum.Enum):
    light = 1
    dark = 2


@dataclasses.dataclass
class Flag:
    above: Shade
    below: Shade
    others: list[Shade]


def test_an_enum_is_declared_once_and_named_then() -> None:
    schema = AvroSchema(Flag)
    first, second, third = definition(Flag)["fields"]
    assert first["type"] == {"type": "enum", "name": "Shade", "symbols": ["light", "dark"]}
    assert (second["type"], third["type"]["items"]) == ("Shade", "Shade")
    flag = Flag(Shade.light, Shade.dark, [Shade.dark])
    assert schema.decode(schema.encode(flag)) == flag
