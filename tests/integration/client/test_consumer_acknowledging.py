"""Our consumer: subscription type x acknowledgment kind x batch or not x partitioned or not."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from support.house.waiting import until
from support.house.weekly_sample import sampled
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import set_partitions
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
Type = gc.ConsumerType
MESSAGES = 60


def test_a_failure_tells_what_client_and_broker_knew(broker, topic) -> None:
    async def main(client):
        await client.subscribe(topic, "sub")
        raise AssertionError("on purpose")

    with pytest.raises(AssertionError, match="on purpose") as failure:
        run(broker, main)
    told = "\n".join(failure.value.__notes__)
    assert "client: sub connected=True" in told
    assert "msgBacklog" in told


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("receipts", sampled("receipts", [False, True], 1, ids=["", "receipts"]))
@pytest.mark.parametrize("kind", ["one", "list", "cumulative", "id", "whole batches"])
@pytest.mark.parametrize("type_", list(Type))
def test_acknowledged_messages_do_not_come_again(broker, topic, type_, kind, receipts, batched, partitions) -> None:
    """1. Publish, receive all. 2. Acknowledge. 3. A new consumer of the subscription gets nothing."""
    if partitions:
        set_partitions(broker.web_service_url, topic, partitions)
    options = {
        "consumer_type": type_,
        "initial_position": EARLIEST,
        "ack_receipt_enabled": receipts,
        "batch_index_ack_enabled": kind != "whole batches",
    }

    async def main(client):
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, MESSAGES, batched=batched)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(MESSAGES)]
        assert contents(messages) == list(range(MESSAGES))
        assert {message.partition_key() for message in messages} == {f"k{n}" for n in range(5)}
        if kind == "cumulative":
            if type_ in (Type.Shared, Type.KeyShared):
                with pytest.raises(gc.CumulativeAcknowledgementNotAllowedError, match="cumulatively"):
                    await consumer.acknowledge_cumulative(messages[-1])
                await consumer.acknowledge(messages)
            else:
                last = {message.topic_name(): message for message in messages}
                for message in last.values():
                    await consumer.acknowledge_cumulative(message)
        elif kind == "list":
            await consumer.acknowledge(messages)
        elif kind == "id":
            await consumer.acknowledge([message.message_id() for message in messages])
        else:
            # With receipts each of those that are awaited one by one waits for a group of its own.
            await asyncio.gather(*(consumer.acknowledge(message) for message in messages[:-3]))
            for message in messages[-3:]:
                await consumer.acknowledge(message)
        await consumer.close()
        again = await client.subscribe(topic, "sub", **options)
        await assert_nothing_before_what_is_sent_now(client, again)
        await again.close()

    run(broker, main)


async def assert_nothing_before_what_is_sent_now(client: gc.Client, consumer: gc.Consumer[bytes]) -> None:
    """What comes again does so before what is newer, so that nobody waits for nothing; each partition gets its own."""
    for name in consumer.topics():
        producer = await client.create_producer(name)
        await producer.send(b"last")
        await producer.close()
    assert {(await consumer.receive(RECEIVE_MS)).data() for _ in consumer.topics()} == {b"last"}


@pytest.mark.parametrize("type_", list(Type))
@pytest.mark.parametrize("batched", [True, False])
def test_messages_not_acknowledged_come_again_to_the_next_consumer(broker, topic, type_, batched) -> None:
    async def main(client):
        options = {"consumer_type": type_, "initial_position": EARLIEST}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 20, batched=batched)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(20)]
        kept = [message for message in messages if int(message.data()[1:]) % 2]
        await consumer.acknowledge([message for message in messages if message not in kept])
        await consumer.close()
        again = await client.subscribe(topic, "sub", **options)
        assert contents([await again.receive(RECEIVE_MS) for _ in kept]) == contents(kept)
        assert await drain(again) == []

    run(broker, main)


def test_properties_are_kept_with_the_position_that_a_cumulative_acknowledgment_moves(broker, topic) -> None:
    rest = Rest(broker.web_service_url)

    def kept() -> tuple[str, dict[str, int]]:
        cursor = rest.get(f"persistent/public/default/{topic}/internalStats").json["cursors"]["sub"]
        return cursor["markDeletePosition"], cursor["properties"]

    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST, ack_receipt_enabled=True)
        await publish(client, topic, 4, batched=False)
        messages = await drain(consumer, count=4)
        places = [f"{m.message_id().ledger_id()}:{m.message_id().entry_id()}" for m in messages]
        await consumer.acknowledge_cumulative(messages[0], properties={"offset": 17, "low": -3})
        until(lambda: kept() == (places[0], {"offset": 17, "low": -3}), "properties of the first")
        # With single ones a broker takes them, and keeps none.
        await consumer.acknowledge(messages[2], properties={"single": 1})
        await consumer.acknowledge_cumulative(messages[1], properties={"offset": 18})
        until(lambda: kept() == (places[2], {"offset": 18}), "properties of the second")
        await consumer.acknowledge_cumulative(messages[3])
        until(lambda: kept() == (places[3], {}), "none")

    run(broker, main)
