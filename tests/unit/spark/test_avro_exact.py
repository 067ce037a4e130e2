"""Avro values are what was written, or what the newest schema says: defaults, decimals, promoted numbers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from geminga.spark.decoding.exact import exact
from geminga.spark.decoding.part_decoding import RowError, part_of
from geminga.spark.source.schema_decoding import decode_columns
from geminga.spark.source_rules.errors import SchemaError
from support.connector.avro_payloads import avro, columns, record, written


def with_default(kind, default):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "int"}, {"name": "x", "type": kind, "default": default}],
    }


def logical(name, kind="long"):
    return {"type": kind, "logicalType": name}


MOMENT = datetime(2023, 11, 14, 22, 13, 20)
MOMENT_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        (logical("timestamp-millis"), MOMENT_MS, MOMENT.replace(tzinfo=UTC)),
        (logical("timestamp-micros"), MOMENT_MS * 1000, MOMENT.replace(tzinfo=UTC)),
        (logical("local-timestamp-millis"), MOMENT_MS, MOMENT),
        (logical("date", "int"), 1, date(1970, 1, 2)),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
        (["bytes", "null"], "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
        (logical("decimal", "bytes") | {"precision": 4, "scale": 2}, "\u00ff", Decimal("-0.01")),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": logical("timestamp-millis")}, {"a": MOMENT_MS}, [("a", MOMENT.replace(tzinfo=UTC))]),
        (
            record("I", b="bytes", t=logical("timestamp-millis")),
            {"b": "\u00ff", "t": MOMENT_MS},
            {"b": b"\xff", "t": MOMENT.replace(tzinfo=UTC)},
        ),
        (
            [record("I", b="bytes"), record("J", c="int")],
            {"b": "\u00ff"},
            {"member0": {"b": b"\xff"}, "member1": None},
        ),
        ("string", "\u00ff", "\u00ff"),
    ],
)
def test_field_that_a_message_lacks_has_the_default_that_the_newest_schema_says(kind, default, value):
    old = record("R", n="int")
    rows = columns(avro(old), [written(old, {"n": 1})], newest=avro(with_default(kind, default)))[1]
    assert rows == [{"n": 1, "x": value}]


def test_default_that_is_no_time_is_refused():
    old, never = record("R", n="int"), with_default(logical("timestamp-millis"), 10**18)
    with pytest.raises(SchemaError, match=r"^x: the default can not be: 1000000000000000000 milliseconds since 1970"):
        part_of(avro(old), avro(never))


def test_decimal_of_more_digits_than_its_schema_allows_is_not_rounded():
    price = logical("decimal", "bytes") | {"precision": 4, "scale": 2}
    info = avro(record("R", price=price))
    payload = written(record("R", price="bytes"), {"price": (12345).to_bytes(2, "big")})
    with pytest.raises(RowError, match=r"price: 123\.45"):
        columns(info, [payload])
    found = decode_columns(info, info, {"price": pa.decimal128(10, 2)})(pa.array([payload]), None)
    assert found["price"].to_pylist() == [Decimal("123.45")]


@pytest.mark.parametrize("first", [b"\x7f", b"\x80"])
def test_decimal_of_more_digits_than_any_column_has_is_told_without_being_computed(first):
    # Of a million bytes the digits alone would take a minute and a half, and whoever publishes chooses how many.
    info = avro(record("R", price=logical("decimal", "bytes") | {"precision": 4, "scale": 2}))
    payload = written(record("R", price="bytes"), {"price": first + bytes(1_000_000)})
    with pytest.raises(RowError, match="does not fit its schema: a decimal of 1000001 bytes: expected at most"):
        columns(info, [payload])


@pytest.mark.parametrize(("unscaled", "value"), [(-5, "-0.05"), (0, "0.00"), (9999, "99.99"), (-9999, "-99.99")])
def test_decimal_that_is_filled_up_with_its_sign_is_read(unscaled, value):
    price = logical("decimal", "fixed") | {"name": "F", "size": 64, "precision": 4, "scale": 2}
    plain = {"type": "fixed", "name": "F", "size": 64}
    payload = written(record("R", price=plain), {"price": unscaled.to_bytes(64, "big", signed=True)})
    assert columns(avro(record("R", price=price)), [payload])[1] == [{"price": Decimal(value)}]


WHOLE = [
    ("int", "float", (1 << 24) + 1),
    ("long", "double", (1 << 53) + 1),
    ("long", ["null", "double"], -(1 << 53) - 1),
    (["null", "long"], ["null", "float"], (1 << 24) + 1),
    ({"type": "long"}, "double", (1 << 53) + 1),
]


@pytest.mark.parametrize(("wrote", "reads", "number"), WHOLE)
def test_whole_number_that_the_newest_schema_has_as_floating_point_is_not_rounded(wrote, reads, number):
    old, new = (
        record("R", n=kind, many={"type": "array", "items": kind}, r=record("I", n=kind)) for kind in (wrote, reads)
    )

    def read(value):
        payload = written(old, {"n": value, "many": [value], "r": {"n": value}})
        return columns(avro(old), [payload], newest=avro(new))[1]

    near = number - (1 if number > 0 else -1)
    assert read(near) == [{"n": float(near), "many": [float(near)], "r": {"n": float(near)}}]
    with pytest.raises(RowError, match=f"{number} is not exactly a (float|double)"):
        read(number)


def test_time_that_an_older_schema_had_is_read_beside_promoted_numbers():
    old, new = (record("R", n=kind, t=logical("timestamp-millis"), i="int") for kind in ("long", "double"))
    payload = written(old, {"n": 3, "t": MOMENT.replace(tzinfo=UTC), "i": 4})
    assert columns(avro(old), [payload], newest=avro(new))[1] == [{"n": 3.0, "t": MOMENT.replace(tzinfo=UTC), "i": 4}]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.timestamp("us", "UTC"), (1 << 63) - 1),
        (pa.uint8(), 255),
        (pa.uint64(), (1 << 64) - 1),
        (pa.int8(), 127),
        (pa.int64(), (1 << 63) - 1),
    ],
    ids=str,
)
def test_largest_number_of_a_type_is_held_and_the_next_one_is_refused(kind, number):
    check = exact(kind)
    assert check(number) == number
    with pytest.raises(ValueError, match=r"is beyond|is no timestamp"):
        check(number + 1)
