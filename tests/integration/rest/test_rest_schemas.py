"""Schemas by REST (geminga.broker.rest.topic_routes.schemas), over real HTTP, and as the official client sees them."""

from __future__ import annotations

import json
import struct

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


class First(Record):
    a = Integer()


class Second(Record):
    a = Integer()
    b = String(required_default=True)


class Unfit(Record):
    a = String(required=True)


def payload(kind: str, definition: object, **properties: str) -> dict[str, object]:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return {"type": kind, "schema": text, "properties": properties}


def test_schemas_of_a_topic_are_added_compared_and_read(rest: Rest, namespace: str) -> None:
    topic = f"schemas/{namespace}/topic"
    assert rest.get(f"{topic}/schema").status == 404
    answer = rest.post(f"{topic}/schema", payload("AVRO", First.schema(), p="q"))
    assert (answer.status, answer.json) == (200, {"version": {"version": 0}})
    assert rest.post(f"{topic}/schema", payload("AVRO", First.schema())).json == {"version": {"version": 0}}
    assert rest.post(f"{topic}/schema", payload("AVRO", Second.schema())).json == {"version": {"version": 1}}

    newest = rest.get(f"{topic}/schema").json
    assert (newest["version"], newest["type"], newest["properties"]) == (1, "AVRO", {})
    assert json.loads(newest["data"]) == Second.schema()
    assert newest["timestamp"] > 0
    first = rest.get(f"{topic}/schema/0").json
    assert (first["version"], first["properties"], json.loads(first["data"])) == (0, {"p": "q"}, First.schema())
    assert rest.get(f"{topic}/schema/2").status == 404
    assert rest.get(f"{topic}/schema/x").status == 404
    every = rest.get(f"{topic}/schemas").json["getSchemaResponses"]
    assert [item["version"] for item in every] == [0, 1]

    assert rest.post(f"{topic}/version", payload("AVRO", Second.schema())).json == {"version": 1}
    assert rest.post(f"{topic}/version", payload("AVRO", Unfit.schema())).json == {"version": -1}
    fits = rest.post(f"{topic}/compatibility", payload("AVRO", First.schema()))
    assert fits.json == {"compatibility": True, "schemaCompatibilityStrategy": "FULL"}


def test_what_does_not_fit_is_refused_with_its_reason(rest: Rest, namespace: str) -> None:
    topic = f"schemas/{namespace}/topic"
    rest.post(f"{topic}/schema", payload("AVRO", First.schema()))
    for path in ("schema", "compatibility"):
        answer = rest.post(f"{topic}/{path}", payload("AVRO", Unfit.schema()))
        assert answer.status == 409
        assert "a: " in answer.reason
    assert rest.post(f"{topic}/schema", payload("AVRO", "{")).status == 422
    assert rest.post(f"{topic}/schema", payload("NOVEL", "")).status == 400
    assert rest.post(f"{topic}/schema", {"type": "AVRO", "schema": 7}).status == 422
    assert rest.post(f"{topic}/schema", {"type": "STRING", "properties": {"a": 1}}).status == 400  # no definition
    assert rest.get("schemas/public/no-such-namespace/topic/schema").status == 404
    assert rest.get("schemas/pub%20lic/x/topic/schema").status == 412


def test_deletion_leaves_a_mark_or_nothing(rest: Rest, namespace: str) -> None:
    topic = f"schemas/{namespace}/topic"
    assert rest.delete(f"{topic}/schema").json == {"version": -1}
    rest.post(f"{topic}/schema", payload("AVRO", First.schema()))
    assert rest.delete(f"{topic}/schema").json == {"version": 1}
    assert rest.get(f"{topic}/schema").status == 404
    assert rest.get(f"{topic}/schema/1").status == 404
    assert rest.get(f"{topic}/schema/0").reason == "Schema not found"
    assert rest.post(f"{topic}/schema", payload("STRING", "")).json == {"version": {"version": 2}}
    assert rest.delete(f"{topic}/schema?force=true").json == {"version": -1}
    assert rest.get(f"{topic}/schemas").json == {"getSchemaResponses": []}
    assert rest.post(f"{topic}/schema", payload("STRING", "")).json == {"version": {"version": 0}}


