"""Policies of a topic for all clusters: beside its own, counting less, and the only ones that leave the cluster."""

from __future__ import annotations

import pytest

from geminga.broker.system_topics import events, table
from geminga.broker.system_topics.table import message_of
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.schema_info import encode_version
from support.worlds.broker_world import TOPIC, BrokerWorld
from support.worlds.other_cluster import join, replicate
from support.worlds.policy_levels import NAME, NAMESPACE, run_quietly, seconds, set_topic, topic_of

EVENTS = TopicName.parse(f"persistent://{NAMESPACE}/__change_events")
TTL = "messageTTLInSeconds"


async def set_for_all(world: BrokerWorld, key: str, value: object) -> None:
    await world.broker.policies.topics.update(NAME, lambda before: {**before, key: value}, is_global=True)


async def kept(world: BrokerWorld) -> tuple[dict[str, object], dict[str, object]]:
    found = await world.broker.policies.topics.get(NAME)
    return ({}, {}) if found is None else (dict(found.document), dict(found.for_all))


def test_they_count_less_than_the_topic_s_own_and_more_than_the_namespace_s() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await world.resources.namespaces.set_policy(NAMESPACE, "message_ttl_in_seconds", 1)
        await world.broker.policies_changed(NAMESPACE)
        await set_for_all(world, TTL, 2)
        assert topic.rules.ttl_ms == 2000
        await set_topic(world, TTL, 3)
        assert topic.rules.ttl_ms == 3000
        assert await kept(world) == ({TTL: 3}, {TTL: 2, "isGlobal": True})
        await world.restart()
        assert await kept(world) == ({TTL: 3}, {TTL: 2, "isGlobal": True})
        topic = await topic_of(world)
        await set_topic(world, TTL, None)
        assert topic.rules.ttl_ms == 2000
        await set_for_all(world, TTL, None)
        assert (topic.rules.ttl_ms, await kept(world)) == (1000, ({}, {}))

    run_quietly(scenario)


def test_what_is_for_all_clusters_travels_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Set, changed, removed: travels. 2. The topic's own, written again, deleted with the topic: stays."""
    monkeypatch.setattr(table, "SUPERSEDED_MAX", 5)

    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        await replicate(world, "standalone", "west")
        await topic_of(world)
        await set_topic(world, TTL, 3)
        for value in (4, 5, None):
            await set_for_all(world, TTL, value)
        await seconds(1)
        texts = [(metadata.partition_key, metadata.null_value) for metadata, _ in other.stored]
        key = f"__G__{TOPIC}"
        assert texts == [(key, False), (key, False), (key, True)]
        await set_for_all(world, TTL, 6)
        for value in range(20):
            await set_topic(world, TTL, value)
        await world.broker.registry.delete(NAME)
        await seconds(1)
        assert await kept(world) == ({}, {})
        assert len(other.stored) == 4, "events that were written again, or the end of the topic here, travelled"

    run_quietly(scenario)


def test_events_of_brokers_that_did_not_say_so_stay_too() -> None:
    """Those of older versions name no clusters: copied from the beginning, they would be another cluster's own."""

    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        other.starts_at_earliest = True
        await topic_of(world)
        await set_topic(world, TTL, 3)
        topic = await world.broker.registry.get(EVENTS, create=False)
        metadata = pb.MessageMetadata(producer_name="old", sequence_id=1, publish_time=1, partition_key=TOPIC)
        topic.ledger.append([encode_entry(metadata, events.encode_update(NAME, {TTL: 9}))], lambda result: None)
        await replicate(world, "standalone", "west")
        await set_for_all(world, TTL, 2)
        await seconds(1)
        assert [metadata.partition_key for metadata, _ in other.stored] == [f"__G__{TOPIC}"]

    run_quietly(scenario)


def test_what_came_from_another_cluster_holds_and_does_not_go_back() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        await replicate(world, "standalone", "west")
        topic = await topic_of(world)
        await set_for_all(world, TTL, 2)
        await seconds(1)
        metadata, payload = other.stored.pop()
        assert message_of(encode_entry(metadata, payload), EARLIEST) is not None
        await set_for_all(world, TTL, None)
        await seconds(1)
        other.stored.clear()
        client = await world.publisher(str(EVENTS))
        fields = {"replicated_from": "west", "partition_key": metadata.partition_key}
        client.send_message(0, payload, metadata={**fields, "schema_version": encode_version(0)})
        await client.receipt()
        await seconds(1)
        assert (topic.rules.ttl_ms, other.stored) == (2000, [])
        assert await kept(world) == ({}, {TTL: 2, "isGlobal": True})
        client.send_message(1, b"", metadata={**fields, "null_value": True})
        await client.receipt()
        await seconds(1)
        assert (topic.rules.ttl_ms, await kept(world)) == (0, ({}, {}))

    run_quietly(scenario)
