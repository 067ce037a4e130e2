"""Our consumer and reader go elsewhere in a topic: seek, start messages, what is the last message."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import set_partitions, stats

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest


@pytest.mark.parametrize("is_inclusive", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_seek_goes_to_a_message_a_time_and_both_ends(broker, topic, batched, is_inclusive) -> None:
    async def main(client):
        consumer = await client.subscribe(
            topic, "sub", initial_position=EARLIEST, start_message_id_inclusive=is_inclusive
        )
        await publish(client, topic, 10, batched=batched)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(10)]
        await consumer.acknowledge(messages)
        await consumer.seek(messages[6].message_id())
        expected = range(6, 10) if is_inclusive else range(7, 10)
        assert [m.data() for m in await drain(consumer, count=len(expected))] == [b"m%d" % n for n in expected]
        await consumer.seek(gc.MessageId.earliest)
        assert contents(await drain(consumer, count=10)) == list(range(10))
        await consumer.seek(gc.MessageId.latest)
        await publish(client, topic, 3, first=10, batched=batched)
        found = await drain(consumer, count=3)
        assert contents(found) == [10, 11, 12]
        await consumer.seek(found[0].publish_timestamp())
        assert 12 in contents(await drain(consumer, count=1))
        await consumer.seek(0)
        assert contents(await drain(consumer, count=13)) == list(range(13))

    run(broker, main)


def test_seek_past_a_message_leaves_no_backlog_behind(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 4, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(4)]
        await consumer.seek(messages[1].message_id())
        await consumer.acknowledge(await drain(consumer, count=2))
        await consumer.close()
        assert stats(broker.web_service_url, topic)["subscriptions"]["sub"]["msgBacklog"] == 0

    run(broker, main)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("is_inclusive", [True, False])
def test_reader_starts_at_or_behind_a_message_and_knows_when_it_is_through(broker, topic, batched, is_inclusive):
    async def main(client):
        await publish(client, topic, 10, batched=batched)
        async with await client.create_reader(topic, gc.MessageId.earliest) as reader:
            found = []
            while await reader.has_message_available():
                found.append(await reader.read_next(RECEIVE_MS))
            assert contents(found) == list(range(10))
        start = gc.MessageId.deserialize(found[4].message_id().serialize())
        async with await client.create_reader(topic, start, start_message_id_inclusive=is_inclusive) as reader:
            rest = []
            while await reader.has_message_available():
                rest.append(await reader.read_next(RECEIVE_MS))
            assert contents(rest) == list(range(4 if is_inclusive else 5, 10))
            await reader.seek(found[8].message_id())
            assert (await reader.read_next(RECEIVE_MS)).data() == (b"m8" if is_inclusive else b"m9")
        async with await client.create_reader(topic, gc.MessageId.latest) as reader:
            assert not await reader.has_message_available()
            await publish(client, topic, 1, first=10, batched=batched)
            assert await reader.has_message_available()
            assert (await reader.read_next(RECEIVE_MS)).data() == b"m10"
            assert (await reader.get_last_message_id()).entry_id() >= 0
        last = found[9].message_id()
        async with await client.create_reader(topic, last) as reader:
            assert [(await reader.read_next(RECEIVE_MS)).data()] == [b"m10"]

    run(broker, main)


@pytest.mark.parametrize("batched", [True, False])
def test_reader_at_latest_inclusive_begins_with_the_newest_message(broker, topic, batched) -> None:
    async def main(client):
        arguments = {"start_message_id": gc.MessageId.latest, "start_message_id_inclusive": True}
        async with await client.create_reader(topic, **arguments) as early:
            assert not await early.has_message_available()
            await publish(client, topic, 5, batched=batched)
            # It came to an empty topic: everything is new to it.
            assert contents([await early.read_next(RECEIVE_MS) for _ in range(5)]) == list(range(5))
            await early.seek(gc.MessageId.latest)
            assert await early.has_message_available()
            assert (await early.read_next(RECEIVE_MS)).data() == b"m4"
        async with await client.create_reader(topic, **arguments) as reader:
            assert (await reader.read_next(RECEIVE_MS)).data() == b"m4"
            assert not await reader.has_message_available()
            await publish(client, topic, 1, first=5, batched=batched)
            assert (await reader.read_next(RECEIVE_MS)).data() == b"m5"
        consumer = await client.subscribe(topic, "fleeting", is_durable=False, **arguments)
        assert await consumer.has_message_available()
        assert (await consumer.receive(RECEIVE_MS)).data() == b"m5"

    run(broker, main)


def test_reader_at_latest_inclusive_begins_with_the_newest_of_each_partition(broker, topic) -> None:
    set_partitions(broker.web_service_url, topic, 2)

    async def main(client):
        for partition in range(2):
            for number in range(3):
                await publish(client, f"{topic}-partition-{partition}", 1, first=10 * partition + number)
        async with await client.create_reader(topic, gc.MessageId.latest, start_message_id_inclusive=True) as reader:
            assert sorted(contents([await reader.read_next(RECEIVE_MS) for _ in range(2)])) == [2, 12]
            assert not await reader.has_message_available()

    run(broker, main)


def test_reader_of_an_empty_topic_has_nothing(broker, topic) -> None:
    async def main(client):
        async with await client.create_reader(topic, gc.MessageId.earliest) as reader:
            assert not await reader.has_message_available()
            with pytest.raises(gc.Timeout):
                await reader.read_next(50)

    run(broker, main)


def test_reader_over_partitions_and_with_listener(broker, topic) -> None:
    set_partitions(broker.web_service_url, topic, 3)

    async def main(client):
        await publish(client, topic, 30)
        async with await client.create_reader(topic, gc.MessageId.earliest) as reader:
            found = []
            while await reader.has_message_available():
                found.append(await reader.read_next(RECEIVE_MS))
            assert contents(found) == list(range(30))
        heard = []
        done = asyncio.Event()

        def listener(reader, message):
            assert isinstance(reader, gc.Reader)
            heard.append(message)
            if len(heard) == 30:
                done.set()

        async with await client.create_reader(topic, gc.MessageId.earliest, reader_listener=listener):
            await done.wait()
        assert contents(heard) == list(range(30))

    run(broker, main)
