"""Consumers as they are made: of what they were given, and nothing of them if that goes wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

import geminga.client as gc
from geminga.client._consuming.factory import ConsumerFactory
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.consumer_options import ConsumerOptions
from geminga.model import TopicName
from support.worlds.scripted_broker import run_with_broker

EARLIEST = gc.InitialPosition.Earliest


async def publish(client, topic: str, *payloads: bytes) -> gc.MessageId:
    """The id of the last."""
    async with await client.create_producer(topic, batching_enabled=False) as producer:
        return [await producer.send(payload) for payload in payloads][-1]


def factory_of(client: gc.Client) -> ConsumerFactory:
    found = client.consumers
    assert isinstance(found, ConsumerFactory)
    return found


def test_a_subscribe_that_fails_leaves_nothing_and_one_that_is_closed_neither() -> None:
    async def scenario(client, broker):
        lifetime = factory_of(client).lifetime
        first = await client.subscribe("a", "s")
        with pytest.raises(gc.PulsarException):
            await client.subscribe(["b", "a"], "s")  # exclusive: the first one has it
        assert list(lifetime.others) == [first]
        # Of the topic that could be had nothing is left either.
        async with await client.subscribe("b", "s"):
            assert len(lifetime.others) == 2
        await first.close()
        assert not lifetime.others

    run_with_broker(scenario)


def test_a_topic_that_is_named_twice_is_one() -> None:
    async def scenario(client, broker):
        async with await client.create_producer("a") as producer:
            await producer.send(b"m")
        names = ["a", "persistent://public/default/a"]
        async with await client.subscribe(names, "s", initial_position=EARLIEST) as consumer:
            assert consumer.topics() == ["persistent://public/default/a"]
            assert (await consumer.receive(1000)).data() == b"m"
            with pytest.raises(gc.Timeout):
                await consumer.receive(100)

    run_with_broker(scenario)


@pytest.mark.parametrize(
    ("topic", "name", "error"),
    [
        ([], "s", gc.InvalidConfiguration),
        ("a", "", gc.InvalidConfiguration),
        (re.compile(b"a.*"), "s", gc.InvalidConfiguration),
        (re.compile("tenant/topic"), "s", gc.InvalidTopicName),
    ],
)
def test_what_names_no_topic_or_subscription_is_refused(topic, name: str, error: type[Exception]) -> None:
    async def scenario(client, broker):
        with pytest.raises(error):
            await client.subscribe(topic, name)
        assert not factory_of(client).lifetime.others

    run_with_broker(scenario)


async def drained(consumer: gc.Consumer[bytes]) -> AsyncIterator[gc.Message[bytes]]:
    """Messages until none comes for half a second."""
    while True:
        try:
            yield await consumer.receive(500)
        except gc.Timeout:
            return


@pytest.mark.parametrize("is_retrying", [False, True])
def test_letters_go_to_one_topic_for_all_where_messages_are_put_off_and_to_each_topics_own_else(
    is_retrying: bool,
) -> None:
    async def scenario(client, broker):
        for topic in ("a", "b"):
            async with await client.create_producer(topic) as producer:
                await producer.send(topic.encode())
        async with await client.subscribe(
            ["a", "b"],
            "s",
            consumer_type=gc.ConsumerType.Shared,
            initial_position=EARLIEST,
            negative_ack_redelivery_delay_ms=10,
            retry_enabled=is_retrying,
            dead_letter_policy=gc.ConsumerDeadLetterPolicy(1),
        ) as consumer:
            async for message in drained(consumer):
                if is_retrying:
                    await consumer.reconsume_later(message, 0.01)
                else:
                    await consumer.negative_acknowledge(message)
        found = {}
        for topic in ("a-s-DLQ", "b-s-DLQ"):
            async with await client.subscribe(topic, "look", initial_position=EARLIEST) as letters:
                found[topic] = sorted([message.data() async for message in drained(letters)])
        wanted = [[b"a", b"b"], []] if is_retrying else [[b"a"], [b"b"]]
        assert list(found.values()) == wanted

    run_with_broker(scenario)


def test_a_consumer_without_a_name_has_one() -> None:
    async def scenario(client, broker):
        factory = factory_of(client)
        made = factory._subscription("s", ConsumerOptions(), [], None)
        assert isinstance(made, Subscription)
        assert len(made.consumer_name) == 5
        assert made.dead_letters is None
        assert factory._subscription("s", ConsumerOptions(consumer_name="mine"), [], None).consumer_name == "mine"

    run_with_broker(scenario)


def test_several_partitions_do_not_begin_at_a_message_of_one() -> None:
    """Those whose ledgers are older would begin behind their end, and nothing of them would ever come."""

    async def scenario(client, broker):
        resources = broker.broker.resources
        await resources.create_partitioned_topic(TopicName.parse("t"), 2)
        await resources.create_partitioned_topic(TopicName.parse("t-of-one"), 1)
        await publish(client, "t-partition-0", b"0")
        start = await publish(client, "t-partition-1", b"1")
        refused = "start_message_id=.*: a message of one topic or partition"
        for topics in ("t", ["t-partition-0", "t-partition-1"]):
            with pytest.raises(gc.InvalidConfiguration, match=refused):
                await client.create_reader(topics, start)
        with pytest.raises(gc.InvalidConfiguration, match=refused):
            await client.subscribe(re.compile("t-part.*"), "s", is_durable=False, start_message_id=start)
        async with client.create_reader("t-partition-1", start, start_message_id_inclusive=True) as reader:
            assert (await reader.read_next(1000)).data() == b"1"
        start = await publish(client, "t-of-one", b"2")
        async with client.create_reader("t-of-one", start, start_message_id_inclusive=True) as reader:
            assert (await reader.read_next(1000)).data() == b"2"

    run_with_broker(scenario)


def test_no_message_of_a_partition_is_available_where_a_consumer_stands_at_its_end() -> None:
    """Ids that a broker tells beside the last message's say no partition."""

    async def scenario(client, broker):
        await broker.broker.resources.create_partitioned_topic(TopicName.parse("t"), 2)
        await publish(client, "t-partition-0", b"0")
        await publish(client, "t-partition-1", b"1", b"2")
        consumer = await client.subscribe("t", "s", initial_position=EARLIEST)
        assert await consumer.has_message_available()
        await consumer.acknowledge([await consumer.receive(1000) for _ in range(3)])
        await consumer.close()
        consumer = await client.subscribe("t", "s")
        assert not await consumer.has_message_available()
        later_ms = client.runtime.clock.wall_ms() + 60_000
        async with asyncio.timeout(1):  # nobody waits for messages that do not come
            reader = await client.create_reader("t", gc.MessageId.latest)
            assert not await reader.has_message_available()
            for target in (gc.MessageId.earliest, later_ms, gc.MessageId.latest):
                await reader.seek(target)
                assert await reader.has_message_available() == (target == gc.MessageId.earliest)
            await publish(client, "t-partition-1", b"3")
            assert await reader.has_message_available()
            assert (await reader.read_next()).data() == b"3"
            assert not await reader.has_message_available()

    run_with_broker(scenario)
