"""Subscriptions and policies that both kinds of topic share."""

from __future__ import annotations

from itertools import pairwise

import pytest

from geminga.broker.publishing.producers import TOLD_A_TURN
from geminga.broker.topic.base import CLOSED_A_TURN
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.errors import ConflictError, SubscriptionNotFoundError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker
from support.worlds.policy_levels import seconds, set_namespace, set_topic

TOPICS = [TOPIC, "non-persistent://public/default/topic"]


@pytest.mark.parametrize("text", TOPICS)
def test_subscriptions_are_created_once_and_deleted(text: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(TopicName.parse(text), create=True)
        await topic.create_subscription("s", EARLIEST)
        await topic.ensure_subscription("s", EARLIEST)
        with pytest.raises(ConflictError):
            await topic.create_subscription("s", EARLIEST)
        await topic.delete_subscription("s")
        with pytest.raises(SubscriptionNotFoundError):
            await topic.delete_subscription("s")
        assert dict(topic.subscriptions) == {}
        assert not topic.is_in_use

    run_with_broker(scenario)


def subscribe_command(sub_type: int, subscription: str = "s") -> pb.BaseCommand:
    request = pb.CommandSubscribe(topic=TOPIC, subscription=subscription, subType=sub_type, consumer_id=1, request_id=1)
    return pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request)


@pytest.mark.parametrize("text", TOPICS)
def test_many_subscriptions_begin_to_close_in_several_turns(text: str) -> None:
    count = 2 * CLOSED_A_TURN + 3

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for index in range(count):
            command = subscribe_command(pb.CommandSubscribe.Shared, f"s{index}")
            command.subscribe.topic, command.subscribe.consumer_id = text, index
            client.send(command)
            await client.expect(Type.SUCCESS)
        topic = await world.broker.registry.get(TopicName.parse(text), create=False)
        used: list[int] = []

        async def look() -> None:
            while not used or used[-1]:
                used.append(sum(bool(subscription.consumers) for subscription in topic.subscriptions.values()))
                await next_turn()

        looking = spawn(look(), name="look")
        await world.broker.registry.unload(topic.name)
        await looking
        left = [before - now for before, now in pairwise(used) if before > now]
        assert left == [CLOSED_A_TURN, CLOSED_A_TURN, 3]

    run_with_broker(scenario)


MANY = 2 * TOLD_A_TURN + 3


async def end(world: BrokerWorld, way: str) -> None:
    topic, registry = world.topic, world.broker.registry
    if way == "unload":
        await registry.unload(topic.name)
    elif way == "terminate":
        await registry.terminate(topic.name)
    elif way == "encryption":
        await set_namespace(world, "encryption_required", True)
    else:
        quotas = {"destination_storage": {"limitSize": 1, "policy": "producer_exception"}}
        await set_topic(world, "backLogQuotaMap", quotas)


@pytest.mark.parametrize("way", ["unload", "terminate", "encryption", "quota"])
def test_many_producers_are_told_to_go_in_several_turns_and_what_they_send_meanwhile_is_not_stored(way: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for number in range(1, MANY + 1):
            await client.create_producer(producer_id=number)
        topic = world.topic
        await topic.create_subscription("keeper", EARLIEST)
        await client.publish(0)
        present: list[int] = []

        async def look() -> None:
            while not present or present[-1]:
                present.append(len(topic.producers))
                if 0 < present[-1] < MANY and client.connection.members.producers.get(MANY):
                    client.send_message(len(present), producer_id=MANY)
                await next_turn()

        looking = spawn(look(), name="look")
        await end(world, way)
        await looking
        assert [before - now for before, now in pairwise(present) if before > now] == [TOLD_A_TURN, TOLD_A_TURN, 3]
        told = [
            command.close_producer.producer_id for command, _ in client.received if command.type == Type.CLOSE_PRODUCER
        ]
        assert sorted(told) == list(range(1, MANY + 1))
        topic = await world.broker.registry.get(topic.name, create=False)
        await seconds(1)
        assert isinstance(topic, PersistentTopic)
        assert topic.ledger.ledgers.entry_count == 1

    run_with_broker(scenario)


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
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=True)
        await topic.create_subscription("s", EARLIEST)
        client.send(subscribe_command(pb.CommandSubscribe.Exclusive))
        await client.expect(Type.SUCCESS)

    run_with_broker(scenario, allow_auto_subscription_creation=False)


