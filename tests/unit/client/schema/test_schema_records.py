"""``Record`` classes: the names, defaults and checks of the official Python client."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema import _records as r
from geminga.client.schema._struct import AvroSchema, JsonSchema


class Color(enum.Enum):
    red = 1
    blue = 2


class Sub(r.Record):
    x = r.Integer()


class Everything(r.Record):
    flag = r.Boolean()
    required = r.String(required=True)
    number = r.Integer(default=5)
    told = r.Long(default=6, required_default=True)
    ratio = r.Float()
    exact = r.Double()
    raw = r.Bytes()
    color = Color
    many = r.Array(r.String())
    counts = r.Map(r.Long())
    sub = Sub()
    subs = r.Array(Sub())
    nothing = r.Null()


def test_definitions_follow_the_rules() -> None:
    fields: Any = {field["name"]: field for field in Everything.schema()["fields"]}  # type: ignore[index,call-overload,union-attr]
    assert fields["required"]["type"] == "string"
    assert fields["flag"]["type"] == ["null", "boolean"]
    assert "default" not in fields["number"]
    assert fields["told"] == {"name": "told", "default": 6, "type": ["null", "long"]}
    assert fields["color"]["type"][1]["symbols"] == ["red", "blue"]
    assert fields["sub"]["type"][1]["name"] == "Sub"
    assert fields["subs"]["type"] == ["null", {"type": "array", "items": "Sub"}]
    assert fields["nothing"]["type"] == "null"


def test_namespace_and_sorted_fields() -> None:
    class Sorted(r.Record):
        _avro_namespace = "n"
        _sorted_fields = True
        b = r.Integer()
        a = r.Integer()

    schema: Any = Sorted.schema()
    assert schema["namespace"] == "n"
    assert [field["name"] for field in schema["fields"]] == ["a", "b"]


def test_attributes_have_defaults() -> None:
    value = Everything(required="x")
    assert (value.flag, value.number, value.told, value.exact, value.color) == (False, 5, 6, None, None)
    assert value.sub == Sub()


def test_values_are_coerced_as_far_as_it_is_safe() -> None:
    value = Everything(
        required=b"bytes", raw="text", color="blue", sub={"x": 1}, subs=[{"x": 2}, Sub(x=3)], counts={"a": 1}
    )
    assert (value.required, value.raw, value.color, value.sub) == ("bytes", b"text", Color.blue, Sub(x=1))
    assert value.subs == [Sub(x=2), Sub(x=3)]
    value.color = 1
    assert value.color is Color.red


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("flag", 1),
        ("required", None),
        ("required", 7),
        ("number", "1"),
        ("number", 1 << 31),
        ("ratio", "x"),
        ("raw", 7),
        ("color", "green"),
        ("many", "text"),
        ("many", [1]),
        ("counts", {1: 1}),
        ("counts", []),
        ("sub", 7),
        ("nothing", 1),
    ],
)
def test_values_that_do_not_fit_are_refused_when_they_are_set(name: str, odd: Any) -> None:
    value = Everything(required="x")
    with pytest.raises(TypeError):
        setattr(value, name, odd)
    with pytest.raises(TypeError):
        Everything(**{"required": "x", name: odd})


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="no field"):
        Sub(y=1)
    with pytest.raises(AttributeError, match="no field"):
        Sub().y = 1


def test_wrong_defaults_and_items_are_refused() -> None:
    with pytest.raises(TypeError):
        r.Integer(default="x")
    with pytest.raises(InvalidConfiguration):
        r.Array(int)  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [JsonSchema, AvroSchema])
def test_records_survive(schema: Any) -> None:
    value = Everything(required="x", sub=Sub(x=1), subs=[Sub(x=2)], color=Color.blue, raw=b"r", many=["m"])
    made = schema(Everything)
    assert made.decode(made.encode(value)) == value
    assert "Everything(" in repr(value)
    assert value != Everything(required="y")
    assert value != Sub()


def test_fields_are_inherited() -> None:
    class Wider(Sub):
        y = r.Integer()

    assert [field["name"] for field in Wider.schema()["fields"]] == ["x", "y"]  # type: ignore[index,call-overload,union-attr]


def test_a_record_beside_another_class_is_told_to_it_too() -> None:
    known: list[str] = []

    class Registered:
        def __init_subclass__(cls, *, known_as: str, **kwargs: object) -> None:
            super().__init_subclass__(**kwargs)
            known.append(known_as)

    class Order(r.Record, Registered, known_as="order"):
        id = r.Integer()

    assert known == ["order"]
    assert Order(id=3).id == 3
