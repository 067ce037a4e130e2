"""Which schemas are schemas."""

from __future__ import annotations

import pytest

from geminga.broker.schema.core.validity import json_schema_id, why_invalid
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.schema_info import INLINE, KeyValueParts, SchemaInfo, SchemaType, key_value_schema
from support.worlds.schemas import native_definition

RECORD = b'{"type":"record","name":"R","fields":[]}'
JSON_SCHEMA = b'{"type":"object","id":"urn:x","properties":{}}'


def info(kind: SchemaType, data: bytes = b"") -> SchemaInfo:
    return SchemaInfo("", kind, data)


@pytest.mark.parametrize("kind", [kind for kind in SchemaType if kind.is_primitive])
def test_primitives_have_no_definition(kind: SchemaType) -> None:
    assert not why_invalid(info(kind))
    # The official Python client sends the JSON of None.
    assert not why_invalid(info(kind, b"null"))
    assert kind.name in why_invalid(info(kind, b"{}"))


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
def test_avro_definitions_must_parse(kind: SchemaType) -> None:
    assert not why_invalid(info(kind, RECORD))
    assert why_invalid(info(kind, b""))
    assert why_invalid(info(kind, b'{"type":"record"}'))


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
@pytest.mark.parametrize("default", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_is_none_of_a_definition(kind: SchemaType, default: str) -> None:
    definition = '{"type":"record","name":"R","fields":[{"name":"In","type":"double","default":%s}]}'
    assert f"not JSON: {default} is no value of it" in why_invalid(info(kind, (definition % default).encode()))
    assert why_invalid(info(kind, b'{"type":"object","id":"urn:x","properties":%s}' % default.encode()))
    assert not why_invalid(info(kind, (definition % "1.5").encode()))
    assert not why_invalid(info(kind, (definition.replace("double", "string") % f'"{default}"').encode()))


def test_a_union_is_no_whole_avro_schema() -> None:
    assert "union" in why_invalid(info(SchemaType.AVRO, b'["null","int"]'))
    assert not why_invalid(info(SchemaType.JSON, b'["null","int"]'))


def test_json_schema_of_old_clients_is_taken_for_json_only() -> None:
    assert not why_invalid(info(SchemaType.JSON, JSON_SCHEMA))
    assert why_invalid(info(SchemaType.AVRO, JSON_SCHEMA))
    assert json_schema_id(JSON_SCHEMA) == "urn:x"
    assert json_schema_id(b'{"type":"object"}') == ""
    for other in (RECORD, b"7", b"{"):
        assert json_schema_id(other) is None


def test_both_parts_of_key_value_count() -> None:
    def key_value(key: SchemaInfo, value: SchemaInfo) -> SchemaInfo:
        return key_value_schema("", KeyValueParts(key, value, INLINE))

    text, avro, broken = info(SchemaType.STRING), info(SchemaType.AVRO, RECORD), info(SchemaType.AVRO, b"{}")
    assert not why_invalid(key_value(text, avro))
    assert "AVRO" in why_invalid(key_value(text, broken))
    assert "AVRO" in why_invalid(key_value(broken, text))
    assert why_invalid(info(SchemaType.KEY_VALUE, b"short"))


def test_protobuf_native_needs_descriptors() -> None:
    assert not why_invalid(info(SchemaType.PROTOBUF_NATIVE, native_definition("p.Outer")))
    assert why_invalid(info(SchemaType.PROTOBUF_NATIVE, pb.DESCRIPTOR.serialized_pb))


@pytest.mark.parametrize("kind", [SchemaType.AUTO_CONSUME, SchemaType.EXTERNAL])
def test_what_is_not_concrete_is_no_schema(kind: SchemaType) -> None:
    assert "not a concrete" in why_invalid(info(kind))
