"""Texts as payloads of each schema: as our own client encodes the same values."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from geminga.broker.core.coercion import BodyError
from geminga.broker.rest.message_routes.core.payloads import decoded_base64, encoder_of
from geminga.client import schema as client_schema
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

NOON = dt.datetime(2026, 11, 28, 12, 0, 0, 123_000, tzinfo=dt.UTC)
PLAIN = NOON.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("ä", client_schema.StringSchema(), "ä"),
        ("true", client_schema.BooleanSchema(), True),
        ("FALSE", client_schema.BooleanSchema(), False),
        ("-128", client_schema.Int8Schema(), -128),
        ("32767", client_schema.Int16Schema(), 32767),
        ("+7", client_schema.Int32Schema(), 7),
        ("-9223372036854775808", client_schema.Int64Schema(), -(1 << 63)),
        ("1.5", client_schema.FloatSchema(), 1.5),
        ("-1e300", client_schema.DoubleSchema(), -1e300),
        ("2026-11-28T12:00:00.123Z", client_schema.TimestampSchema(), NOON),
        ("1795867200123", client_schema.TimestampSchema(), NOON),
        ("2026-11-28T12:00:00.123+00:00", client_schema.DateSchema(), NOON),
        ("2026-11-28T12:00:00.123Z", client_schema.InstantSchema(), NOON),
        ("1000", client_schema.TimeSchema(), dt.time(0, 0, 1)),
        ("12:00:00.123", client_schema.TimeSchema(), PLAIN.time()),
        ("2026-11-28", client_schema.LocalDateSchema(), PLAIN.date()),
        ("12:00:00.123", client_schema.LocalTimeSchema(), PLAIN.time()),
        ("2026-11-28T12:00:00.123", client_schema.LocalDateTimeSchema(), PLAIN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_text_becomes_what_a_client_makes_of_the_value(text: str, schema: Any, value: object) -> None:
    assert encoder_of(schema.info)(text, "it") == schema.encode(value)


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("INT8", "128", "it is no INT8: expected a whole number of 8 bits, not '128'"),
        ("INT64", "1" * 30, "expected a whole number, not '1111"),
        ("INT32", "1.0", "expected a whole number, not '1.0'"),
        ("FLOAT", "1e39", "it is no FLOAT: expected a number"),
        ("FLOAT", "1e400", "it is no FLOAT: expected a number"),
        ("DOUBLE", "-1e400", "it is no DOUBLE: expected a number"),
        ("BOOLEAN", "1", "expected true or false, not '1'"),
        ("TIMESTAMP", "2026-11-28T12:00:00", "expected a time such as"),
        ("TIMESTAMP", "9" * 20, "expected a whole number of 64 bits"),
        ("INSTANT", "now", "it is no INSTANT"),
        ("LOCAL_DATE", "28.11.2026", "expected a day such as"),
        ("LOCAL_TIME", "25:00", "expected a time of day"),
        ("LOCAL_DATE_TIME", "2026-11-28T12:00:00Z", "without a time zone"),
        ("LOCAL_DATE_TIME", "x", "expected a time such as"),
        ("JSON", "{", "it is not JSON: '{'"),
        ("JSON", "NaN", "it is not JSON: 'NaN'"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_what_was_expected(kind: str, text: str, told: str) -> None:
    with pytest.raises(BodyError) as caught:
        encoder_of(SchemaInfo("", SchemaType[kind]))(text, "it")
    assert told in caught.value.told


def test_json_is_kept_as_it_is_written_and_bytes_are_the_text() -> None:
    written = ' {"n": 0.10000000000000000000001} '
    assert encoder_of(SchemaInfo("", SchemaType.JSON))(written, "it") == written.strip().encode()
    assert encoder_of(None)("ä", "it") == "ä".encode()


def test_avro_goes_by_its_definition_and_what_has_no_text_is_refused() -> None:
    definition = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}).encode()
    encode = encoder_of(SchemaInfo("", SchemaType.AVRO, definition))
    assert encode('{"n": 1}', "it") == b"\x02"
    with pytest.raises(BodyError, match=r"it does not fit its Avro schema: the value\.n: expected"):
        encode('{"n": "1"}', "it")
    with pytest.raises(BodyError, match="is not Avro's"):
        encoder_of(SchemaInfo("", SchemaType.AVRO, b"{"))
    with pytest.raises(BodyError, match="payloads of schema PROTOBUF_NATIVE can not be given as a text"):
        encoder_of(SchemaInfo("", SchemaType.PROTOBUF_NATIVE))


def test_base64_is_decoded_strictly() -> None:
    assert decoded_base64("AQI=", "it") == b"\x01\x02"
    for text in ("AQI", "A Q I=", "\u00e4"):
        with pytest.raises(BodyError, match="it is not base64"):
            decoded_base64(text, "it")
