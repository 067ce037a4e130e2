"""Policy events that Apache's broker wrote: encoded again to the same bytes, and edited without losing anything."""

from __future__ import annotations

import base64
import io
import json

import fastavro
import pytest

from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.system_topics import events
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult
from geminga.model.topic_name import TopicName
from geminga.wire.pulsar.metadata import split_entry
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.house.source_tree import ROOT
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly, seconds, set_topic

SAMPLES = ROOT / "tests" / "samples"
RECORDED = [
    base64.b64decode(entry)
    for entry in json.loads((SAMPLES / "policy-events-4.2.4.json").read_text(encoding="utf-8"))["entries"]
]
SCHEMA = (SAMPLES / "pulsar-event-schema-4.2.4.json").read_bytes().strip()
NAMESPACE = "public/policy-events"
EVENTS = TopicName.parse(f"persistent://{NAMESPACE}/__change_events")
ONE, TWO = (TopicName.parse(f"persistent://{NAMESPACE}/{name}") for name in ("one", "two"))


def payload_of(entry: bytes) -> bytes:
    return entry[split_entry(entry)[1] :]


def event_of(payload: bytes) -> dict:
    event = fastavro.schemaless_reader(io.BytesIO(payload), events.parse(SCHEMA), None)
    assert isinstance(event, dict)
    return event


@pytest.mark.parametrize("entry", RECORDED)
def test_an_event_is_encoded_again_to_the_same_bytes(entry: bytes) -> None:
    payload = payload_of(entry)
    found = events.decode(payload, events.schema_of(SCHEMA))
    assert found is not None
    metadata, _ = split_entry(entry)
    assert metadata is not None
    assert events.event_key(found.name, is_global=found.is_global) == metadata.partition_key
    schema, clusters = events.schema_to_write(found.kept), events.clusters_of(found.kept)
    assert schema.definition == SCHEMA
    assert events.encode_update(found.name, found.policies, found.kept, schema, clusters) == payload


def test_an_edit_changes_its_policy_and_nothing_else_of_the_message() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.namespaces.create(NAMESPACE, {})
        topic = await world.broker.registry.get(EVENTS, create=True)
        assert isinstance(topic, PersistentTopic)
        info = SchemaInfo("PulsarEvent", SchemaType.AVRO, SCHEMA)
        registry = world.broker.schemas.registry
        assert await registry.put_if_absent(schema_id_of(EVENTS), info, Strategy.ALWAYS_COMPATIBLE) == 0
        results: list[AppendResult] = []
        topic.ledger.append(RECORDED, results.append)
        while not results:
            await seconds(0.01)
        assert results[0].error is None
        await world.restart()
        await set_topic(world, "maxConsumerPerTopic", 77, ONE)
        await set_topic(world, "maxProducerPerTopic", None, ONE)
        found = await world.broker.policies.topics.get(TWO)
        assert found is not None
        assert found.for_all["maxConsumerPerTopic"] == 2

        topic = await world.broker.registry.get(EVENTS, create=False)
        assert isinstance(topic, PersistentTopic)
        *_, newest = await topic.ledger.reader.read_range(topic.ledger.ledgers.first_position, 10, 1 << 20)
        before, _ = split_entry(RECORDED[0])
        after, offset = split_entry(newest.data)
        assert before is not None
        assert after is not None
        assert after.partition_key == before.partition_key
        assert after.schema_version == before.schema_version
        # Which clusters may have it: Pulsar's own policies of a cluster stay there.
        assert list(after.replicate_to) == list(before.replicate_to) == ["standalone"]
        expected = event_of(payload_of(RECORDED[0]))
        expected["topicPoliciesEvent"]["policies"] |= {"maxConsumerPerTopic": 77, "maxProducerPerTopic": None}
        assert event_of(newest.data[offset:]) == expected

    run_quietly(scenario)
