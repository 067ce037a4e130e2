"""Schemas of single values: Pulsar's bytes, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.client.schema import _primitives as p
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._protocol import SchemaType

UTC = dt.UTC
MOMENT = dt.datetime(2001, 9, 9, 1, 46, 40, 5000, tzinfo=UTC)

#: Schema, value, bytes: those that Pulsar's Java client writes.
WRITTEN = [
    (p.BytesSchema(), b"\0\xff", "00ff"),
    (p.StringSchema(), "é", "c3a9"),
    (p.BooleanSchema(), True, "01"),
    (p.BooleanSchema(), False, "00"),
    (p.Int8Schema(), -1, "ff"),
    (p.Int16Schema(), 258, "0102"),
    (p.Int32Schema(), -2, "fffffffe"),
    (p.Int64Schema(), 1 << 40, "0000010000000000"),
    (p.FloatSchema(), 1.5, "3fc00000"),
    (p.DoubleSchema(), -2.0, "c000000000000000"),
    (p.DateSchema(), MOMENT, "000000e8d4a51005"),
    (p.TimestampSchema(), MOMENT, "000000e8d4a51005"),
    (p.InstantSchema(), MOMENT, "000000003b9aca00004c4b40"),
    (p.TimeSchema(), dt.time(0, 0, 1, 5000), "00000000000003ed"),
    (p.LocalDateSchema(), dt.date(1970, 1, 2), "0000000000000001"),
    (p.LocalDateSchema(), dt.date(1969, 12, 31), "ffffffffffffffff"),
    (p.LocalTimeSchema(), dt.time(0, 0, 1), "000000003b9aca00"),
    (p.LocalDateTimeSchema(), dt.datetime(1970, 1, 2, 0, 0, 1), "0000000000000001000000003b9aca00"),
]


@pytest.mark.parametrize(("schema", "value", "data"), WRITTEN)
def test_values_have_pulsars_bytes(schema: Any, value: Any, data: str) -> None:
    assert schema.encode(value).hex() == data
    assert schema.decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (p.BytesSchema(), "text"),
        (p.StringSchema(), b"bytes"),
        (p.StringSchema(), None),
        (p.BooleanSchema(), 1),
        (p.Int32Schema(), True),
        (p.Int32Schema(), 1.0),
        (p.Int8Schema(), 128),
        (p.Int64Schema(), 1 << 63),
        (p.FloatSchema(), 1e300),
        (p.DoubleSchema(), "1"),
        (p.DateSchema(), dt.datetime(2000, 1, 1)),
        (p.InstantSchema(), dt.date(2000, 1, 1)),
        (p.LocalDateSchema(), MOMENT),
        (p.LocalDateTimeSchema(), MOMENT),
        (p.LocalTimeSchema(), dt.time(1, tzinfo=UTC)),
    ],
)
def test_values_that_do_not_fit_are_refused(schema: Any, value: Any) -> None:
    with pytest.raises(SchemaSerializationError, match=schema.info.name):
        schema.encode(value)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (p.StringSchema(), b"\xff"),
        (p.BooleanSchema(), b""),
        (p.Int32Schema(), b"\0"),
        (p.InstantSchema(), bytes(8)),
        (p.DateSchema(), b"\x7f" + bytes(7)),
        (p.LocalDateSchema(), b"\x7f" + bytes(7)),
        (p.LocalTimeSchema(), b"\xff" * 8),
    ],
)
def test_bytes_that_are_none_are_refused(schema: Any, data: bytes) -> None:
    with pytest.raises(SchemaSerializationError, match=schema.info.name):
        schema.decode(data)


def test_ints_are_taken_as_floats() -> None:
    assert p.DoubleSchema().encode(2) == p.DoubleSchema().encode(2.0)


def test_every_primitive_type_has_its_schema() -> None:
    assert set(p.PRIMITIVES) == {kind for kind in SchemaType if kind.is_primitive}
    for kind, schema in p.PRIMITIVES.items():
        info = schema().info
        assert info.type is (SchemaType.BYTES if kind is SchemaType.NONE else kind)
        assert info.schema == b""


moments = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(UTC))


@given(moments)
def test_moments_survive_to_their_precision(value: dt.datetime) -> None:
    assert p.InstantSchema().decode(p.InstantSchema().encode(value)) == value
    floor = value - dt.timedelta(microseconds=value.microsecond % 1000)
    assert p.DateSchema().decode(p.DateSchema().encode(value)) == floor


@given(st.datetimes())
def test_local_times_survive(value: dt.datetime) -> None:
    for schema, part in (
        (p.LocalDateTimeSchema(), value),
        (p.LocalDateSchema(), value.date()),
        (p.LocalTimeSchema(), value.time()),
    ):
        assert schema.decode(schema.encode(part)) == part  # type: ignore[attr-defined]
