"""Columns and their roles; a column that would be lost is an error."""

from __future__ import annotations

import pytest

from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink_rules.sink_columns import SinkColumns, ValueKind, sink_columns
from geminga.spark.sink_rules.sink_options import ProducerSettings, SinkOptions, ValueSchema

MAP = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
STRUCT = {"type": "struct", "fields": []}


def options(**given: object) -> SinkOptions:
    return SinkOptions(ClientConfiguration("pulsar://h"), ProducerSettings(), **{"topic": "t", **given})


def columns_of(fields: dict[str, object], **given: object) -> SinkColumns:
    return sink_columns(list(fields.items()), options(**given))


def test_every_role_is_found() -> None:
    found = columns_of(
        {
            "value": "binary",
            "__key": "binary",
            "__topic": "string",
            "__eventTime": "timestamp",
            "__messageProperties": MAP,
            "__partition": "integer",
            "__deliverAt": "long",
            "__orderingKey": "string",
        },
        topic="",
    )
    assert found == SinkColumns(
        value_kind=ValueKind.BYTES,
        values=("value",),
        schema=None,
        key="__key",
        is_key_binary=True,
        topic="__topic",
        event_time="__eventTime",
        is_event_time_micros=True,
        properties="__messageProperties",
        partition="__partition",
        deliver_at="__deliverAt",
        is_deliver_at_micros=False,
        ordering_key="__orderingKey",
    )


def test_several_columns_are_a_record() -> None:
    found = columns_of({"a": "long", "value": "string"})
    assert (found.value_kind, found.values, found.schema) == (ValueKind.COLUMNS, ("a", "value"), ValueSchema.AVRO)


def test_struct_value_is_a_record_of_its_fields() -> None:
    found = columns_of({"value": STRUCT}, value_schema=ValueSchema.JSON)
    assert (found.value_kind, found.schema) == (ValueKind.STRUCT, ValueSchema.JSON)


def test_one_other_column_is_a_record_only_if_told() -> None:
    with pytest.raises(OptionError, match="name it value"):
        columns_of({"a": "long"})
    assert columns_of({"a": "long"}, value_schema=ValueSchema.AVRO).values == ("a",)


def test_option_topic_goes_before_the_column() -> None:
    assert columns_of({"value": "string", "__topic": "string"}).topic == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"value": "integer"}, "column value is integer: expected binary, string or a struct"),
        ({"__key": "string"}, "no payload"),
        ({"value": "string", "__key": "long"}, "column __key is long: expected binary or string"),
        ({"value": "string", "__eventTime": "timestamp_ntz"}, "column __eventTime is timestamp_ntz"),
        ({"value": "string", "__properties": "string"}, "expected map<string,string>"),
        ({"value": "string", "__properties": {**MAP, "valueType": "long"}}, "expected map<string,string>"),
        ({"value": "string", "__properties": MAP, "__messageProperties": MAP}, "two names of the same"),
        ({"value": "string", "__publishTime": "timestamp"}, "broker's to write: leave it out"),
        ({"value": "string", "__messageId": "binary"}, "broker's to write"),
        ({"value": "string", "__keys": "string"}, "column __keys is not known"),
    ],
)
def test_column_that_would_be_lost_is_an_error(fields: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        columns_of(fields)


def test_missing_topic_is_an_error() -> None:
    with pytest.raises(OptionError, match="no topic"):
        columns_of({"value": "string"}, topic="")


def test_same_name_twice_is_an_error() -> None:
    with pytest.raises(OptionError, match="twice"):
        sink_columns([("a", "long"), ("a", "long")], options())


def test_schema_for_bytes_is_an_error() -> None:
    with pytest.raises(OptionError, match="needs no schema"):
        columns_of({"value": "binary"}, value_schema=ValueSchema.JSON)


def test_ordered_by_needs_a_plain_column_that_is_there() -> None:
    with pytest.raises(OptionError, match="orderedBy names x"):
        columns_of({"value": "string"}, ordered_by=("x",))
    with pytest.raises(OptionError, match="has no order"):
        columns_of({"value": "string", "__properties": MAP}, ordered_by=("__properties",))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"key": "binary", "value": "binary"}, "key: rename it to __key"),
        ({"key": "string", "value": "string", "headers": {"type": "array"}}, "headers: make it __properties"),
        ({"topic": "string", "value": "binary", "partition": "integer"}, "partition: rename it to __partition"),
        (
            {"timestamp": "timestamp", "value": "binary", "offset": "long"},
            "timestamp: rename it to __eventTime; offset",
        ),
    ],
)
def test_columns_of_kafkas_sink_are_an_error_that_says_what_to_rename(fields: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        columns_of(fields)


def test_columns_named_like_kafkas_are_a_record_where_the_schema_or_another_column_says_so() -> None:
    fields: dict[str, object] = {"key": "string", "value": "string"}
    assert columns_of(fields, value_schema=ValueSchema.JSON).schema is ValueSchema.JSON
    assert columns_of({**fields, "amount": "long"}).values == ("key", "value", "amount")
    assert columns_of({"key": "string", "value": "long"}).schema is ValueSchema.AVRO
