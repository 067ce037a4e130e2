"""Payloads of each type of schema as JSON values."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.console.core.payloads import NotDecodableError, decoder_of, info_of, json_text
from geminga.client.schema import (
    BooleanSchema,
    DoubleSchema,
    InstantSchema,
    Int8Schema,
    Int64Schema,
    KeyValue,
    KeyValueEncoding,
    KeyValueSchema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    ProtobufNativeSchema,
    Schema,
    StringSchema,
    TimeSchema,
    TimestampSchema,
)
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

MOMENT = dt.datetime(2026, 11, 28, 12, 0, 0, 500_000, dt.UTC)


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        (StringSchema(), "ü", "ü"),
        (BooleanSchema(), True, True),
        (Int8Schema(), -5, -5),
        (Int64Schema(), 1 << 40, 1 << 40),
        (DoubleSchema(), 0.1, 0.1),
        (TimestampSchema(), MOMENT, "2026-11-28T12:00:00.500000Z"),
        (InstantSchema(), MOMENT, "2026-11-28T12:00:00.500000Z"),
        (TimeSchema(), dt.time(1, 2, 3), "01:02:03"),
        (LocalDateSchema(), dt.date(2026, 11, 28), "2026-11-28"),
        (LocalTimeSchema(), dt.time(1, 2, 3, 4), "01:02:03.000004"),
        (LocalDateTimeSchema(), dt.datetime(2026, 11, 28, 1, 2, 3), "2026-11-28T01:02:03"),
    ],
)
def test_value_that_the_client_wrote_is_read(schema: Schema[Any], value: object, shown: object) -> None:
    decode = decoder_of(schema.info)
    assert decode is not None
    assert decode(schema.encode(value), None) == shown
    with pytest.raises(ValueError):
        decode(b"\xff\xff\xff", None)


@pytest.mark.parametrize("encoding", list(KeyValueEncoding))
def test_pair_is_read_wherever_its_key_is(encoding: KeyValueEncoding) -> None:
    schema = KeyValueSchema(StringSchema(), Int64Schema(), encoding)
    decode = decoder_of(schema.info)
    assert decode is not None
    assert decode(schema.encode(KeyValue("k", 7)), b"k") == {"key": "k", "value": 7}


def test_message_of_protobuf_is_read_by_its_descriptors() -> None:
    schema = ProtobufNativeSchema(pb.KeyValue)
    decode = decoder_of(schema.info)
    assert decode is not None
    assert decode(pb.KeyValue(key="a", value="b").SerializeToString(), None) == {"key": "a", "value": "b"}
    with pytest.raises(ValueError, match=r"it is no geminga\.pulsar\.KeyValue"):
        decode(b"\x0f", None)


def test_json_keeps_the_order_of_its_members() -> None:
    decode = decoder_of(SchemaInfo("", SchemaType.JSON))
    assert decode is not None
    assert json_text(decode(b'{"b":1,"a":"\xc3\xbc"}', None)) == '{\n  "b": 1,\n  "a": "ü"\n}'


@given(st.sampled_from(sorted(SchemaType)), st.binary(max_size=30))
def test_any_bytes_are_a_value_or_a_value_error(kind: SchemaType, data: bytes) -> None:
    definition = b'{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
    with contextlib.suppress(ValueError):
        decode = decoder_of(SchemaInfo("", kind, definition if kind is SchemaType.AVRO else b""))
        assert decode is None or json.dumps(decode(data, None))


def test_schema_of_the_administration_is_taken() -> None:
    assert info_of({"type": "AVRO", "data": '"int"'}).schema == b'"int"'
    pair = {"type": "KEY_VALUE", "data": '{"key":"","value":{"type":"int"}}'}
    pair_info = info_of({**pair, "properties": {"value.schema.type": "AVRO", "key.schema.type": "STRING"}})
    decode = decoder_of(pair_info)
    assert decode is not None
    assert decode(b"\0\0\0\1a\0\0\0\1\x04", None) == {"key": "a", "value": 2}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"type": "ODD"}, "of type 'ODD' is not known"),
        ({"type": "KEY_VALUE", "data": "{"}, "has no key and value"),
    ],
)
def test_schema_that_is_none_says_so(document: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        info_of(document)


def test_schema_without_numbers_of_fields_says_so() -> None:
    with pytest.raises(NotDecodableError, match="does not say the numbers of the fields"):
        decoder_of(SchemaInfo("", SchemaType.PROTOBUF, b"{}"))
    with pytest.raises(ValueError, match="no descriptors of protobuf messages"):
        decoder_of(SchemaInfo("", SchemaType.PROTOBUF_NATIVE, b"{}"))