async def subscribe_code(world: BrokerWorld, topic: str, subscription: str) -> int:
    """Error code of a new consumer on a connection of its own; -1: it was let in."""
    client = await world.client()
    request = pb.CommandSubscribe(
        topic=topic, subscription=subscription, subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1
    )
    client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
    await client.wait_for_news()
    command, _ = client.received.popleft()
    return command.error.error if command.type == Type.ERROR else -1


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_burst_of_subscriptions_makes_no_more_than_there_may_be(topic: str, is_durable: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(topic)
        await client.publish(0)
        for number in range(10):
            request = pb.CommandSubscribe(
                topic=topic,
                subscription=f"{number}",
                consumer_id=number,
                request_id=100 + number,
                subType=pb.CommandSubscribe.Exclusive,
                durable=is_durable,
                # Where it begins is looked for first, which takes a while.
                start_message_rollback_duration_sec=1,
            )
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        await seconds(5)
        answers = [command for command, _ in client.received]
        refused = [command.error.error for command in answers if command.type == Type.ERROR]
        assert refused == [pb.NotAllowedError] * 7
        assert sum(command.type == Type.SUCCESS for command in answers) == 3
        assert len(world.broker.topics[topic].subscriptions) == 3

    run_with_broker(scenario, max_subscriptions_per_topic=3)


def test_subscriptions_that_are_stored_and_those_of_readers_are_no_more_than_there_may_be() -> None:
    """A reader's is there at once, while a cursor is being made that found room."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        world.metadata.faults.delay_ms_max = 20
        for number in range(6):
            request = pb.CommandSubscribe(
                topic=TOPIC,
                subscription=f"{number}",
                consumer_id=number,
                request_id=100 + number,
                subType=pb.CommandSubscribe.Exclusive,
                durable=number % 2 == 0,
            )
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        await seconds(5)
        answers = [command for command, _ in client.received]
        assert sum(command.type == Type.SUCCESS for command in answers) == 3
        assert sum(command.type == Type.ERROR for command in answers) == 3
        assert len(world.broker.topics[TOPIC].subscriptions) == 3

    run_with_broker(scenario, max_subscriptions_per_topic=3)


@pytest.mark.parametrize("topic", TOPICS)
def test_of_a_reader_that_is_refused_nothing_stays(topic: str) -> None:
    """Its subscription was there until the topic was unloaded: one more for each name, and the topic never went."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(topic)
        request = pb.CommandSubscribe(
            topic=topic,
            subscription="reader",
            consumer_id=1,
            request_id=7,
            subType=pb.CommandSubscribe.Key_Shared,
            durable=False,
            keySharedMeta=pb.KeySharedMeta(keySharedMode=pb.STICKY),  # without ranges of keys
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        await client.expect(Type.ERROR)
        assert not world.broker.topics[topic].subscriptions

    run_with_broker(scenario)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_consumer_that_was_closed_while_it_was_made_does_not_take_the_place_of_the_next_of_its_id(topic: str) -> None:
    """The next one was in its subscription, and not on its connection: it got nothing, and never left."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(topic)
        await client.subscribe(topic, consumer_id=2, subType=pb.CommandSubscribe.Shared)
        world.metadata.faults.delay_ms_max = 20
        for number, name in enumerate((f"{topic}-that-is-loaded", topic), 1):
            request = pb.CommandSubscribe(
                topic=name,
                subscription="sub",
                consumer_id=1,
                request_id=100 + number,
                subType=pb.CommandSubscribe.Shared,
            )
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
            if number == 1:
                closing = pb.CommandCloseConsumer(consumer_id=1, request_id=100)
                client.send(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=closing))
        await seconds(5)
        subscription = world.broker.topics[topic].subscriptions["sub"]
        assert client.connection.members.consumers[1] in subscription.consumers
        client.lose()
        await seconds(1)
        assert not subscription.consumers
        assert not world.broker.topics[f"{topic}-that-is-loaded"].is_in_use

    run_with_broker(scenario)


def test_a_subscription_whose_name_a_reader_took_while_it_was_stored_is_refused() -> None:
    """Its consumer joined the reader's, which stores no acknowledgment, and its cursor held the topic for nobody."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        world.metadata.faults.delay_ms_max = 20
        for number, is_durable in enumerate((True, False), 1):
            request = pb.CommandSubscribe(
                topic=TOPIC,
                subscription="one",
                consumer_id=number,
                request_id=100 + number,
                subType=pb.CommandSubscribe.Shared,
                durable=is_durable,
            )
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        assert (await client.error()).request_id == 101
        topic = world.topic
        assert not topic.subscriptions["one"].is_durable
        assert not topic.ledger.cursors
        assert not await world.metadata.children(f"/managed-ledgers/{topic.ledger.name}")

    run_with_broker(scenario)


@pytest.mark.parametrize("topic", TOPICS)
def test_policies_of_the_namespace_limit_producers_consumers_and_subscriptions(topic: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        async def set_policies(**policies: int | None) -> None:
            await world.resources.namespaces.update("public/default", lambda document: {**document, **policies})
            await world.broker.policies_changed("public/default")

        first, second = await world.client(), await world.client()
        await first.create_producer(topic)
        await set_policies(max_producers_per_topic=1)
        second.request_producer(topic)
        error = await second.error()
        assert (error.error, error.message) == (pb.ProducerBusy, "Topic reached max producers limit")
        # 0 in the namespace is no limit, whatever the broker's own setting.
        await set_policies(max_producers_per_topic=0)
        await second.create_producer(topic, producer_id=2)

        await set_policies(max_consumers_per_subscription=2)
        assert [await subscribe_code(world, topic, "a") for _ in range(3)] == [-1, -1, pb.ConsumerBusy]
        await set_policies(max_subscriptions_per_topic=2)
        codes = [await subscribe_code(world, topic, name) for name in ("b", "c", "b")]
        assert codes == [-1, pb.NotAllowedError, -1]
        await set_policies(max_consumers_per_topic=4)
        assert await subscribe_code(world, topic, "b") == pb.ConsumerBusy
        await set_policies(max_consumers_per_topic=None, max_consumers_per_subscription=3)
        assert await subscribe_code(world, topic, "b") == -1
        # A topic loaded now knows them too.
        other = topic + "-other"
        for name, code in (("a", -1), ("b", -1), ("c", pb.NotAllowedError)):
            assert await subscribe_code(world, other, name) == code

    run_with_broker(scenario, producers_per_topic_max=1)
