"""Our consumer of several topics: lists, patterns, partitions that are added."""

from __future__ import annotations

import re

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import delete_topic, set_partitions, stats

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest


def test_several_topics_and_their_ids(broker, topic) -> None:
    async def main(client):
        names = [f"{topic}-a", f"{topic}-b"]
        consumer = await client.subscribe(names, "sub", initial_position=EARLIEST)
        for index, name in enumerate(names):
            await publish(client, name, 5, first=5 * index)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(10)]
        assert contents(messages) == list(range(10))
        await consumer.acknowledge([message.message_id() for message in messages])
        with pytest.raises(gc.OperationNotSupported, match="names no topic"):
            await consumer.acknowledge(gc.MessageId.deserialize(messages[0].message_id().serialize()))
        with pytest.raises(gc.OperationNotSupported, match="2 topics"):
            await consumer.get_last_message_id()
        assert len(await consumer.get_last_message_ids()) == 2
        await consumer.unsubscribe()
        assert "sub" not in stats(broker.web_service_url, names[0])["subscriptions"]

    run(broker, main)


def test_a_pattern_follows_topics_that_come_and_grow(broker, topic) -> None:
    async def main(client):
        await publish(client, f"{topic}-one", 3)
        consumer = await client.subscribe(
            re.compile(f"persistent://public/default/{topic}-.*"),
            "sub",
            initial_position=EARLIEST,
            pattern_auto_discovery_period_ms=100,
            auto_update_partitions_interval_ms=100,
        )
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(3)]) == [0, 1, 2]
        await publish(client, f"{topic}-two", 3, first=3)
        await publish(client, f"other-{topic}", 3, first=100)
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(3)]) == [3, 4, 5]
        assert await drain(consumer) == []
        assert len(consumer.topics()) == 2

    run(broker, main)


def test_a_pattern_is_told_of_topics_by_the_broker(broker, topic) -> None:
    """With the list asked for every hour, what comes and goes is known by the watch alone."""

    async def main(client):
        await publish(client, f"{topic}-one", 1)
        consumer = await client.subscribe(
            re.compile(f"persistent://public/default/{topic}-.*"),
            "sub",
            initial_position=EARLIEST,
            pattern_auto_discovery_period_ms=3_600_000,
        )
        assert contents([await consumer.receive(RECEIVE_MS)]) == [0]
        while not consumer.discovery.is_watching:
            await drain(consumer, 50)
        await publish(client, f"{topic}-two", 1, first=1)
        assert contents([await consumer.receive(RECEIVE_MS)]) == [1]
        delete_topic(broker.web_service_url, f"{topic}-one")
        while len(consumer.topics()) > 1:
            assert await drain(consumer, 50) == []
        assert consumer.topics() == [f"persistent://public/default/{topic}-two"]
        await publish(client, f"{topic}-two", 1, first=2)
        assert contents([await consumer.receive(RECEIVE_MS)]) == [2]

    run(broker, main)


def test_partitions_that_are_added_are_consumed(broker, topic) -> None:
    set_partitions(broker.web_service_url, topic, 2)

    async def main(client):
        consumer = await client.subscribe(
            topic, "sub", initial_position=EARLIEST, auto_update_partitions_interval_ms=100
        )
        set_partitions(broker.web_service_url, topic, 4, is_new=False)
        await publish(client, f"{topic}-partition-3", 2)
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(2)]) == [0, 1]
        assert len(consumer.topics()) == 4

    run(broker, main)


def test_a_reader_at_the_end_has_all_of_a_partition_that_is_added(broker, topic) -> None:
    """No broker keeps its place there: what comes before it looks again was published after it began all the same."""
    set_partitions(broker.web_service_url, topic, 2)

    async def main(client):
        reader = await client.create_reader(topic, gc.MessageId.latest, auto_update_partitions_interval_ms=300)
        set_partitions(broker.web_service_url, topic, 4, is_new=False)
        await publish(client, f"{topic}-partition-3", 2)
        assert contents([await reader.read_next(RECEIVE_MS) for _ in range(2)]) == [0, 1]

    run(broker, main)
