"""Events on the wire: as Pulsar's brokers write and read them."""

from __future__ import annotations

import io
import json
from hashlib import sha256

import fastavro
import pytest

from geminga.broker.synchronization.core.events import (
    REPLACES,
    SCHEMA,
    TIME_MS_MAX,
    SyncEvent,
    event_of,
    fields_of,
    properties_of,
    sender_of,
)
from geminga.broker.synchronization.core.stamps import Stamp

PATH = "/admin/policies/public/default"
APACHE = {
    "path": PATH,
    "value": b"{}",
    "options": [],
    "expectedVersion": 3,
    "lastUpdatedTimestamp": 7,
    "sourceCluster": "east",
    "type": "Modified",
    "version": 0,
}


def test_schema_has_the_fields_of_pulsars_class_in_their_order() -> None:
    schema = json.loads(SCHEMA)
    assert (schema["namespace"], schema["name"]) == ("org.apache.pulsar.metadata.api", "MetadataEvent")
    assert [field["name"] for field in schema["fields"]] == sorted(APACHE)


def test_what_apache_s_class_writes_is_read() -> None:
    """Bytes of the class of 4.2.4, by Avro's own reflection; its schema is SCHEMA, byte for byte."""
    written = bytes.fromhex("02060e020002222f61646d696e2f706f6c69636965732f61020865617374020202047b7d00")
    fields = fastavro.schemaless_reader(io.BytesIO(written), fastavro.parse_schema(json.loads(SCHEMA)), None)
    assert event_of(fields, {}) == SyncEvent("/admin/policies/a", b"{}", Stamp(7, "east"))
    assert len(SCHEMA) == 830
    assert sha256(SCHEMA.encode()).hexdigest().startswith("a05ec9d8a1938cc0")


@pytest.mark.parametrize(
    "event",
    [
        SyncEvent(PATH, b'{"a":1}', Stamp(12, "east"), replaces=Stamp(11, "we-st"), tells_replaced=True),
        SyncEvent(PATH, b"{}", Stamp(12, "east"), is_first=True, tells_replaced=True),
        SyncEvent(PATH, None, Stamp(12, "east"), tells_replaced=True),
    ],
)
def test_event_is_read_as_it_was_written(event: SyncEvent) -> None:
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, fields_of(event))
    buffer.seek(0)
    assert event_of(fastavro.schemaless_reader(buffer, schema, None), properties_of(event, "west")) == event


def test_event_of_apache_says_nothing_of_what_it_replaces() -> None:
    assert event_of(APACHE, {}) == SyncEvent(PATH, b"{}", Stamp(7, "east"))
    assert event_of({**APACHE, "options": None, "type": "Created"}, {}) == SyncEvent(PATH, b"{}", Stamp(7, "east"))
    assert event_of({**APACHE, "type": "Deleted"}, {REPLACES: "x"}) == SyncEvent(
        PATH, None, Stamp(7, "east"), tells_replaced=True
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path": None}, "no path"),
        ({"sourceCluster": None}, "cluster"),
        ({"sourceCluster": ""}, "cluster"),
        ({"sourceCluster": "a\nb"}, "cluster"),
        ({"sourceCluster": "a@b"}, "cluster"),
        ({"sourceCluster": "x" * 201}, "cluster"),
        ({"options": ["Ephemeral"]}, "session"),
        ({"type": "ChildrenChanged"}, "type ChildrenChanged"),
        ({"type": None}, "type None"),
        ({"lastUpdatedTimestamp": 0}, "no time"),
        ({"lastUpdatedTimestamp": TIME_MS_MAX}, "no time"),
        ({"value": None}, "no value"),
        ({"value": b""}, "no value"),
    ],
)
def test_what_is_no_event_is_told(change: dict[str, object], why: str) -> None:
    found = event_of({**APACHE, **change}, {})
    assert isinstance(found, str)
    assert why in found


def test_sender_is_told_where_it_tells_of_another_cluster_s_change() -> None:
    event = SyncEvent(PATH, b"{}", Stamp(7, "east"))
    assert sender_of(event, {}) == "east"
    assert sender_of(event, properties_of(event, "west")) == "west"
