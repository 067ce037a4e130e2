"""KeyValue schemas."""

from __future__ import annotations

from typing import Any

import pytest

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._key_value import KeyValue, KeyValueEncoding, KeyValueSchema
from geminga.client.schema._primitives import Int32Schema, StringSchema
from geminga.client.schema._protocol import SchemaInfo, SchemaType
from geminga.client.schema._struct import AvroSchema
from unit.client.schema.test_schema_base import New, Old

INLINE: Any = KeyValueSchema(StringSchema(), Int32Schema())
SEPARATED: Any = KeyValueSchema(StringSchema(), Int32Schema(), KeyValueEncoding.SEPARATED)


def test_inline_holds_both_parts() -> None:
    data = INLINE.encode(KeyValue("k", 7))
    assert data.hex() == "000000016b" + "0000000400000007"
    assert INLINE.decode(data) == ("k", 7)
    assert not INLINE.sets_key


def test_inline_parts_may_be_none() -> None:
    for pair in (KeyValue(None, 7), KeyValue("k", None)):
        assert INLINE.decode(INLINE.encode(pair)) == pair


def test_separated_takes_the_key_from_the_message() -> None:
    assert SEPARATED.sets_key
    assert SEPARATED.encode(KeyValue("k", 7)) == b"\0\0\0\7"
    assert SEPARATED.encode_key(KeyValue("k", 7)) == b"k"
    assert SEPARATED.decode(b"\0\0\0\7", key=b"k") == ("k", 7)
    assert SEPARATED.decode(b"\0\0\0\7") == (None, 7)
    with pytest.raises(SchemaSerializationError, match="partition_key"):
        SEPARATED.encode(KeyValue("k", None))
    with pytest.raises(SchemaSerializationError, match="needs a key"):
        SEPARATED.encode_key(KeyValue(None, 7))


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ((1, StringSchema()), "key=1: expected a schema such as"),
        ((StringSchema(), StringSchema), "value=.*: expected a schema such as"),
        (
            (StringSchema(), StringSchema(), "SEPARATED"),
            "encoding='SEPARATED': expected one of KeyValueEncoding.INLINE",
        ),
    ],
)
def test_what_is_no_schema_is_refused_when_it_is_made(parts: Any, told: str) -> None:
    with pytest.raises(InvalidConfiguration, match=told):
        KeyValueSchema(*parts)


@pytest.mark.parametrize("odd", ["k", ("a", "b", "c"), {"k": 1}])
def test_what_is_no_pair_is_refused(odd: Any) -> None:
    with pytest.raises(SchemaSerializationError):
        INLINE.encode(odd)


def test_damaged_payloads_are_refused() -> None:
    with pytest.raises(SchemaSerializationError, match="no KeyValue"):
        INLINE.decode(b"\0")


def test_parts_are_read_by_what_they_were_written_with() -> None:
    written: Any = KeyValueSchema(AvroSchema(Old), AvroSchema(Old))
    reader: Any = KeyValueSchema(AvroSchema(New), AvroSchema(New))
    data = written.encode(KeyValue(Old(1), Old(2)))
    assert reader.decode(data, writer=written.info) == (New(1), New(2))
    assert reader._needs_writer
    assert not INLINE._needs_writer
    with pytest.raises(SchemaSerializationError, match="not KEY_VALUE"):
        reader.decode(data, writer=AvroSchema(Old).info)
    with pytest.raises(SchemaSerializationError, match="writer's KeyValue"):
        reader.decode(data, writer=SchemaInfo("", SchemaType.KEY_VALUE, b"?"))