def test_key_value_schemas_are_json_in_bodies(rest: Rest, namespace: str) -> None:
    topic = f"schemas/{namespace}/topic"
    properties = {"kv.encoding.type": "SEPARATED", "key.schema.type": "STRING", "value.schema.type": "AVRO"}
    body = payload("KEY_VALUE", {"key": "", "value": First.schema()}, **properties)
    assert rest.post(f"{topic}/schema", body).json == {"version": {"version": 0}}
    found = rest.get(f"{topic}/schema").json
    assert json.loads(found["data"]) == {"key": "", "value": First.schema()}
    assert found["properties"] == properties
    assert rest.post(f"{topic}/schema", payload("KEY_VALUE", "[]", **properties)).status == 422
    # Half of a character, in a text of the text that is JSON.
    half = json.dumps({"key": "\ud800", "value": First.schema()})
    assert rest.post(f"{topic}/schema", payload("KEY_VALUE", half, **properties)).status == 422


def test_metadata_say_which_entries_hold_the_versions(rest: Rest, namespace: str) -> None:
    path = f"schemas/{namespace}/topic/metadata"
    nothing = rest.get(path)
    assert (nothing.status, nothing.body) == (200, b"")
    for schema in (First, Second):
        rest.post(f"schemas/{namespace}/topic/schema", payload("AVRO", schema.schema()))
    found = rest.get(path).json
    assert [entry["version"] for entry in found["index"]] == [0, 1]
    assert found["info"] == found["index"][1]
    rest.put(f"persistent/{namespace}/topic")
    ledgers = rest.get(f"persistent/{namespace}/topic/internalStats").json["schemaLedgers"]
    assert [entry["ledgerId"] for entry in found["index"]] == [ledger["ledgerId"] for ledger in ledgers]
    # The mark of a deletion is a version, too.
    rest.delete(f"schemas/{namespace}/topic/schema")
    assert rest.get(path).json["info"]["version"] == 2
    rest.delete(f"schemas/{namespace}/topic/schema?force=true")
    assert rest.get(path).body == b""


def test_older_name_of_the_strategy_holds_where_the_present_one_is_not_set(rest: Rest, namespace: str) -> None:
    topic, older = f"schemas/{namespace}/topic", f"namespaces/{namespace}/schemaAutoUpdateCompatibilityStrategy"
    rest.post(f"{topic}/schema", payload("AVRO", First.schema()))
    unfit = payload("AVRO", Unfit.schema())
    assert rest.get(older).status == 204
    assert rest.post(f"{topic}/compatibility", unfit).status == 409
    assert rest.put(older, "AlwaysCompatible").status == 204
    assert rest.get(older).json == "AlwaysCompatible"
    assert rest.post(f"{topic}/compatibility", unfit).json["schemaCompatibilityStrategy"] == "ALWAYS_COMPATIBLE"
    assert rest.get(f"namespaces/{namespace}/schemaCompatibilityStrategy").json == "UNDEFINED"
    assert rest.put(f"namespaces/{namespace}/schemaCompatibilityStrategy", "FULL").status == 204
    assert rest.post(f"{topic}/compatibility", unfit).status == 409
    assert rest.put(f"namespaces/{namespace}/schemaCompatibilityStrategy", "UNDEFINED").status == 204
    assert rest.post(f"{topic}/compatibility", unfit).status == 202
    for value in ("FULL", "full", "", 1, ["Full"], {}):
        refused = rest.put(older, value)
        assert (refused.status, "AlwaysCompatible" in refused.reason) == (400, True), value
    assert rest.get(older).json == "AlwaysCompatible"
    assert rest.delete(older).status == 204
    assert rest.get(older).status == 204
    assert rest.post(f"{topic}/compatibility", unfit).status == 409


