"""Avro types: written as Java writes them, read back, united, and values made to fit."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from geminga.broker.policies.core.avro_types import (
    array,
    enum,
    fitted,
    mapping,
    optional,
    parsed,
    record,
    united,
    written,
)
from geminga.broker.system_topics import events
from geminga.model.errors import CorruptionError
from support.house.source_tree import ROOT

SAMPLE = ROOT / "tests" / "samples" / "pulsar-event-schema-4.2.4.json"
RATE = record("a.b.Rate", {"count": "int", "size": "long"})
OURS = record("a.Event", {"rate": optional(RATE), "other": optional(RATE), "kind": enum("a.Kind", "X", "Y")})
THEIRS = record(
    "a.Event",
    {
        "rate": optional(record("a.b.Rate", {"count": "int", "burst": "double"})),
        "later": optional(mapping(record("a.Later", {"flag": "boolean"}))),
        "kind": enum("a.Kind", "X", "Z"),
    },
)


def test_schema_of_an_event_is_pulsars_byte_for_byte() -> None:
    assert SAMPLE.read_bytes().strip() == events.SCHEMA


def test_what_is_written_can_be_read_back() -> None:
    for kind in (OURS, THEIRS, optional(array("string")), "int"):
        assert written(parsed(written(kind))) == written(kind)
    pulsars = json.loads(events.SCHEMA)
    assert written(parsed(pulsars)) == pulsars


@pytest.mark.parametrize(
    "document",
    [None, 3, "Nowhere", {"type": "record", "name": "R"}, {"type": "record", "name": "R", "fields": [3]}, [{}]],
)
def test_what_is_no_schema_is_refused(document: object) -> None:
    with pytest.raises(CorruptionError):
        parsed(document)


def test_a_type_that_contains_itself_is_read_and_written() -> None:
    tree = {"type": "record", "name": "T", "namespace": "n", "fields": [{"name": "t", "type": ["null", "T"]}]}
    assert written(parsed(tree)) == {
        "type": "record",
        "name": "T",
        "namespace": "n",
        "fields": [{"name": "t", "type": ["null", "T"], "default": None}],
    }
    assert written(united(parsed(tree), parsed(tree))) == written(parsed(tree))


def test_united_holds_what_either_holds() -> None:
    both = united(OURS, THEIRS)
    schema = fastavro.parse_schema(written(both))
    value = {
        "rate": {"count": 1, "size": 2, "burst": 0.5},
        "other": {"count": 3, "size": 4, "burst": 1.5},
        "later": {"k": {"flag": True}},
        "kind": "Z",
    }
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    assert fastavro.schemaless_reader(io.BytesIO(buffer.getvalue()), schema, None) == value
    assert json.dumps(written(both)).count('"Rate"') == 1
    assert united(THEIRS, THEIRS) == THEIRS


def test_types_that_disagree_are_those_of_the_value_at_hand() -> None:
    theirs = record("a.Event", {"rate": optional("string")})
    both = united(OURS, theirs)
    assert both["fields"]["rate"] == optional("string")
    assert set(both["fields"]) == {"rate", "other", "kind"}


def test_values_fit_as_java_would_have_written_them() -> None:
    assert fitted({"rate": {"count": None}, "kind": "X"}, OURS) == {
        "rate": {"count": 0, "size": 0},
        "other": None,
        "kind": "X",
    }
    assert fitted(None, optional(RATE)) is None
    assert fitted([{"count": 1}], array(RATE)) == [{"count": 1, "size": 0}]
