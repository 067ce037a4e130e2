"""How our consumer gets messages: one by one, iterated, in batches, by a listener, with and without prefetching."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
Type = gc.ConsumerType


def test_iteration_batches_listeners_and_waiting_receivers_get_every_message_once(broker, topic) -> None:
    async def main(client):
        heard = []
        done = asyncio.Event()

        async def listener(consumer, message):
            heard.append(message)
            await consumer.acknowledge(message)
            if len(heard) == 30:
                done.set()

        options = {"initial_position": EARLIEST}
        listening = await client.subscribe(topic, "listener", message_listener=listener, **options)
        with pytest.raises(gc.OperationNotSupported):
            await listening.receive(1)
        iterating = await client.subscribe(topic, "iteration", **options)
        policy = gc.BatchReceivePolicy(7, -1, 300)
        batches = await client.subscribe(topic, "batches", batch_receive_policy=policy, **options)
        waiting = await client.subscribe(topic, "waiting", **options)
        receivers = [asyncio.ensure_future(waiting.receive()) for _ in range(30)]
        await asyncio.sleep(0)  # all of them wait
        receivers[3].cancel()
        await publish(client, topic, 30)
        got = await asyncio.gather(*receivers, return_exceptions=True)
        assert contents([*(m for m in got if isinstance(m, gc.Message)), await waiting.receive(RECEIVE_MS)]) == list(
            range(30)
        )
        found = []
        async for message in iterating:
            found.append(message)
            if len(found) == 30:
                break
        assert [int(message.data()[1:]) for message in found] == list(range(30))
        taken = []
        sizes = []
        while len(taken) < 30:
            batch = await batches.batch_receive()
            sizes.append(len(batch))
            taken += batch
        assert contents(taken) == list(range(30))
        assert sizes == [7, 7, 7, 7, 2]
        assert await batches.batch_receive() == []
        await done.wait()
        assert contents(heard) == list(range(30))

    run(broker, main)


def test_a_listener_that_fails_gets_the_next_message(broker, topic) -> None:
    async def main(client):
        heard = []
        done = asyncio.Event()

        def listener(consumer, message):
            heard.append(message.data())
            if len(heard) == 3:
                done.set()
            if len(heard) == 1:
                raise ValueError("cannot work with this")

        await client.subscribe(topic, "sub", message_listener=listener, initial_position=EARLIEST)
        await publish(client, topic, 3)
        await done.wait()
        assert heard == [b"m0", b"m1", b"m2"]

    run(broker, main)


def test_batch_receive_is_limited_by_bytes(broker, topic) -> None:
    async def main(client):
        policy = gc.BatchReceivePolicy(-1, 1000, 2000)
        consumer = await client.subscribe(topic, "sub", batch_receive_policy=policy, initial_position=EARLIEST)
        producer = await client.create_producer(topic)
        for _ in range(20):
            producer.send_nowait(b"x" * 300)
        producer.send_nowait(b"y" * 5000)
        await producer.flush()
        batches = []
        while sum(map(len, batches)) < 21:
            batches.append(await consumer.batch_receive())
        assert all(len(batch) == 1 or sum(len(m.data()) for m in batch) <= 1000 for batch in batches)
        assert max(map(len, batches)) == 3

    run(broker, main)


def test_a_closed_consumer_ends_iteration_and_refuses_to_receive(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub")

        async def iterate():
            return [message async for message in consumer]

        iterating = asyncio.ensure_future(iterate())
        receiving = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0)  # both of them wait
        await consumer.close()
        assert await iterating == []
        with pytest.raises(gc.AlreadyClosed):
            await receiving
        with pytest.raises(gc.AlreadyClosed):
            await consumer.receive()
        await consumer.close()

    run(broker, main)


def test_without_prefetching_a_message_comes_when_it_is_wanted(broker, topic) -> None:
    async def main(client):
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST}
        first = await client.subscribe(topic, "sub", receiver_queue_size=0, **options)
        await publish(client, topic, 5, batched=False)
        assert [(await first.receive(RECEIVE_MS)).data() for _ in range(2)] == [b"m0", b"m1"]
        second = await client.subscribe(topic, "sub", **options)
        assert contents(await drain(second, count=3)) == [2, 3, 4]
        with pytest.raises(gc.Timeout):
            await first.receive(50)

    run(broker, main)


def test_a_paused_consumer_asks_for_no_more(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", receiver_queue_size=4, initial_position=EARLIEST)
        consumer.pause()
        await publish(client, topic, 20, batched=False)
        assert len(await drain(consumer)) <= 8
        consumer.resume()
        assert contents(await drain(consumer, count=12))[-1] == 19

    run(broker, main)
