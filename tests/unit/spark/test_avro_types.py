"""Avro definitions as Spark's types, and JSON values as what Arrow takes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.source.avro_types import json_converter, spark_type
from geminga.spark.source.errors import SchemaError
from geminga.spark.source.topic_schema import value_fields


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def test_records_maps_arrays_and_logical_types_have_columns():
    definition = record(
        ("a", ["null", "long"]),
        ("b", {"type": "array", "items": record(("x", "int"), name="Inner")}),
        ("c", {"type": "map", "values": "double"}),
        ("d", {"type": "int", "logicalType": "date"}),
        ("e", {"type": "long", "logicalType": "timestamp-micros"}),
        ("f", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("g", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ("h", "Inner"),
    )
    assert spark_type(definition).simpleString() == (
        "struct<a:bigint,b:array<struct<x:int>>,c:map<string,double>,d:date,e:timestamp,f:decimal(9,2),g:string,"
        "h:struct<x:int>>"
    )


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (["int", "string"], "a union of 2 types"),
        ({"type": "int", "logicalType": "time-millis"}, "time of day"),
        (record(("next", ["null", "R"])), "holds itself"),
    ],
)
def test_definition_that_spark_has_no_type_for_is_refused(definition, said):
    with pytest.raises(SchemaError, match=said):
        spark_type(definition)


def test_json_values_become_what_their_definition_means():
    convert = json_converter(
        record(
            ("day", {"type": "int", "logicalType": "date"}),
            ("ms", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
            ("us", {"type": "long", "logicalType": "timestamp-micros"}),
            ("raw", "bytes"),
            ("sum", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}),
            ("list", {"type": "array", "items": "bytes"}),
            ("map", {"type": "map", "values": "int"}),
            ("name", "string"),
        )
    )
    assert convert(
        {"day": 1, "ms": 1000, "us": 5, "raw": "AQI=", "sum": 1.5, "list": ["/w=="], "map": {"k": 1}, "name": "n"}
    ) == {
        "day": date(1970, 1, 2),
        "ms": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "us": datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
        "raw": b"\1\2",
        "sum": Decimal("1.5"),
        "list": [b"\xff"],
        "map": [("k", 1)],
        "name": "n",
    }
    assert convert({"day": 1, "ms": None}) == {"day": date(1970, 1, 2)}


def test_schemas_without_columns_are_refused_with_the_way_out():
    with pytest.raises(SchemaError, match="KEY_VALUE schemas have no columns in Spark; use schemaMode=raw"):
        value_fields(SchemaInfo("kv", SchemaType.KEY_VALUE), "t")
    clash = b'{"type":"record","name":"R","fields":[{"name":"__key","type":"int"}]}'
    with pytest.raises(SchemaError, match="name of a metadata column"):
        value_fields(SchemaInfo("r", SchemaType.AVRO, clash), "t")
