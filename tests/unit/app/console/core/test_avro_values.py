"""Avro bytes as values, and bytes that say more than there is."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.console.core.avro_values import VALUES_LEAST, AvroDataError, decode_avro
from geminga.broker.core.steps import drained
from geminga.broker.rest.message_routes.core.avro_json import avro_steps
from geminga.broker.schema.core.avro import parse_definition

RECORD = parse_definition(
    b"""{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"},
    {"name": "rate", "type": "double"},
    {"name": "paid", "type": "boolean"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "lines", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
    {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
    {"name": "next", "type": ["null", "Order"]}]}"""
)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "rate": st.floats(allow_nan=False),
        "paid": st.booleans(),
        "note": st.none() | st.text(),
        "lines": st.lists(st.text(), max_size=5),
        "counts": st.dictionaries(st.text(), st.integers(-(1 << 31), (1 << 31) - 1), max_size=3),
        "state": st.sampled_from(["NEW", "SENT"]),
        "mark": st.just("\xff\x00"),
        "next": st.none(),
    }
)


@given(ORDERS)
def test_value_comes_back_as_it_was_written(order: dict[str, object]) -> None:
    data = drained(avro_steps(RECORD, order))  # type: ignore[arg-type]
    assert decode_avro(RECORD, data) == order
    with pytest.raises(AvroDataError, match="1 bytes are left"):
        decode_avro(RECORD, data + b"\0")
    with pytest.raises(AvroDataError):
        decode_avro(RECORD, data[:-1])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error_of_data(data: bytes) -> None:
    with contextlib.suppress(AvroDataError):
        assert isinstance(decode_avro(RECORD, data), dict)


def test_few_bytes_that_say_a_billion_nulls_are_refused() -> None:
    nulls = parse_definition(b'{"type": "array", "items": "null"}')
    with pytest.raises(AvroDataError, match="more values than 6 bytes have"):
        decode_avro(nulls, bytes.fromhex("80a0cba50700"))
    # As many as a message may say without a byte for each.
    assert decode_avro(nulls, b"\xd0\x0f\0") == [None] * VALUES_LEAST


def test_record_within_itself_without_end_is_refused() -> None:
    nested = parse_definition(b'{"type": "record", "name": "N", "fields": [{"name": "n", "type": ["N", "null"]}]}')
    with pytest.raises(AvroDataError, match="deeper than 128"):
        decode_avro(nested, b"\0" * 1000)


def test_error_says_where_without_names_of_any_length() -> None:
    long = parse_definition(
        b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": {"type": '
        b'"record", "name": "S", "fields": [{"name": "' + b"x" * 5000 + b'", "type": "int"}]}}}]}'
    )
    with pytest.raises(AvroDataError) as error:
        decode_avro(long, b"\x02")
    assert str(error.value) == f"the value.a[0].{'x' * 40} needs 1 bytes and 0 are left"


def test_block_that_says_its_bytes_is_read() -> None:
    numbers = parse_definition(b'{"type": "array", "items": "int"}')
    assert decode_avro(numbers, bytes([3, 4, 2, 4, 0])) == [1, 2]


@pytest.mark.parametrize(
    ("definition", "data", "words"),
    [
        (b'"string"', b"\x02\xff", "is not UTF-8"),
        (b'"long"', b"\xff" * 11, "no number of 64 bits"),
        (b'"bytes"', b"\x01", "needs -1 bytes"),
        (b'["null", "int"]', b"\x04", "is number 2 of 2"),
        (b'"float"', b"\0\0\0", "needs 4 bytes and 3 are left"),
    ],
)
def test_damaged_value_says_what_is_wrong(definition: bytes, data: bytes, words: str) -> None:
    with pytest.raises(AvroDataError, match=words):
        decode_avro(parse_definition(definition), data)
