"""The part of delayed delivery: it holds nothing until somebody can be made to wait."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import LONG_MAX
from geminga.broker.subscription import seek
from geminga.broker.topic.delays import DelayedDelivery, delays_stats
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import set_namespace, topic_of
from support.worlds.subscriptions import settle
from unit.broker.topic.test_delayed_snapshots import publish_delayed, shared, texts


def test_index_is_made_for_the_first_shared_consumer_and_not_when_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        part = topic.parts.find(DelayedDelivery)
        assert part is not None
        assert part.stats() == {}
        client = await world.subscriber(subscription="one")
        assert part.stats() == {}
        await client.subscribe(subscription="many", consumer_id=2, subType=pb.CommandSubscribe.Shared)
        assert part.stats()["readers"] == 1
        assert part.delays() is topic.delays()
        await set_namespace(world, "delayed_delivery_policies", {"active": False, "tickTime": 1000})
        assert topic.delays() is None

    run_with_broker(scenario)


@pytest.mark.parametrize("how", ["skipped", "skipped by the last", "deleted"])
def test_what_nobody_will_read_leaves_the_index_though_nobody_consumes(how: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await shared(world)
        topic = await topic_of(world)
        (mine,) = topic.subscriptions.values()
        other = await topic.create_subscription("other", topic.last_position) if how == "skipped by the last" else None
        await publish_delayed(world, 100, 86_400_000)
        client.lose()
        await settle(1)
        assert delays_stats(topic)["entries"] == 100
        if how == "deleted":
            await topic.delete_subscription(mine.name)
        else:
            await seek.clear_backlog(mine)
        if other is not None:
            assert delays_stats(topic)["entries"] == 100
            await seek.clear_backlog(other)
        assert delays_stats(topic)["entries"] == 0

    run_with_broker(scenario, keep_alive_interval_s=100_000)


@pytest.mark.parametrize("tick_ms", [1 << 48, LONG_MAX])
def test_a_tick_of_any_length_lets_the_topic_load(tick_ms: int) -> None:
    """The REST takes whatever is a ``long``, and Apache's brokers stored what they were given."""

    async def scenario(world: BrokerWorld) -> None:
        await set_namespace(world, "delayed_delivery_policies", {"active": True, "tickTime": tick_ms})
        client = await shared(world)
        await publish_delayed(world, 10, 86_400_000)
        assert delays_stats(await topic_of(world))["entries"] == 10
        assert texts(client) == []

    run_with_broker(scenario, keep_alive_interval_s=100_000)
