"""How versions of a schema read, and what is different."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from geminga.app.console.core.schema_changes import (
    COMPARED_LINES_MAX,
    DEFINITION_CHARACTERS,
    DEPTH_MAX,
    FIELDS_MAX,
    READ_CHARACTERS_MAX,
    Change,
    Difference,
    SchemaField,
    TextLine,
    UnreadableSchemaError,
    difference,
    fields_of,
    readable,
)
from geminga.client.schema import ProtobufNativeSchema
from geminga.wire._generated import pulsar_api_pb2 as pb


def record(*fields: dict[str, Any], kind: str = "AVRO", **more: Any) -> dict[str, Any]:
    return {"type": kind, "data": json.dumps({"type": "record", "name": "R", "fields": fields}), **more}


ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}


def test_fields_are_told_by_their_paths_and_types() -> None:
    found = fields_of(
        record(
            {"name": "id", "type": "long", "default": 0},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "home", "type": ADDRESS},
            {"name": "others", "type": {"type": "array", "items": ["null", ADDRESS | {"name": "Other"}]}},
            {"name": "by", "type": {"type": "map", "values": "Address"}},
            {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["A", "B"]}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "mark", "type": {"type": "fixed", "name": "F", "size": 4}},
        )
    )
    assert found == {
        "id": SchemaField("long", "0"),
        "note": SchemaField("null | string", "null"),
        "home": SchemaField("record Address"),
        "home.city": SchemaField("string"),
        "others": SchemaField("array of null | record Other"),
        "others[].city": SchemaField("string"),
        "by": SchemaField("map of Address"),
        "state": SchemaField("enum S (A, B)"),
        "price": SchemaField("bytes (decimal, precision 9, scale 2)"),
        "mark": SchemaField("fixed F (4 bytes)"),
    }


def test_difference_names_what_happened_to_each_field() -> None:
    before = record({"name": "id", "type": "int"}, {"name": "old", "type": "string"}, properties={"a": "1", "b": "1"})
    after = record(
        {"name": "id", "type": "long", "default": 5},
        {"name": "new", "type": ["null", "string"], "default": None},
        properties={"b": "2", "c": "3"},
    )
    assert difference(before, after) == Difference(
        (
            Change("type", "id", "int", "long"),
            Change("default", "id", "none", "5"),
            Change("added", "new", "", "null | string = null"),
            Change("removed", "old", "string", ""),
        ),
        (),
        (
            "Property a was removed; it was 1.",
            "Property b changed from 1 to 2.",
            "Property c was added: 3.",
        ),
    )
    assert difference(before, before).is_none


def test_pairs_are_compared_side_by_side() -> None:
    def pair(value: dict[str, Any]) -> dict[str, Any]:
        properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
        data = {"key": "", "value": json.loads(value["data"])}
        return {"type": "KEY_VALUE", "data": json.dumps(data), "properties": properties}

    before, after = pair(record({"name": "a", "type": "int"})), pair(record({"name": "a", "type": "long"}))
    assert difference(before, after).changes == (Change("type", "value.a", "int", "long"),)
    assert fields_of(before)["key"] == SchemaField("STRING")


def test_protobuf_is_compared_by_its_descriptors() -> None:
    info = ProtobufNativeSchema(pb.KeyValue).info
    document = {"type": "PROTOBUF_NATIVE", "data": info.schema.decode()}
    assert fields_of(document)["geminga.pulsar.KeyValue.key"] == SchemaField("required string = 1")
    assert "geminga.pulsar.KeyValue.key: required string = 1" in readable(document).splitlines()
    assert difference(document, document).is_none


def test_what_has_no_fields_is_compared_by_its_text() -> None:
    before, after = {"type": "JSON", "data": "{"}, {"type": "JSON", "data": "["}
    assert difference(before, after) == Difference(None, (TextLine("-", "{"), TextLine("+", "[")))
    assert difference({"type": "STRING", "data": ""}, {"type": "INT32", "data": ""}) == Difference(
        None, (), ("The type changed from STRING to INT32.",)
    )


def test_definitions_that_are_too_large_are_not_compared() -> None:
    lines = "\n".join(str(number) for number in range(COMPARED_LINES_MAX + 1))
    found = difference({"type": "JSON", "data": lines}, {"type": "JSON", "data": ""})
    assert found.remarks == ("Definitions of more than 1000 lines are not compared.",)
    with pytest.raises(UnreadableSchemaError, match="more than 5000 fields"):
        fields_of(record(*({"name": f"f{number}", "type": "int"} for number in range(FIELDS_MAX + 1))))


def test_names_without_end_are_not_put_together() -> None:
    with pytest.raises(UnreadableSchemaError, match="path of a field has more than 1000 characters"):
        fields_of(record({"name": "x" * 600, "type": {**ADDRESS, "fields": [{"name": "y" * 600, "type": "int"}]}}))
    huge = {"type": "AVRO", "data": f'"{"x" * READ_CHARACTERS_MAX}"'}
    with pytest.raises(UnreadableSchemaError, match="more than 1,048,576 characters"):
        fields_of(huge)
    assert len(readable(huge)) == DEFINITION_CHARACTERS


@pytest.mark.parametrize(
    "data",
    [
        '{"type": "record"}',
        '{"type": "record", "fields": [1]}',
        '{"type": "record", "fields": [{"name": "a"}]}',
        "[" * 5000,
        '{"type":"record","fields":[{"name":"a","type":' + '{"type":"array","items":' * 70 + '"int"' + "}" * 70 + "}]}",
    ],
)
def test_definition_that_is_damaged_says_so(data: str) -> None:
    with pytest.raises(UnreadableSchemaError):
        fields_of({"type": "AVRO", "data": data})
    assert readable({"type": "AVRO", "data": data})


def test_definition_of_one_value_is_a_field() -> None:
    assert fields_of({"type": "AVRO", "data": '"int"'}) == {"(value)": SchemaField("int")}
    assert fields_of({"type": "AVRO", "data": '{"type": "int", "logicalType": "date"}'}) == {
        "(value)": SchemaField("int (date)")
    }
    assert readable({"type": "AVRO", "data": '{"type":"int"}'}) == '{\n  "type": "int"\n}'
    assert readable({"type": "STRING", "data": ""}) == ""


def deep(levels: int) -> Any:
    made: Any = "string"
    for _ in range(levels):
        made = {"type": "array", "items": made}
    return made


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"type": "STRING", "data": '"x"'}, "a schema of type STRING has no fields"),
        ({"type": "AVRO", "data": json.dumps(deep(DEPTH_MAX + 2))}, "nested deeper than"),
        (record({"name": "a", "type": deep(DEPTH_MAX + 2)}), "nested deeper than"),
        (record({"name": "a", "type": 5}), "a type that is no text, list or object"),
    ],
)
def test_definition_that_has_no_fields_to_tell_says_why(document: dict[str, Any], told: str) -> None:
    with pytest.raises(UnreadableSchemaError, match=told):
        fields_of(document)


def test_a_type_in_a_type_is_that_type() -> None:
    found = fields_of(
        record(
            {"name": "a", "type": {"type": {"type": "record", "name": "In", "fields": [{"name": "b", "type": "int"}]}}}
        )
    )
    assert found == {"a": SchemaField("record In"), "a.b": SchemaField("int")}


def test_messages_within_messages_are_told_and_what_is_damaged_is_shown_as_it_is() -> None:
    message = DescriptorProto(name="Out")
    message.nested_type.add(name="In").field.add(name="n", number=1, type=5, label=1)
    files = FileDescriptorSet()
    files.file.add(package="p").message_type.append(message)
    data = json.dumps({"fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode()})
    assert fields_of({"type": "PROTOBUF_NATIVE", "data": data}) == {"p.Out.In.n": SchemaField("optional int32 = 1")}
    assert readable({"type": "PROTOBUF_NATIVE", "data": "{"}) == "{"
