"""Our producers with deduplication on: sequence ids, what the broker remembers, and resending after an unload."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, run
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
#: Messages that are in flight while the topic is unloaded.
MESSAGES = 2000
UNLOADS = 3


@pytest.fixture(scope="module")
def namespace(broker) -> str:
    """One where repetitions are dropped."""
    name = "public/deduplicated"
    rest = Rest(broker.web_service_url)
    assert rest.put(f"namespaces/{name}").status == 204
    assert rest.post(f"namespaces/{name}/deduplication", True).status == 204
    return name


@pytest.fixture
def topic(namespace, fresh_topic) -> str:
    """A topic in it."""
    return fresh_topic.replace("public/default", namespace)


@pytest.mark.parametrize("batched", [True, False])
def test_repeated_sequence_ids_are_stored_once_and_the_last_one_is_remembered(broker, topic, batched) -> None:
    async def main(client):
        options = {"producer_name": "me", "batching_enabled": batched}
        async with await client.create_producer(topic, **options) as producer:
            assert producer.last_sequence_id() == -1
            for number in range(10):
                producer.send_nowait(b"m%d" % number, sequence_id=number)
            await producer.flush()
            assert producer.last_sequence_id() == 9
        async with await client.create_producer(topic, **options) as producer:
            assert producer.last_sequence_id() == 9
            for number in range(5, 15):
                await producer.send(b"m%d" % number, sequence_id=number)
            assert producer.last_sequence_id() == 14
            await producer.send(b"m15")
            assert producer.last_sequence_id() == 15
        async with await client.create_producer(topic, producer_name="other") as producer:
            await producer.send(b"m16", sequence_id=3)
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        found = [await consumer.receive(RECEIVE_MS) for _ in range(17)]
        assert [int(message.data()[1:]) for message in found] == list(range(17))
        assert [message.sequence_id() for message in found] == [*range(16), 3]
        assert await drain(consumer) == []

    run(broker, main)


@pytest.mark.parametrize("batched", [True, False])
def test_what_is_resent_after_unloads_is_stored_once_and_in_order(broker, topic, batched) -> None:
    rest = Rest(broker.web_service_url)
    path = topic.replace("://", "/")

    async def main(client):
        # A ledger that no subscription needs may go.
        await (await client.subscribe(topic, "sub", initial_position=EARLIEST)).close()
        producer = await client.create_producer(topic, batching_enabled=batched, batching_max_messages=10)
        receipts = []
        sent = 0
        for _ in range(UNLOADS):
            for number in range(sent, sent + MESSAGES // UNLOADS):
                producer.send_nowait(b"m%d" % number, lambda error, message_id: receipts.append((error, message_id)))
            sent += MESSAGES // UNLOADS
            answer = await asyncio.to_thread(rest.put, f"{path}/unload")
            assert answer.status == 204, answer
        await producer.flush()
        assert [error for error, _ in receipts] == [None] * sent
        consumer = await client.subscribe(topic, "sub")
        found = [await consumer.receive(RECEIVE_MS) for _ in range(sent)]
        assert [int(message.data()[1:]) for message in found] == list(range(sent))
        assert await drain(consumer) == []

    run(broker, main)


def test_a_chunked_message_that_is_repeated_is_stored_once(broker, topic) -> None:
    async def main(client):
        options = {"producer_name": "me", "batching_enabled": False, "chunking_enabled": True}
        large = bytes(range(256)) * 40
        async with await client.create_producer(topic, chunk_max_message_size=1000, **options) as producer:
            await producer.send(large, sequence_id=7)
            await producer.send(b"m0", sequence_id=8)
        async with await client.create_producer(topic, chunk_max_message_size=1000, **options) as producer:
            await producer.send(large, sequence_id=7)
            await producer.send(b"m1", sequence_id=9)
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        assert (await consumer.receive(RECEIVE_MS)).data() == large
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(2)]) == [0, 1]
        assert await drain(consumer) == []

    run(broker, main)
