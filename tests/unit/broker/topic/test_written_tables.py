"""What others publish in a topic in which this broker keeps a table is known when it is asked."""

from __future__ import annotations

import pytest

from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.system_topics import events, table
from geminga.broker.topic.written_tables import WrittenTable
from geminga.model.topic_name import TopicName
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, encode_version
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import NAME, NAMESPACE, seconds, set_topic, topic_of

EVENTS = TopicName.parse(f"persistent://{NAMESPACE}/__change_events")


async def published(world: BrokerWorld, *, ttl: int, is_connected: bool) -> None:
    """As a broker of another make does it, which has a receipt when this returns."""
    info = SchemaInfo("PulsarEvent", SchemaType.AVRO, events.SCHEMA)
    registry = world.broker.schemas.registry
    version = await registry.put_if_absent(schema_id_of(EVENTS), info, Strategy.ALWAYS_COMPATIBLE)
    client = await world.publisher(str(EVENTS))
    metadata = {"partition_key": str(NAME), "schema_version": encode_version(version)}
    client.send_message(0, events.encode_update(NAME, {"messageTTLInSeconds": ttl}), metadata=metadata)
    await client.receipt()
    if not is_connected:
        client.lose()


async def ttl_of(world: BrokerWorld) -> object:
    found = await world.broker.policies.topics.get(NAME)
    return None if found is None else found.document.get("messageTTLInSeconds")


async def check_ttl_lasts(world: BrokerWorld, ttl: int) -> None:
    """It is that now, and after a restart."""
    assert await ttl_of(world) == ttl
    await world.restart()
    assert await ttl_of(world) == ttl


@pytest.mark.parametrize("is_first", [True, False])
def test_event_that_another_broker_published_holds_at_once_and_loaded_topics_follow(is_first: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        if not is_first:
            await set_topic(world, "messageTTLInSeconds", 5)
        await published(world, ttl=7, is_connected=True)
        assert await ttl_of(world) == 7
        await seconds(1)
        assert topic.rules.ttl_ms == 7000
        # A change here begins with what that one left.
        await set_topic(world, "maxProducerPerTopic", 2)
        await check_ttl_lasts(world, 7)

    run_with_broker(scenario)


def test_event_is_heard_of_though_the_topic_was_unloaded_between() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_topic(world, "messageTTLInSeconds", 5)
        await world.broker.registry.unload(EVENTS)
        await published(world, ttl=8, is_connected=False)
        await seconds(1)
        assert topic.rules.ttl_ms == 8000

    run_with_broker(scenario)


def test_live_events_are_not_written_again_behind_one_that_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        monkeypatch.setattr(table, "SUPERSEDED_MAX", 0)
        await topic_of(world)
        for ttl in range(1, 4):
            await set_topic(world, "messageTTLInSeconds", ttl)
            await published(world, ttl=10 + ttl, is_connected=False)
        await check_ttl_lasts(world, 13)

    run_with_broker(scenario)


def test_other_topics_have_no_such_part() -> None:
    async def scenario(world: BrokerWorld) -> None:
        assert (await topic_of(world)).parts.find(WrittenTable) is None
        await set_topic(world, "messageTTLInSeconds", 5)
        assert (await world.broker.registry.get(EVENTS, create=False)).parts.find(WrittenTable) is not None

    run_with_broker(scenario)
