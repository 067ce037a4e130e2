"""Avro values without a class are what was written, or what the own definition says: defaults, decimals, numbers."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from geminga.client.schema import AutoConsumeSchema, AvroSchema, SchemaInfo, SchemaType
from geminga.client.schema._base import SchemaSerializationError

MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
MOMENT_MS = 1_700_000_000_000
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def with_default(kind: Any, default: Any) -> dict[str, Any]:
    found = record(n="int", x=kind)
    found["fields"][1]["default"] = default
    return found


def logical(name: str, kind: str = "long") -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


def written(definition: dict[str, Any], value: object) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(definition), value)
    return buffer.getvalue()


def info(definition: dict[str, Any]) -> SchemaInfo:
    return SchemaInfo("AVRO", SchemaType.AVRO, json.dumps(definition).encode())


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        (logical("timestamp-millis"), MOMENT_MS, MOMENT),
        (logical("timestamp-micros"), MOMENT_MS * 1000, MOMENT),
        (logical("local-timestamp-millis"), MOMENT_MS, MOMENT.replace(tzinfo=None)),
        (logical("date", "int"), 1, date(1970, 1, 2)),
        (logical("time-millis", "int"), 61_000, time(0, 1, 1)),
        ("bytes", "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
        (PRICE, "\u00ff", Decimal("-0.01")),
        (record("I", t=logical("timestamp-millis")), {"t": MOMENT_MS}, {"t": MOMENT}),
        ("string", "\u00ff", "\u00ff"),
    ],
)
def test_a_field_that_a_message_lacks_has_the_default_as_a_value_of_its_type(
    kind: Any, default: Any, value: object
) -> None:
    # Twice: what was read first changes nothing of what is read by. Names of records may differ.
    schema: AvroSchema[Any] = AvroSchema(schema_definition=with_default(kind, default))
    for name in ("R", "Other", "R"):
        old = record(name, n="int")
        assert schema.decode(written(old, {"n": 1}), writer=info(old)) == {"n": 1, "x": value}
    assert json.loads(schema.info.schema) == with_default(kind, default)


def test_a_default_that_is_no_time_is_an_error_of_who_reads_and_no_other() -> None:
    schema: AvroSchema[Any] = AvroSchema(schema_definition=with_default(logical("timestamp-millis"), 10**18))
    old = record(n="int")
    with pytest.raises(SchemaSerializationError, match="x: the default can not be: 1000000000000000000 milliseconds"):
        schema.decode(written(old, {"n": 1}), writer=info(old))
    assert schema.encode({"n": 1, "x": MOMENT}) == written(record(n="int", x="long"), {"n": 1, "x": MOMENT_MS})


@pytest.mark.parametrize("digits", ["123.45", "-99999999999999999999999999999999999999999.99"])
def test_a_decimal_of_more_digits_than_its_definition_allows_is_not_rounded(digits: str) -> None:
    unscaled = int(digits.replace(".", ""))
    payload = written(record(price="bytes"), {"price": unscaled.to_bytes(20, "big", signed=True)})
    schema: AvroSchema[Any] = AvroSchema(schema_definition=record(price=PRICE))
    assert schema.decode(payload) == {"price": Decimal(digits)}
    found = AutoConsumeSchema().decode(payload, writer=info(record(price=PRICE)))
    assert found["price"] == Decimal(digits)
    # What is written is another matter: who writes has to keep to them.
    with pytest.raises(SchemaSerializationError):
        schema.encode({"price": Decimal(digits)})
    assert schema.decode(schema.encode({"price": Decimal("12.34")})) == {"price": Decimal("12.34")}


@pytest.mark.parametrize("first", [b"\x7f", b"\x80"])
def test_a_decimal_of_a_million_bytes_is_refused_without_being_computed(first: bytes) -> None:
    payload = written(record(price="bytes"), {"price": first + bytes(1_000_000)})
    with pytest.raises(SchemaSerializationError, match="a decimal of 1000001 bytes"):
        AvroSchema[Any](schema_definition=record(price=PRICE)).decode(payload)


@pytest.mark.parametrize(
    ("wrote", "reads", "number", "near"),
    [
        ("int", "float", (1 << 24) + 1, 1 << 24),
        ("long", "double", (1 << 53) + 1, 1 << 53),
        ("long", ["null", "double"], -(1 << 53) - 1, -(1 << 53)),
        # As it is printed: the nearest is 1234567946.
        ("long", "float", 1_234_567_891, 1_234_568_000),
    ],
)
def test_a_whole_number_that_is_read_as_floating_point_is_not_rounded(
    wrote: str, reads: Any, number: int, near: int
) -> None:
    schema: AvroSchema[Any] = AvroSchema(schema_definition=record(n=reads))
    old = record(n=wrote)
    assert float(schema.decode(written(old, {"n": near}), writer=info(old))["n"]) == pytest.approx(near, rel=1e-7)
    with pytest.raises(SchemaSerializationError, match=f"{number} is not exactly a (float|double)"):
        schema.decode(written(old, {"n": number}), writer=info(old))
