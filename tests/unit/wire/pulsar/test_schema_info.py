"""Schemas on the wire, versions, and the KeyValue layout."""

from __future__ import annotations

import pytest

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.schema_info import (
    INLINE,
    SEPARATED,
    KeyValueParts,
    SchemaInfo,
    SchemaType,
    decode_version,
    encode_version,
    join_key_value,
    key_value_parts,
    key_value_schema,
    split_key_value,
)


def test_types_have_the_numbers_of_the_wire() -> None:
    names = {"NoSchema": "NONE", "Bool": "BOOLEAN", "KeyValue": "KEY_VALUE", "ProtobufNative": "PROTOBUF_NATIVE"}
    names |= {"LocalDate": "LOCAL_DATE", "LocalTime": "LOCAL_TIME", "LocalDateTime": "LOCAL_DATE_TIME"}
    names |= {"AutoConsume": "AUTO_CONSUME"}
    for name, number in pb.Schema.Type.items():
        assert SchemaType[names.get(name, name.upper())] == number


def test_info_survives_the_wire() -> None:
    info = SchemaInfo("n", SchemaType.AVRO, b"{}", {"b": "2", "a": "1"})
    assert SchemaInfo.from_wire(pb.Schema.FromString(info.to_wire().SerializeToString())) == info


def test_bytes_go_as_none() -> None:
    assert SchemaInfo("BYTES", SchemaType.BYTES).to_wire().type == pb.Schema.NoSchema


@pytest.mark.parametrize("kind", SchemaType)
def test_each_type_is_primitive_or_has_a_definition(kind: SchemaType) -> None:
    assert kind.is_primitive == (kind < SchemaType.KEY_VALUE or kind in range(16, 20)) & (not kind.is_avro_based)


def test_versions_are_eight_bytes_big_endian() -> None:
    assert encode_version(0) == bytes(8)
    assert encode_version(258) == b"\0\0\0\0\0\0\1\2"
    assert decode_version(encode_version(77) + b"more") == 77
    with pytest.raises(ValueError, match="8 bytes, not 0"):
        decode_version(b"")


def test_key_value_message_has_the_documented_bytes() -> None:
    data = bytes.fromhex("00000001 6b 00000004 00000007")
    assert join_key_value(b"k", b"\0\0\0\7") == data
    assert split_key_value(data) == (b"k", b"\0\0\0\7")
    assert split_key_value(join_key_value(None, b"")) == (None, b"")


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xfe\0\0\0\0", b"\0\0\0\0\0\0\0\1", bytes(9)]
)
def test_damaged_key_value_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        split_key_value(data)


@pytest.mark.parametrize("encoding", [INLINE, SEPARATED])
def test_key_value_schema_keeps_its_parts(encoding: str) -> None:
    parts = KeyValueParts(
        SchemaInfo("STRING", SchemaType.STRING),
        SchemaInfo("AVRO", SchemaType.AVRO, b'"int"', {"p": "é"}),
        encoding,
    )
    info = key_value_schema("KeyValue", parts)
    assert info.schema == bytes(4) + b'\0\0\0\5"int"'
    assert key_value_parts(info) == parts


@pytest.mark.parametrize(
    "properties",
    [
        {"kv.encoding.type": "ODD"},
        {"key.schema.type": "ODD"},
        {"value.schema.properties": "[]"},
        {"value.schema.properties": "{"},
        {"value.schema.properties": "[" * 100_000},
        {"key.schema.properties": '{"a":' * 100_000},
    ],
)
def test_key_value_schema_with_odd_properties_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        key_value_parts(SchemaInfo("", SchemaType.KEY_VALUE, bytes(8), properties))


def test_key_value_schema_without_properties_is_bytes_inline() -> None:
    parts = key_value_parts(SchemaInfo("", SchemaType.KEY_VALUE, bytes(8)))
    assert (parts.key.type, parts.value.type, parts.encoding) == (SchemaType.BYTES, SchemaType.BYTES, INLINE)
