"""What is under way in a transaction when its end is known: nothing of it goes out any more, and nothing stays held."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client import TransactionState as State
from geminga.model import TopicName
from geminga.runtime import wait_ms
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_against, run_with_broker
from support.worlds.scripted_consumer import entry_bytes
from support.worlds.scripted_coordinator import CoordinatorScript, Type

TOPIC = "persistent://public/default/topic"


async def came(consumer: gc.Consumer[bytes]) -> list[gc.Message[bytes]]:
    """All that comes until nothing does for a while."""
    found = []
    while True:
        try:
            found.append(await consumer.receive(1000))
        except gc.Timeout:
            return found


def payloads(messages: list[gc.Message[bytes]]) -> list[bytes]:
    return sorted(message.data() for message in messages)


def run(scenario) -> None:
    run_with_broker(scenario, broker={"transaction_coordinator_enabled": True})


def test_what_a_transaction_held_whose_time_was_over_can_be_buried() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        policy = gc.ConsumerDeadLetterPolicy(max_redeliver_count=2, dead_letter_topic="dead")
        letters = await client.subscribe("dead", "s")
        consumer = await client.subscribe(
            TOPIC,
            "s",
            consumer_type=gc.ConsumerType.Shared,
            dead_letter_policy=policy,
            negative_ack_redelivery_delay_ms=100,
        )
        producer = await client.create_producer(TOPIC)
        await asyncio.gather(producer.send(b"0"), producer.send(b"1"))
        first, _ = [await consumer.receive(1000) for _ in range(2)]
        txn = await client.transaction(1.0)
        await consumer.acknowledge(first, txn=txn)
        await wait_ms(3000)
        assert txn.state is State.TIMED_OUT
        for _ in range(3):
            for message in await came(consumer):
                await consumer.negative_acknowledge(message)
        assert payloads(await came(letters)) == [b"0", b"1"]
        await wait_ms(3000)
        loaded = await broker.broker.registry.get(TopicName.parse(TOPIC), create=False)
        assert loaded.subscriptions["s"].cursor.backlog_count == 0

    run(scenario)


@pytest.mark.parametrize("kind", [gc.ConsumerType.Exclusive, gc.ConsumerType.Shared])
def test_what_a_transaction_acknowledged_whose_time_was_over_comes_again_once(kind: gc.ConsumerType) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "s", consumer_type=kind)
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        for number in range(4):
            await producer.send(b"%d" % number)
        first, second, _ = [await consumer.receive(1000) for _ in range(3)]
        txn = await client.transaction(1.0)
        await consumer.acknowledge([first, second], txn=txn)
        await wait_ms(5000)
        assert payloads(await came(consumer)) == [b"0", b"1", b"3"]

    run(scenario)


def test_an_acknowledgment_that_waited_for_a_connection_is_not_sent_in_a_transaction_that_is_over() -> None:
    script = CoordinatorScript([entry_bytes([b"single"])])

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s")
        message = await consumer.receive(1000)
        script.instead[Type.ACK] = ["cut"]
        txn = await client.transaction(1.0)
        with pytest.raises(gc.InvalidTxnStatusError, match="is over"):
            await consumer.acknowledge(message, txn=txn)
        await wait_ms(5000)
        assert script.kinds().count("ACK") == 1
        # It is the application's again.
        assert (await consumer.receive(1000)).data() == b"single"

    run_against(script, scenario, initial_backoff_ms=3000, maximum_backoff_ms=3000)


@pytest.mark.parametrize("batching", [True, False])
def test_a_message_that_waited_for_a_connection_is_not_sent_in_a_transaction_that_is_over(batching: bool) -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=batching)
        script.instead[Type.SEND] = ["cut"]
        txn = await client.transaction(1.0)
        first = asyncio.ensure_future(producer.send(b"1", txn=txn))
        plain = asyncio.ensure_future(producer.send(b"2"))
        with pytest.raises(gc.InvalidTxnStatusError, match="is over"):
            await first
        assert isinstance(await plain, gc.MessageId)
        sends = [command.send for _, command in script.heard if command.type == Type.SEND]
        assert [send.HasField("txnid_least_bits") for send in sends][1:].count(True) <= 1
        assert producer.pending_messages == 0

    run_against(script, scenario, initial_backoff_ms=3000, maximum_backoff_ms=3000)


def test_a_batch_that_is_open_when_the_time_of_its_transaction_ends_is_not_sent() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_max_publish_delay_ms=2000)
        txn = await client.transaction(1.0)
        producer.send_nowait(b"1", txn=txn)
        await wait_ms(3000)
        with pytest.raises(gc.InvalidTxnStatusError, match="is over"):
            await producer.flush()
        assert "SEND" not in script.kinds()

    run_against(script, scenario)


def test_an_answer_that_comes_behind_the_end_gives_the_message_back() -> None:
    """An abort waits no longer than the transaction lives for what is under way in it."""
    script = CoordinatorScript([entry_bytes([b"%d" % index for index in range(2)], batched=True)])
    late: list[bytes] = []

    def slow(command):
        answers = script(command)
        if command.type == Type.ACK:
            late.extend(answers)
            return []
        if command.type == Type.END_TXN:
            return answers + late
        return answers

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s", consumer_type=gc.ConsumerType.Shared)
        first, _ = [await consumer.receive(1000) for _ in range(2)]
        txn = await client.transaction(1.0)
        acknowledging = asyncio.ensure_future(consumer.acknowledge(first, txn=txn))
        await wait_ms(10)
        await txn.abort()
        await acknowledging
        (topic,) = consumer.held
        assert not topic.acks.in_transactions.is_held((1, 0), 0)

    run_against(slow, scenario)


@pytest.mark.parametrize("is_commit", [True, False])
def test_client_holds_no_transaction_that_is_over(is_commit: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        txn = await client.transaction()
        assert client.is_in_use
        await (txn.commit() if is_commit else txn.abort())
        assert not client.is_in_use

    run(scenario)
