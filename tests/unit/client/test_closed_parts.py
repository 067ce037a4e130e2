"""What was closed is gone at once: no cycle waits for Python's collector."""

from __future__ import annotations

import gc as collector
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest

import geminga.client as gc
from geminga.client._client import Client
from geminga.client._consuming.attachment import Attachment
from geminga.client._consuming.intake import Intake
from geminga.client._consuming.receiving import Receiving
from geminga.client._consuming.redelivery import Redelivery
from geminga.client._consuming.subscription_consumer import SubscriptionConsumer
from geminga.client._consuming.topic_consumer import TopicConsumer
from geminga.client._entry_stream import EntryStream
from geminga.client._producing.batching import Batching
from geminga.client._producing.topic_producer import TopicProducer
from geminga.client._transport.link import Link
from geminga.runtime import next_turn
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"
MESSAGES = 5
#: Each of which holds, or is held by, most of what a producer or a consumer is made of.
PARTS = frozenset({
    Attachment, Batching, EntryStream, Intake, Link, Receiving, Redelivery, SubscriptionConsumer, TopicConsumer,
    TopicProducer,
})  # fmt: skip
EARLIEST = gc.InitialPosition.Earliest

Use = Callable[[gc.Client], Awaitable[object]]


@pytest.fixture(autouse=True)
def without_a_collector() -> Iterator[None]:
    """Whatever of other tests there is, is gone."""
    collector.collect()
    collector.disable()
    yield
    collector.enable()


def parts() -> Counter[str]:
    return Counter(type(one).__name__ for one in collector.get_objects() if type(one) in PARTS)


async def publish(client: gc.Client) -> None:
    async with client.create_producer(TOPIC) as producer:
        for _ in range(MESSAGES):
            await producer.send(b"m")


async def producer_of_batches(client: gc.Client) -> None:
    async with client.create_producer(TOPIC) as producer:
        await producer.send(b"m")
        producer.send_nowait(b"left over")


async def producer_of_partitions(client: gc.Client) -> None:
    async with client.create_producer(TOPIC, batching_enabled=False) as producer:
        await producer.send(b"m")


async def consumer_with_messages_left(client: gc.Client) -> None:
    async with client.subscribe(TOPIC, "s", initial_position=EARLIEST) as consumer:
        await consumer.acknowledge(await consumer.receive(1000))
        await consumer.negative_acknowledge(await consumer.receive(1000))


async def consumer_of_dead_letters(client: gc.Client) -> None:
    policy = gc.ConsumerDeadLetterPolicy(max_redeliver_count=1)
    async with client.subscribe(
        TOPIC, "d", consumer_type=gc.ConsumerType.Shared, dead_letter_policy=policy, retry_enabled=True,
        initial_position=EARLIEST,
    ) as consumer:  # fmt: skip
        await consumer.reconsume_later(await consumer.receive(1000))


async def consumer_that_listens(client: gc.Client) -> None:
    async with client.subscribe(TOPIC, "l", message_listener=lambda *_: None, initial_position=EARLIEST):
        await next_turn()


class Interceptor(gc.ConsumerInterceptor):
    """Does nothing."""


async def consumer_that_is_intercepted(client: gc.Client) -> None:
    async with client.subscribe(TOPIC, "i", interceptors=[Interceptor()], initial_position=EARLIEST) as consumer:
        await consumer.acknowledge(await consumer.receive(1000))


async def consumer_of_a_pattern(client: gc.Client) -> None:
    async with client.subscribe(
        re.compile("persistent://public/default/t.*"), "p", initial_position=EARLIEST
    ) as consumer:
        await consumer.receive(1000)


async def reader_in_the_middle(client: gc.Client) -> None:
    async with client.create_reader(TOPIC, gc.MessageId.earliest) as reader:
        await reader.read_next(1000)


async def stream_of_entries(client: gc.Client) -> None:
    assert isinstance(client, Client)
    stream = client.entry_stream(TOPIC)
    source = await gc.open_batches(stream, None)
    assert await stream.take(1000, 1)
    await stream.close()
    assert source.chunks_without_beginning == []


USES: list[Use] = [
    producer_of_batches,
    producer_of_partitions,
    consumer_with_messages_left,
    consumer_of_dead_letters,
    consumer_that_listens,
    consumer_that_is_intercepted,
    consumer_of_a_pattern,
    reader_in_the_middle,
    stream_of_entries,
]


@pytest.mark.parametrize("use", USES, ids=[use.__name__ for use in USES])
def test_nothing_of_it_waits_for_a_collector(use: Use) -> None:
    async def scenario(client: gc.Client, _: BrokerOnNode) -> None:
        await publish(client)
        # Of the broker there are clients, too.
        for _turn in range(20):
            await next_turn()
        before = parts()
        await use(client)
        for _turn in range(20):
            await next_turn()
        assert parts() - before == Counter()

    run_with_broker(scenario)


def test_a_client_that_is_closed_is_gone() -> None:
    def clients() -> int:
        return sum(type(one) is Client for one in collector.get_objects())

    before = clients()

    async def scenario(client: gc.Client, _: BrokerOnNode) -> None:
        await publish(client)
        assert clients() > before

    run_with_broker(scenario)
    # The simulation's own tasks go with it.
    assert clients() == before
