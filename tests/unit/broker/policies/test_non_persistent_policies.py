"""Policies of non-persistent topics: kept with those of the others, in force where they mean something."""

from __future__ import annotations

import pytest

from geminga.broker.policies.core.deletion_rows import INACTIVE_TOPICS
from geminga.broker.topic.non_persistent import NonPersistentTopic
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Client, Type
from support.worlds.policy_levels import run_quietly, set_topic

TOPIC = "non-persistent://public/default/direct"
NAME = TopicName.parse(TOPIC)


async def loaded(world: BrokerWorld) -> NonPersistentTopic:
    topic = await world.broker.registry.get(NAME, create=True)
    assert isinstance(topic, NonPersistentTopic)
    return topic


async def refused(client: Client) -> tuple[int, str]:
    command = await client.expect(Type.ERROR)
    return command.error.error, command.error.message


def test_limits_hold_at_once_and_after_a_restart_and_go_with_the_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await loaded(world)
        for key in ("maxProducerPerTopic", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic"):
            await set_topic(world, key, 1, NAME)
        await set_topic(world, "subscriptionTypesEnabled", ["Shared"], NAME)
        assert topic.limits == (1, 0, 1, 1)
        await world.restart()
        client, other = await world.client(), await world.client()
        await client.create_producer(TOPIC)
        other.request_producer(TOPIC)
        assert (await refused(other))[0] == pb.ProducerBusy
        await client.subscribe(TOPIC, subscription="one", subType=pb.CommandSubscribe.Shared)
        for fields, error in (
            ({"subscription": "one", "subType": pb.CommandSubscribe.Shared}, pb.ConsumerBusy),
            ({"subscription": "two", "subType": pb.CommandSubscribe.Shared}, pb.NotAllowedError),
            ({"subscription": "one", "subType": pb.CommandSubscribe.Exclusive}, pb.NotAllowedError),
        ):
            request = pb.CommandSubscribe(topic=TOPIC, consumer_id=9, request_id=other.next_request_id(), **fields)
            other.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
            assert (await refused(other))[0] == error
        client.lose()
        await world.broker.registry.delete(NAME, force=True)
        assert (await loaded(world)).limits == (0, 0, 0, 0)

    run_quietly(scenario)


def test_rates_sizes_and_idleness_follow_the_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await loaded(world)
        client = await world.publisher(TOPIC)
        await set_topic(world, "publishRate", {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": 0}, NAME)
        assert [throttle.rate.messages for throttle in topic.throttles.publish] == [7]
        await set_topic(world, "publishRate", None, NAME)
        assert topic.throttles.publish == ()
        idle = {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 5,
            "deleteWhileInactive": True,
        }
        await set_topic(world, "inactiveTopicPolicies", idle, NAME)
        assert topic.rules[INACTIVE_TOPICS].after_s == 5

        await set_topic(world, "maxMessageSize", 100, NAME)
        client.send_message(0, b"small")
        client.send_message(1, b"x" * 100)
        client.send_message(2, b"small")
        found = [(await client.expect(kind)) for kind in (Type.SEND_RECEIPT, Type.SEND_ERROR, Type.SEND_RECEIPT)]
        assert found[1].send_error.error == pb.NotAllowedError
        assert [found[0].send_receipt.sequence_id, found[2].send_receipt.sequence_id] == [0, 2]
        assert (topic.publishing.entries_in, topic.publishing.messages_in) == (2, 2)

    run_quietly(scenario)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_topic_of_the_same_name_that_is_stored_has_its_own(is_partitioned: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        name = NAME
        if is_partitioned:
            await world.broker.partitions.create(NAME, 2)
            name = NAME.with_partition(1)
        await set_topic(world, "maxProducerPerTopic", 3, NAME)
        direct = await world.broker.registry.get(name, create=True)
        stored = await world.broker.registry.get(
            TopicName.parse(f"persistent{TOPIC.removeprefix('non-persistent')}"), create=True
        )
        assert (direct.limits.producers, stored.limits.producers) == (3, 0)

    run_quietly(scenario)
