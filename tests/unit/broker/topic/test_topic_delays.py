"""The part of delayed delivery: it holds nothing until somebody can be made to wait."""

from __future__ import annotations

from geminga.broker.topic.delays import DelayedDelivery
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import set_namespace, topic_of


def test_index_is_made_for_the_first_shared_consumer_and_not_when_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        part = topic.parts.find(DelayedDelivery)
        assert part is not None
        assert part.stats() == {}
        client = await world.client()
        await client.subscribe(subscription="one")
        assert part.stats() == {}
        await client.subscribe(subscription="many", consumer_id=2, subType=pb.CommandSubscribe.Shared)
        assert part.stats()["readers"] == 1
        assert part.delays() is topic.delays()
        await set_namespace(world, "delayed_delivery_policies", {"active": False, "tickTime": 1000})
        assert topic.delays() is None

    run_with_broker(scenario)
