"""Subscriptions and policies that both kinds of topic share."""

from __future__ import annotations

import pytest

from geminga.model.errors import ConflictError, SubscriptionNotFoundError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.broker_world import TOPIC, BrokerWorld, Type, run_with_broker

TOPICS = [TOPIC, "non-persistent://public/default/topic"]


@pytest.mark.parametrize("text", TOPICS)
def test_subscriptions_are_created_once_and_deleted(text: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.get_topic(TopicName.parse(text), create=True)
        await topic.create_subscription("s", EARLIEST)
        await topic.ensure_subscription("s", EARLIEST)
        with pytest.raises(ConflictError):
            await topic.create_subscription("s", EARLIEST)
        await topic.delete_subscription("s")
        with pytest.raises(SubscriptionNotFoundError):
            await topic.delete_subscription("s")
        assert dict(topic.subscriptions) == {}
        assert topic.backlog_count == 0
        assert not topic.is_in_use

    run_with_broker(scenario)


def subscribe_command(sub_type: int, subscription: str = "s") -> pb.BaseCommand:
    request = pb.CommandSubscribe(topic=TOPIC, subscription=subscription, subType=sub_type, consumer_id=1, request_id=1)
    return pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request)


def test_types_of_subscriptions_can_be_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.send(subscribe_command(pb.CommandSubscribe.Shared))
        assert (await client.error()).error == pb.NotAllowedError
        await world.resources.namespaces.set_policy("public/default", "subscription_types_enabled", ["Shared"])
        await world.broker.policies_changed("public/default")
        client.send(subscribe_command(pb.CommandSubscribe.Shared))
        await client.expect(Type.SUCCESS)

    run_with_broker(scenario, subscription_types_enabled=("Exclusive",))


def test_creation_of_subscriptions_on_demand_can_be_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.send(subscribe_command(pb.CommandSubscribe.Exclusive))
        assert (await client.error()).error == pb.SubscriptionNotFound
        client.request_producer(initial_subscription_name="init")
        assert (await client.error()).error == pb.NotAllowedError
        topic = await world.broker.get_topic(TopicName.parse(TOPIC), create=True)
        await topic.create_subscription("s", EARLIEST)
        client.send(subscribe_command(pb.CommandSubscribe.Exclusive))
        await client.expect(Type.SUCCESS)

    run_with_broker(scenario, allow_auto_subscription_creation=False)
