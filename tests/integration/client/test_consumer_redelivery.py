"""What comes again to our consumer: negative acknowledgment, time limits, retry and dead letters."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import timedelta

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import stats

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
Type = gc.ConsumerType
#: Of a pool: ten batches.
MESSAGES = 1000


def test_negative_acknowledgment_brings_one_message_again_on_shared(broker, topic) -> None:
    async def main(client):
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST, "negative_ack_redelivery_delay_ms": 100}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 5, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(5)]
        await consumer.negative_acknowledge(messages[2])
        again = await consumer.receive(RECEIVE_MS)
        assert again.message_id() == messages[2].message_id()
        assert again.redelivery_count() == 1
        await consumer.acknowledge([*messages, again])
        assert await drain(consumer) == []
        assert consumer.stats().negative_acks == 1

    run(broker, main)


def test_negative_acknowledgment_brings_the_rest_of_a_batch_again(broker, topic) -> None:
    async def main(client):
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST, "negative_ack_redelivery_delay_ms": 100}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 6)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(6)]
        await consumer.acknowledge(messages[:4])
        await consumer.negative_acknowledge(messages[5])
        again = await drain(consumer, count=2)
        assert contents(again) == [4, 5]
        await consumer.acknowledge(again)
        await consumer.close()
        assert await drain(await client.subscribe(topic, "sub", **options)) == []

    run(broker, main)


def test_a_pool_with_nacks_gets_each_message_of_a_batch_until_it_is_acknowledged(broker, topic) -> None:
    """1. Three consumers share batches of 100. 2. Each nacks every fifth message the first time. 3. Others come once"""

    async def main(client):
        # Acknowledgments wait longer than what was nacked: they must go ahead of the redelivery they belong to.
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST, "negative_ack_redelivery_delay_ms": 100}
        options |= {"ack_group_time_ms": 5000, "receiver_queue_size": 100}
        pool = [await client.subscribe(topic, "sub", **options) for _ in range(3)]
        await publish(client, topic, MESSAGES)
        deliveries: Counter[int] = Counter()
        acknowledged: set[int] = set()
        all_done = asyncio.Event()

        async def work(consumer):
            async for message in consumer:
                number = int(message.data()[1:])
                deliveries[number] += 1
                if number % 5 == 0 and deliveries[number] == 1:
                    await consumer.negative_acknowledge(message)
                    continue
                await consumer.acknowledge(message)
                acknowledged.add(number)
                if len(acknowledged) == MESSAGES:
                    all_done.set()

        workers = [asyncio.ensure_future(work(consumer)) for consumer in pool]
        await asyncio.wait_for(all_done.wait(), 30)
        for consumer in pool:
            await consumer.close()
        await asyncio.wait(workers)
        twice = sum(count for number, count in deliveries.items() if number % 5) - MESSAGES * 4 // 5
        assert twice == 0, f"{twice} acknowledged messages came again"
        assert sum(deliveries.values()) == MESSAGES * 6 // 5

    run(broker, main)


def test_ack_timeout_brings_everything_again_in_order_on_exclusive(broker, topic) -> None:
    async def main(client):
        options = {"unacked_messages_timeout_ms": 1000, "unacked_messages_tick_ms": 100, "initial_position": EARLIEST}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 4, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(4)]
        await consumer.acknowledge(messages[0])
        again = [await consumer.receive(RECEIVE_MS) for _ in range(3)]
        assert [message.data() for message in again] == [b"m1", b"m2", b"m3"]
        await consumer.acknowledge(again)
        assert await drain(consumer, 1500) == []

    run(broker, main)


def test_what_is_prefetched_and_not_received_does_not_time_out(broker, topic) -> None:
    async def main(client):
        options = {"unacked_messages_timeout_ms": 1000, "unacked_messages_tick_ms": 100, "consumer_type": Type.Shared}
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST, **options)
        await publish(client, topic, 3, batched=False)
        await consumer.acknowledge(await consumer.receive(RECEIVE_MS))
        timing_out = await client.subscribe(topic, "timing out", initial_position=EARLIEST, **options)
        for _ in range(3):
            await timing_out.receive(RECEIVE_MS)
        await timing_out.receive(RECEIVE_MS)  # comes again: the time limit of both is over
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(2)]
        assert [message.redelivery_count() for message in messages] == [0, 0]
        assert consumer.stats().redelivery_requests == 0

    run(broker, main)


def test_redeliver_unacknowledged_messages_drops_what_was_sent_before(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 10, batched=False)
        for _ in range(3):
            await consumer.receive(RECEIVE_MS)
        await consumer.redeliver_unacknowledged_messages()
        assert [m.data() for m in await drain(consumer, count=10)] == [b"m%d" % n for n in range(10)]

    run(broker, main)


@pytest.mark.parametrize("batched", [True, False])
def test_dead_letters_are_stored_with_pulsars_names_and_properties(broker, topic, batched) -> None:
    async def main(client):
        consumer = await client.subscribe(
            topic,
            "sub",
            consumer_type=Type.Shared,
            initial_position=EARLIEST,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=gc.ConsumerDeadLetterPolicy(2, initial_subscription_name="kept"),
        )
        await publish(client, topic, 3, batched=batched, properties={"own": "1"})
        deliveries = 0
        while deliveries < 9:
            await consumer.negative_acknowledge(await consumer.receive(RECEIVE_MS))
            deliveries += 1
        dead = await client.subscribe(f"{topic}-sub-DLQ", "kept")
        letters = [await dead.receive(RECEIVE_MS) for _ in range(3)]
        assert contents(letters) == [0, 1, 2]
        properties = letters[0].properties()
        assert properties["own"] == "1"
        assert properties["REAL_TOPIC"] == f"persistent://public/default/{topic}"
        assert properties["REAL_SUBSCRIPTION"] == "sub"
        assert re.fullmatch(r"\d+:\d+:-1:0" if batched else r"\d+:\d+:-1", properties["ORIGIN_MESSAGE_ID"])
        assert letters[0].partition_key().startswith("k")
        assert await drain(consumer) == []
        assert consumer.stats().dead_lettered == 3
        await consumer.close()
        assert stats(broker.web_service_url, topic)["subscriptions"]["sub"]["msgBacklog"] == 0

    run(broker, main)


def test_reconsume_later_brings_a_message_again_and_then_buries_it(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(
            topic,
            "sub",
            consumer_type=Type.Shared,
            initial_position=EARLIEST,
            retry_enabled=True,
            dead_letter_policy=gc.ConsumerDeadLetterPolicy(2, initial_subscription_name="kept"),
        )
        await publish(client, topic, 1)
        for times in range(3):
            message = await consumer.receive(RECEIVE_MS)
            assert message.data() == b"m0"
            assert message.properties().get("RECONSUMETIMES", "0") == str(times)
            await consumer.reconsume_later(message, timedelta(milliseconds=10), {"more": "1"})
        assert message.topic_name() == f"persistent://public/default/{topic}-sub-RETRY"
        assert message.properties()["REAL_TOPIC"] == f"persistent://public/default/{topic}"
        dead = await client.subscribe(f"{topic}-sub-DLQ", "kept")
        assert (await dead.receive(RECEIVE_MS)).properties()["more"] == "1"
        assert await drain(consumer) == []

    run(broker, main)


def test_reconsume_later_without_retry_topic_is_refused(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 1)
        with pytest.raises(gc.NotAllowedError, match="retry_enabled"):
            await consumer.reconsume_later(await consumer.receive(RECEIVE_MS))

    run(broker, main)
