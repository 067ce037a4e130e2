"""Avro definitions as Spark's types, and JSON values as what Arrow takes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql.types import DoubleType, LongType, NullType, StringType

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.decoding.avro_types import spark_type
from geminga.spark.decoding.avro_values import avro_converter, json_converter
from geminga.spark.source.topic_schema import value_fields
from geminga.spark.source_rules.errors import SchemaError


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
        ({"type": "int", "logicalType": "time-millis"}, "^time-millis: Spark has no type for a time of day"),
        (
            record(("a", record(("at", ["null", {"type": "int", "logicalType": "time-millis"}]), name="I"))),
            "^a.at: time",
        ),
        (record(("next", ["null", "R"])), "^next: 'R': .* holds itself"),
        (
            record(("sum", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1})),
            "^sum: a decimal of precision 50 and scale 1: Spark's have 1 to 38 digits",
        ),
        ({"type": "bytes", "logicalType": "decimal"}, "^a decimal of precision None and scale 0"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
            "^a decimal of precision 2 and scale 3",
        ),
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
        "map": {"k": 1},
        "name": "n",
    }
    assert convert({"day": 1, "ms": None}) == {"day": date(1970, 1, 2)}


def test_bytes_of_json_may_be_text_and_a_fixed_one_has_its_size():
    definition = record(("raw", ["null", "bytes"]), ("four", {"type": "fixed", "name": "F", "size": 4}))
    convert = json_converter(definition, are_bytes_text=True)
    assert convert({"raw": "AQI=", "four": "\u00e9ab"}) == {"raw": b"AQI=", "four": "\u00e9ab".encode()}
    with pytest.raises(ValueError, match="is 3 bytes: expected 4"):
        convert({"four": "abc"})
    with pytest.raises(ValueError, match=r"raw: 5.* is no text"):
        convert({"raw": 5})
    with pytest.raises(ValueError, match="surrogates"):
        convert({"raw": "\ud800"})


@pytest.mark.parametrize(
    ("definition", "value", "said"),
    [
        (
            {"type": "int", "logicalType": "date"},
            2**31 - 1,
            "2147483647 days since 1970 are not in the years 1 to 9999",
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**63 - 1, "9223372036854775807 milliseconds since 1970"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            253402300800000000,
            "253402300800000000 microseconds since",
        ),
        ({"type": "long", "logicalType": "time-micros"}, 2**63 - 1, "9223372036854775807 is no time of a day"),
        ({"type": "fixed", "name": "F", "size": 2}, "AA==", "'AA==' is 1 bytes: expected 2"),
    ],
)
def test_json_value_that_its_definition_does_not_have_is_named(definition, value, said):
    with pytest.raises(ValueError, match=f"^v: {said}"):
        json_converter(record(("v", definition)))({"v": value})


def test_schemas_without_columns_are_refused_with_the_way_out():
    with pytest.raises(SchemaError, match="t: EXTERNAL schemas have no columns in Spark; use schemaMode=raw"):
        value_fields(SchemaInfo("e", SchemaType.EXTERNAL), "t")
    with pytest.raises(SchemaError, match="t: the KEY_VALUE schema can not be read: cut off"):
        value_fields(SchemaInfo("kv", SchemaType.KEY_VALUE), "t")
    clash = b'{"type":"record","name":"R","fields":[{"name":"__key","type":"int"}]}'
    with pytest.raises(SchemaError, match="name of a metadata column"):
        value_fields(SchemaInfo("r", SchemaType.AVRO, clash), "t")


def test_union_of_several_types_is_a_struct_of_its_members():
    definition = record(
        ("a", ["null", "int", "string"]), ("b", ["int", "long"]), ("c", ["float", "double"]), ("d", ["null"])
    )
    expected = "struct<a:struct<member0:int,member1:string>,b:bigint,c:double,d:void>"
    assert spark_type(definition).simpleString() == expected


ONE = {"type": "record", "name": "x.One", "fields": [{"name": "a", "type": "int"}]}
TWO = {"type": "record", "name": "Two", "fields": [{"name": "a", "type": "int"}]}


def test_member_of_a_union_is_told_by_the_value():
    json_value = json_converter(["null", "string", "double", {"type": "array", "items": "bytes"}, ONE])
    assert json_value(None) is None
    assert json_value("s") == {"member0": "s"}
    assert json_value(1) == {"member1": 1.0}
    assert json_value(["AQ=="]) == {"member2": [b"\1"]}
    assert json_value({"a": 1}) == {"member3": {"a": 1}}
    with pytest.raises(ValueError, match="a bool is none of the types of a union"):
        json_value(True)
    avro_value = avro_converter([ONE, TWO, "long", {"type": "long", "logicalType": "timestamp-millis"}])
    assert avro_value(("x.One", {"a": 1})) == {"member0": {"a": 1}}
    assert avro_value(("Two", {"a": 2})) == {"member1": {"a": 2}}
    assert avro_value(3) == {"member2": 3}
    assert avro_value(datetime(2020, 1, 1, tzinfo=UTC)) == {"member3": datetime(2020, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (SchemaType.AVRO, ["string", {"type": "enum", "name": "E", "symbols": ["A"]}]),
        (SchemaType.JSON, [ONE, TWO]),
        (SchemaType.JSON, ["string", "bytes"]),
        (SchemaType.AVRO, [ONE, {"type": "map", "values": "int"}]),
    ],
)
def test_union_whose_members_values_do_not_tell_apart_is_refused_by_field(kind, members):
    info = SchemaInfo("r", kind, json.dumps(record(("f", record(("u", ["null", *members]), name="I")))).encode())
    with pytest.raises(SchemaError, match=r"t: f\.u: a union of several types of which member0 and member1 can not be"):
        value_fields(info, "t")


@pytest.mark.parametrize(
    ("union", "found"),
    [
        (["string"], StringType()),
        (["null", "string"], StringType()),
        (["null"], NullType()),
        (["int", "long"], LongType()),
        (["double", "null", "float"], DoubleType()),
    ],
    ids=str,
)
def test_union_of_one_type_or_of_two_of_a_kind_is_that_type_with_and_without_null(union, found):
    assert spark_type(union) == found


@pytest.mark.parametrize("around", [["null"], []])
def test_record_that_may_be_null_or_is_alone_in_its_union_gives_its_fields_as_columns(around):
    record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    info = SchemaInfo("AVRO", SchemaType.AVRO, json.dumps([*around, record]).encode())
    assert [field.name for field in value_fields(info, "t")] == ["a"]
    several = SchemaInfo("AVRO", SchemaType.AVRO, json.dumps([*around, record, "string"]).encode())
    assert [field.name for field in value_fields(several, "t")] == ["value"]
