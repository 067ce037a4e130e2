"""Avro definitions from Spark's types, judged by fastavro."""

from __future__ import annotations

import json

import fastavro
import pytest

from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink_rules.record_schema import has_decimal, record_definition


def test_every_type_has_a_definition_that_fastavro_takes() -> None:
    plain = "boolean byte short integer long float double string binary date timestamp timestamp_ntz decimal(10,2)"
    fields = [(f"f{number}", kind, number % 2 == 0) for number, kind in enumerate(plain.split())]
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    fields += [
        ("many", {"type": "array", "elementType": inner, "containsNull": True}, True),
        ("named", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": False}, False),
        ("one", inner, True),
    ]
    parsed = fastavro.parse_schema(json.loads(record_definition(fields)))
    assert [field["name"] for field in parsed["fields"]] == [name for name, _, _ in fields]
    assert parsed["fields"][0]["type"] == ["null", "boolean"]
    assert parsed["fields"][1]["type"] == "int"


def test_records_whose_paths_read_alike_have_names_of_their_own() -> None:
    def struct(name: str, kind: object) -> dict[str, object]:
        return {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]}

    many = {"type": "array", "elementType": struct("z", "long"), "containsNull": True}
    fields = [
        ("a", struct("b", struct("x", "long")), True),
        ("a_b", struct("y", "string"), True),
        ("c", many, True),
        ("c_item", struct("w", "date"), True),
        ("c_item_2", struct("v", "date"), True),
    ]
    definition = json.loads(record_definition(fields))
    fastavro.parse_schema(definition)
    # Of those that came first as they always were: what is registered goes on fitting.
    assert definition["fields"][0]["type"][1]["fields"][0]["type"][1]["name"] == "row_a_b"
    assert definition["fields"][2]["type"][1]["items"][1]["name"] == "row_c_item"
    assert record_definition(fields[:1]) == record_definition(fields)[: len(record_definition(fields[:1])) - 2] + "]}"


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("a-b", "long", "can not be a field"),
        ("a", "interval", "a is interval"),
        ("a", {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True}, "a is map"),
    ],
)
def test_what_a_record_can_not_hold_is_named(name: str, kind: object, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        record_definition([(name, kind, True)])


def test_decimal_is_found_wherever_it_is() -> None:
    assert has_decimal({"type": "array", "elementType": "decimal(1,0)", "containsNull": True})
    assert not has_decimal({"type": "struct", "fields": [{"name": "x", "type": "long"}]})