def test_partitions_show_their_topics_schemas(rest: Rest, namespace: str) -> None:
    assert rest.put(f"persistent/{namespace}/parts/partitions", 2).status == 204
    rest.post(f"schemas/{namespace}/parts/schema", payload("STRING", ""))
    assert rest.get(f"schemas/{namespace}/parts-partition-1/schema").json["type"] == "STRING"
    assert rest.delete(f"persistent/{namespace}/parts/partitions").status == 204
    assert rest.get(f"schemas/{namespace}/parts/schema").status == 404


def test_namespaces_have_schema_policies(rest: Rest, namespace: str) -> None:
    base = f"namespaces/{namespace}"
    assert rest.get(f"{base}/schemaCompatibilityStrategy").json == "UNDEFINED"
    assert rest.put(f"{base}/schemaCompatibilityStrategy", "FORWARD").status == 204
    assert rest.get(f"{base}/schemaCompatibilityStrategy").json == "FORWARD"
    assert rest.put(f"{base}/schemaCompatibilityStrategy", "SIDEWAYS").status == 400
    assert rest.get(f"{base}/schemaValidationEnforced").json is False
    assert rest.post(f"{base}/schemaValidationEnforced", True).status == 204
    assert rest.get(f"{base}/schemaValidationEnforced").json is True
    assert rest.get(f"{base}/isAllowAutoUpdateSchema").json is True
    assert rest.post(f"{base}/isAllowAutoUpdateSchema", False).status == 204
    assert rest.get(f"{base}/isAllowAutoUpdateSchema").json is False
    with_replicator = "is_allow_auto_update_schema_with_replicator"
    assert with_replicator not in rest.get(base).json
    for value, query, expected in ((False, "=true", True), (False, "", True), (False, "=No", False)):
        said = f"?allowAutoUpdateSchemaWithReplicator{query}" if query else ""
        assert rest.post(f"{base}/isAllowAutoUpdateSchema{said}", value).status == 204
        assert rest.get(base).json[with_replicator] is expected
    answer = rest.post(f"{base}/isAllowAutoUpdateSchema?allowAutoUpdateSchemaWithReplicator=false", True)
    assert (answer.status, answer.reason) == (
        400,
        "Can not enable for all producers but denies for replicators, which is meaningless",
    )
    assert rest.get(f"{base}/isAllowAutoUpdateSchema").json is False
    answer = rest.post(f"schemas/{namespace}/topic/compatibility", payload("STRING", ""))
    # There is none that it would have to fit.
    assert (answer.status, answer.json["compatibility"]) == (202, True)


def test_what_the_official_client_brings_is_seen(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    name = f"persistent://{namespace}/official"
    client.create_producer(name, schema=AvroSchema(First)).close()
    found = rest.get(f"schemas/{namespace}/official/schema").json
    assert (found["type"], json.loads(found["data"])) == ("AVRO", First.schema())
    ledgers = rest.get(f"persistent/{namespace}/official/internalStats").json["schemaLedgers"]
    assert [ledger["entries"] for ledger in ledgers] == [1]
    with pytest.raises(pulsar.PulsarException, match="IncompatibleSchema"):
        client.create_producer(name, schema=JsonSchema(First))
    with pytest.raises(pulsar.PulsarException, match="IncompatibleSchema"):
        client.create_producer(name, schema=AvroSchema(Unfit))
    with pytest.raises(pulsar.PulsarException, match="IncompatibleSchema"):
        client.subscribe(name, "sub", schema=AvroSchema(Unfit))
    assert rest.delete(f"persistent/{namespace}/official").status == 204
    assert rest.get(f"schemas/{namespace}/official/schema").status == 404


def test_what_is_posted_is_what_the_official_client_gets(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    name = f"persistent://{namespace}/posted"
    rest.post(f"schemas/{namespace}/posted/schema", payload("AVRO", First.schema()))
    producer = client.create_producer(name, schema=AvroSchema(First))
    consumer = client.subscribe(name, "sub", schema=AvroSchema(First))
    producer.send(First(a=7))
    message = consumer.receive(10_000)
    assert message.schema_version().encode() == struct.pack(">q", 0)
    assert message.value().a == 7
