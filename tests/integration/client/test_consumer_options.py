"""Options of our consumer that reach the broker, interceptors, non-persistent topics."""

from __future__ import annotations

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import stats

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
Type = gc.ConsumerType


def test_non_durable_subscriptions_vanish_with_their_consumer(broker, topic) -> None:
    async def main(client):
        await publish(client, topic, 3)
        consumer = await client.subscribe(
            topic, "sub", is_durable=False, start_message_id=gc.MessageId.earliest, initial_position=EARLIEST
        )
        assert len([await consumer.receive(RECEIVE_MS) for _ in range(3)]) == 3
        assert "sub" in stats(broker.web_service_url, topic)["subscriptions"]
        await consumer.close()
        assert "sub" not in stats(broker.web_service_url, topic)["subscriptions"]

    run(broker, main)


def test_exclusive_subscriptions_take_one_consumer_and_failover_switches(broker, topic) -> None:
    async def main(client):
        first = await client.subscribe(topic, "exclusive")
        with pytest.raises(gc.ConsumerBusy):
            await client.subscribe(topic, "exclusive")
        await first.close()
        options = {"consumer_type": Type.Failover, "initial_position": EARLIEST}
        both = {name: await client.subscribe(topic, "failover", consumer_name=name, **options) for name in "ab"}
        # Which of the two it is goes by a hash of topic and names.
        name = stats(broker.web_service_url, topic)["subscriptions"]["failover"]["activeConsumerName"]
        active = both.pop(name)
        (standby,) = both.values()
        await publish(client, topic, 4, batched=False)
        messages = [await active.receive(RECEIVE_MS) for _ in range(4)]
        await active.acknowledge(messages[:2])
        assert await drain(standby, 100) == []
        await active.close()
        assert [(await standby.receive(RECEIVE_MS)).data() for _ in range(2)] == [b"m2", b"m3"]

    run(broker, main)


def test_sticky_ranges_divide_the_keys(broker, topic) -> None:
    async def main(client):
        halves = []
        for ranges in ([(0, 32767)], [(32768, 65535)]):
            policy = gc.ConsumerKeySharedPolicy(gc.KeySharedMode.Sticky, sticky_ranges=ranges)
            halves.append(
                await client.subscribe(
                    topic, "sub", consumer_type=Type.KeyShared, key_shared_policy=policy, initial_position=EARLIEST
                )
            )
        await publish(client, topic, 40, batched=False)
        found = [[], []]
        while len(found[0] + found[1]) < 40:
            for half, consumer in zip(found, halves, strict=True):
                half += await drain(consumer)
        assert contents(found[0] + found[1]) == list(range(40))
        keys = [{message.partition_key() for message in half} for half in found]
        assert not keys[0] & keys[1]

    run(broker, main)


def test_interceptors_see_what_is_received_and_acknowledged(broker, topic) -> None:
    class Recorder(gc.ConsumerInterceptor):
        def __init__(self):
            self.seen = []

        def before_consume(self, consumer, message):
            self.seen.append(("consume", message.data()))
            return message

        def on_acknowledge(self, consumer, message_id, error):
            self.seen.append(("ack", error))

        def on_acknowledge_cumulative(self, consumer, message_id, error):
            self.seen.append(("cumulative", error))

        def on_negative_acks_send(self, consumer, message_ids):
            self.seen.append(("nack", len(message_ids)))

        def close(self):
            self.seen.append(("close", None))

    recorder = Recorder()

    async def main(client):
        consumer = await client.subscribe(
            topic, "sub", interceptors=[recorder], initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100
        )
        await publish(client, topic, 3, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(3)]
        await consumer.acknowledge(messages[0])
        await consumer.acknowledge_cumulative(messages[1])
        await consumer.negative_acknowledge(messages[2])
        await consumer.receive(RECEIVE_MS)

    run(broker, main)
    assert recorder.seen == [
        ("consume", b"m0"),
        ("consume", b"m1"),
        ("consume", b"m2"),
        ("ack", None),
        ("cumulative", None),
        ("nack", 1),
        ("consume", b"m2"),
        ("close", None),
    ]


def test_non_persistent_topics_are_consumed_without_acknowledgment(broker, topic) -> None:
    async def main(client):
        name = f"non-persistent://public/default/{topic}"
        consumer = await client.subscribe(name, "sub", ack_receipt_enabled=True)
        await publish(client, name, 5)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(5)]
        await consumer.acknowledge(messages)
        assert consumer.stats().pending_acks == 0

    run(broker, main)
