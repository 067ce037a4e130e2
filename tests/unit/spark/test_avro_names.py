"""Names of Avro's types go by their namespaces."""

from __future__ import annotations

import json

import pytest

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.decoding.avro_names import short_name, with_full_names
from support.connector.avro_payloads import columns, record, written


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
@pytest.mark.parametrize("own", ["one.T", "T"])
def test_types_of_one_name_in_two_namespaces_are_two_types(kind, own):
    inner = record("T", x="int") | {"namespace": "one"}
    other = record("two.T", y="string")
    definition = record("one.R", a=inner, b=other, c=own, d={"type": "array", "items": "two.T"})
    value = {"a": {"x": 1}, "b": {"y": "s"}, "c": {"x": 7}, "d": [{"y": "t"}]}
    payload = written(definition, value) if kind is SchemaType.AVRO else json.dumps(value).encode()
    info = SchemaInfo(kind.name, kind, json.dumps(definition).encode())
    assert columns(info, [payload])[1] == [value]


def test_names_are_written_out_and_references_with_them():
    definition = {
        "type": "record",
        "name": "R",
        "namespace": "a.b",
        "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "f", "type": ["null", {"type": "fixed", "name": "F", "namespace": "", "size": 1}]},
            {"name": "again", "type": {"type": "map", "values": {"type": "array", "items": "E"}}},
            {"name": "plain", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "both", "type": ["F", "a.b.E", "string"]},
        ],
    }
    found = with_full_names(definition)
    assert found["name"] == "a.b.R"
    kinds = [field["type"] for field in found["fields"]]
    assert (kinds[0]["name"], kinds[1][1]["name"]) == ("a.b.E", "F")
    assert kinds[2] == {"type": "map", "values": {"type": "array", "items": "a.b.E"}}
    assert kinds[3:] == [definition["fields"][3]["type"], ["F", "a.b.E", "string"]]
    assert with_full_names(found) == found
    assert short_name("a.b.E") == "E"


def test_reference_without_its_namespace_is_the_only_type_of_the_name_or_unknown():
    inner = record("one.T", x="int")
    assert with_full_names(record("R", a=inner, b="T"))["fields"][1]["type"] == "one.T"
    both = record("R", a=inner, b=record("two.T", y="int"), c="T")
    assert with_full_names(both)["fields"][2]["type"] == "T"
