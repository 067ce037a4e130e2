"""Consumers of several topics, by list and by pattern, and their parts, against a broker in virtual time."""

from __future__ import annotations

import re

import pytest

import geminga.client as gc
from geminga.client._consumer import Consumer
from geminga.client._consumer_acknowledgement import ACKERS_MAX
from geminga.client._consumer_factory import subscribe
from geminga.client._consumer_listening import Listening
from geminga.client._consumer_options import ConsumerOptions
from geminga.client._consumer_schema import SchemaGate
from geminga.client._multi_consumer import TopicSet
from geminga.client._pattern_consumer import PatternTopics
from geminga.client._reader import Reader
from geminga.client._table_view import TableView
from geminga.client._waiting import wait_ms
from geminga.client.core.topic_pattern import TopicPattern
from geminga.client.schema._protocol import SchemaInfo, SchemaType
from geminga.model import TopicName
from support.scripted_broker import run_with_broker

EARLIEST = gc.InitialPosition.Earliest


async def publish(client, topic: str, *payloads: bytes) -> None:
    async with await client.create_producer(topic, batching_enabled=False) as producer:
        for payload in payloads:
            await producer.send(payload, partition_key="k")


async def drain(consumer: Consumer[bytes]) -> list[bytes]:
    found = []
    while True:
        try:
            found.append((await consumer.receive(300)).data())
        except gc.Timeout:
            return sorted(found)


def test_a_pattern_leaves_topics_that_are_gone() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        await publish(client, "a-2", b"2")
        consumer = await client.subscribe(re.compile("a-.*"), "s", initial_position=EARLIEST)
        assert await drain(consumer) == [b"1", b"2"]
        assert isinstance(consumer.discovery, PatternTopics)
        await broker.broker.delete_topic(TopicName.parse("a-1"), force=True)
        await consumer.discovery.discover()
        assert consumer.topics() == ["persistent://public/default/a-2"]
        await publish(client, "a-2", b"3")
        assert await drain(consumer) == [b"3"]

    run_with_broker(scenario)


def test_a_list_of_topics_fails_as_a_whole_and_leaves_nothing() -> None:
    async def scenario(client, broker):
        other = await client.subscribe("b", "s")
        with pytest.raises(gc.ConsumerBusy):
            await client.subscribe(["a", "b", "c"], "s")
        await other.close()
        for topic in ("a", "b", "c"):
            loaded = await broker.broker.get_topic(TopicName.parse(topic), create=False)
            assert not any(subscription.consumers for subscription in loaded.subscriptions.values())
        with pytest.raises(gc.InvalidConfiguration, match="empty list"):
            await client.subscribe([], "s")
        with pytest.raises(gc.InvalidConfiguration, match="subscription_name"):
            await client.subscribe("a", "")
        with pytest.raises(gc.InvalidConfiguration, match="receiver_queue_size"):
            await client.subscribe(["a", "b"], "s", receiver_queue_size=0)
        with pytest.raises(gc.InvalidTopicName):
            await client.subscribe(re.compile("x/y"), "s")

    run_with_broker(scenario)


def test_topics_share_the_total_of_prefetched_messages() -> None:
    async def scenario(client, broker):
        topics = [f"t{number}" for number in range(10)]
        consumer = await client.subscribe(topics, "s", max_total_receiver_queue_size_across_partitions=50)
        assert [topic.flow.capacity for topic in consumer.topic_consumers()] == [5] * 10
        assert isinstance(consumer.topic_set, TopicSet)
        assert consumer.topic_set.topics == [f"persistent://public/default/{topic}" for topic in topics]
        assert consumer.is_connected()
        assert consumer.is_active()

    run_with_broker(scenario)


def test_a_listener_may_close_its_consumer() -> None:
    async def scenario(client, broker):
        closed = []

        async def listener(consumer, message):
            closed.append(message.data())
            await consumer.close()

        await publish(client, "t", b"1", b"2")
        consumer = await client.subscribe("t", "s", message_listener=listener, initial_position=EARLIEST)
        assert isinstance(consumer._listening, Listening)
        await wait_ms(1000)
        assert closed == [b"1"]
        assert consumer.is_closed

    run_with_broker(scenario)


def test_a_paused_listener_is_not_called() -> None:
    async def scenario(client, broker):
        heard = []
        consumer = await client.subscribe(
            "t", "s", message_listener=lambda _, message: heard.append(message.data()), initial_position=EARLIEST
        )
        consumer.pause_message_listener()
        await publish(client, "t", b"1", b"2")
        await wait_ms(500)
        assert heard == []
        consumer.resume_message_listener()
        await wait_ms(500)
        assert heard == [b"1", b"2"]
        without = await client.subscribe("t", "other")
        with pytest.raises(gc.InvalidConfiguration):
            without.pause_message_listener()
        with pytest.raises(gc.InvalidConfiguration):
            without.resume_message_listener()

    run_with_broker(scenario)


class SlowDecoder:
    """Needs its version fetched, which fails once."""

    info = None

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def is_ready(self, schema_version: bytes) -> bool:
        return len(self.asked) >= 2

    async def prepare(self, schema_version: bytes) -> None:
        self.asked.append(schema_version)
        await wait_ms(100)
        if len(self.asked) == 1:
            raise gc.NotConnected("once")

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> str:
        return f"{payload.decode()} of {key!r}"


class SlowSchema:
    def __init__(self) -> None:
        self.decoder = SlowDecoder()

    async def bind_consumer(self, topic, source):
        return self.decoder


def test_messages_wait_for_their_schema_in_order() -> None:
    async def scenario(client, broker):
        await publish(client, "t", b"1", b"2", b"3")
        schema = SlowSchema()
        consumer = await client.subscribe("t", "s", schema=schema, initial_position=EARLIEST)
        assert [(await consumer.receive(5000)).value() for _ in range(3)] == [f"{n} of b'k'" for n in (1, 2, 3)]
        assert len(schema.decoder.asked) == 2
        assert all(isinstance(topic._gate, SchemaGate) for topic in consumer.topic_consumers())

    run_with_broker(scenario)


def test_parts_are_made_by_the_client_as_a_user_gets_them() -> None:
    async def scenario(client, broker):
        await publish(client, "t", b"1")
        consumer = await subscribe(client, "t", "s", None, ConsumerOptions(initial_position=EARLIEST))
        assert isinstance(consumer, Consumer)
        assert consumer.receive_nowait() is None or consumer.counters.messages_received == 1
        async with await client.create_reader("t", gc.MessageId.earliest) as reader:
            assert isinstance(reader, Reader)
            assert (reader.topic(), reader.is_connected()) == ("persistent://public/default/t", True)
            async for message in reader:
                assert message.data() == b"1"
                break
        async with await client.create_table_view("t") as view:
            assert isinstance(view, TableView)
            assert (list(view), view["k"], len(view), list(view.keys()), list(view.values())) == (
                ["k"],
                b"1",
                1,
                ["k"],
                [b"1"],
            )
        assert TopicPattern.parse("x").namespace == "public/default"
        assert SchemaInfo("s", SchemaType.STRING).schema == b""
        assert ACKERS_MAX == 10_000

    run_with_broker(scenario)
