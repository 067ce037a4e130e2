"""Python's types as Avro types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import io
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional, Union

import fastavro
import pyarrow as pa
import pydantic
import pytest

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema import AvroDecimal, AvroSchema, JsonSchema
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._models import ClassReader
from geminga.client.schema._scalars import AvroType, Float32, Int32
from geminga.client.schema._types import DEPTH_MAX
from geminga.spark.decoding.part_decoding import part_of


class Color(enum.Enum):
    red = 1
    blue = "blue value"


UserId = NewType("UserId", int)
NOW = dt.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=dt.UTC)


def codec(annotation: Any) -> Any:
    return ClassReader().codec_of(annotation)


#: Annotation, definition, value, what Avro's writer gets, what JSON gets.
TYPES: list[tuple[Any, Any, Any, Any, Any]] = [
    (bool, "boolean", True, True, True),
    (int, "long", 7, 7, 7),
    (Int32, "int", 7, 7, 7),
    (Annotated[int, "other"], "long", 7, 7, 7),
    (float, "double", 1.5, 1.5, 1.5),
    (Float32, "float", 1.5, 1.5, 1.5),
    (str, "string", "x", "x", "x"),
    (bytes, "bytes", b"x", b"x", "x"),
    (None, "null", None, None, None),
    (list[int], {"type": "array", "items": "long"}, [1], [1], [1]),
    (Sequence[str], {"type": "array", "items": "string"}, ["a"], ["a"], ["a"]),
    (dict[str, bytes], {"type": "map", "values": "bytes"}, {"k": b"v"}, {"k": b"v"}, {"k": "v"}),
    (Mapping[str, int], {"type": "map", "values": "long"}, {"k": 1}, {"k": 1}, {"k": 1}),
    (int | None, ["null", "long"], None, None, None),
    (Optional[str], ["null", "string"], "x", "x", "x"),  # noqa: UP045
    (Union[str, int], ["string", "long"], 5, 5, 5),  # noqa: UP007
    (Color, {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}, Color.red, "red", "red"),
    (dt.datetime, {"type": "long", "logicalType": "timestamp-micros"}, NOW, 1_000_005, 1_000_005),
    (dt.date, {"type": "int", "logicalType": "date"}, dt.date(1970, 1, 3), 2, 2),
    (dt.time, {"type": "long", "logicalType": "time-micros"}, dt.time(0, 0, 1), 1_000_000, 1_000_000),
    (
        uuid.UUID,
        {"type": "string", "logicalType": "uuid"},
        uuid.UUID(int=1),
        str(uuid.UUID(int=1)),
        str(uuid.UUID(int=1)),
    ),
    (UserId, "long", UserId(5), 5, 5),
    (list[UserId], {"type": "array", "items": "long"}, [UserId(5)], [5], [5]),
    (tuple[int, ...], {"type": "array", "items": "long"}, (1, 2), [1, 2], [1, 2]),
]


@pytest.mark.parametrize(("annotation", "definition", "value", "avro", "document"), TYPES)
def test_types_have_definitions_and_both_forms(
    annotation: Any, definition: Any, value: Any, avro: Any, document: Any
) -> None:
    made = codec(annotation)
    assert made.definition(set()) == definition
    assert made.dump(value, False) == avro
    assert made.dump(value, True) == document
    assert made.load(avro, False) == value
    assert made.load(document, True) == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (bool, 1),
        (int, True),
        (int, 1 << 63),
        (Int32, 1 << 31),
        (float, "1"),
        (float, 10**400),
        (str, b"x"),
        (bytes, "x"),
        (list[int], "ab"),
        (list[int], ["x"]),
        (dict[str, int], {1: 1}),
        (dict[str, int], [1]),
        (int | None, "x"),
        (Color, "red"),
        (dt.datetime, dt.datetime(2000, 1, 1)),
        (dt.date, NOW),
        (uuid.UUID, "x"),
    ],
)
def test_values_that_do_not_fit_are_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(SchemaSerializationError):
        codec(annotation).dump(value, False)


@pytest.mark.parametrize(
    ("annotation", "loaded"),
    [
        (int, "1"),
        (str, 1),
        (Color, "green"),
        (Color, 7),
        (dt.date, 10**9),
        (uuid.UUID, "x"),
        (list[int], 1),
        (int | str, 1.5),
    ],
)
def test_documents_that_do_not_fit_are_refused(annotation: Any, loaded: Any) -> None:
    with pytest.raises(SchemaSerializationError):
        codec(annotation).load(loaded, True)


def test_enums_of_the_official_client_come_as_values_in_json() -> None:
    assert codec(Color).load(1, True) is Color.red
    assert codec(Color).load("blue value", True) is Color.blue
    with pytest.raises(SchemaSerializationError):
        codec(Color).load(True, True)
    with pytest.raises(SchemaSerializationError):
        codec(Color).load(1, False)


def test_bytes_that_are_not_text_have_no_json() -> None:
    with pytest.raises(SchemaSerializationError, match="UTF-8"):
        codec(bytes).dump(b"\xff", True)


def test_numbers_are_promoted_when_they_are_loaded() -> None:
    assert codec(float).load(3, False) == 3.0
    assert codec(bytes).load("x", False) == b"x"


def test_obstacles_are_named_by_their_place() -> None:
    with pytest.raises(SchemaSerializationError, match=r"\['k'\]: \[1\]: "):
        codec(dict[str, list[int]]).dump({"k": [1, "x"]}, False)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement is of Python 3.12")
def test_name_of_a_type_is_that_type() -> None:
    names: dict[str, Any] = {}
    exec("type Ids = list[int]", names)
    assert codec(names["Ids"]).definition(set()) == {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    "annotation",
    [object, Any, complex, set[int], dict[int, int], list, Annotated[int, AvroType("string")], int | dt.datetime],
)
def test_types_without_one_in_avro_are_refused(annotation: Any) -> None:
    with pytest.raises(InvalidConfiguration):
        codec(annotation)


def test_too_deep_types_are_refused() -> None:
    annotation: Any = int
    for _ in range(DEPTH_MAX + 2):
        annotation = list[annotation]
    with pytest.raises(InvalidConfiguration, match="deeper"):
        codec(annotation)


@dataclass
class Price:
    net: Annotated[Decimal, AvroDecimal(6, 2)]
    unit: Literal["EUR", "USD"] = "EUR"
    rate: Decimal = Decimal("-1.5")
    count: Literal[1, 2] | None = None


class Order(pydantic.BaseModel):
    total: Decimal = pydantic.Field(max_digits=5, decimal_places=1)
    paid: Decimal | None = pydantic.Field(default=None, max_digits=7, decimal_places=3)
    kind: Literal["new", "old"]


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_decimals_and_literals_come_back_as_they_were(schema):
    for value in (
        Price(Decimal("1234.50"), "USD", Decimal("0.000000000000000001"), 2),
        Order(total=Decimal("-0.5"), paid=Decimal("2.125"), kind="new"),
    ):
        made = schema(type(value))
        assert made.decode(made.encode(value)) == value
    fields = {field["name"]: field for field in json.loads(schema(Order).info.schema)["fields"]}
    digits = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}
    assert (fields["total"]["type"], fields["kind"]["type"]) == (digits, "string")
    assert fields["paid"]["type"] == ["null", {**digits, "precision": 7, "scale": 3}]


def test_default_of_a_decimal_is_what_readers_of_avro_make_the_same_number_of():
    @dataclass
    class Price:
        net: Annotated[Decimal, AvroDecimal(6, 2)]

    written = AvroSchema(Price).encode(Price(Decimal(1)))
    wider = AvroSchema(globals()["Price"])
    older = AvroSchema(Price).info
    read = fastavro.schemaless_reader(io.BytesIO(written), json.loads(older.schema), json.loads(wider.info.schema))
    assert wider._codec.load(read, False) == globals()["Price"](Decimal(1))
    part = part_of(older, wider.info)
    (found,) = part.whole(pa.array([written], pa.binary()), pa.struct([("rate", pa.decimal128(38, 18))])).to_pylist()
    assert found == {"rate": Decimal("-1.5")}


@pytest.mark.parametrize(
    "value",
    [
        Price(Decimal("1.234")),
        Price(Decimal(12345)),
        Price(Decimal("NaN")),
        Price(Decimal(1), "GBP"),
        Price(Decimal(1), count=True),
        Price(1.5),
    ],
)
def test_decimal_of_too_many_digits_and_none_of_the_literals_are_refused(value):
    with pytest.raises(SchemaSerializationError, match=r"Price\.(net|unit|count): "):
        AvroSchema(Price).encode(value)


def test_digits_and_literals_that_can_not_be_are_refused():
    for annotation in (Annotated[Decimal, AvroDecimal(39)], Annotated[Decimal, AvroDecimal(2, 3)], Literal["a", 1]):
        kind = dataclasses.make_dataclass("Wrong", [("x", annotation)])
        with pytest.raises(InvalidConfiguration, match="field x of Wrong: "):
            AvroSchema(kind)
    for payload in (b'{"net":"x"}', b'{"net":"1","unit":"GBP"}'):
        with pytest.raises(SchemaSerializationError):
            JsonSchema(Price).decode(payload)
