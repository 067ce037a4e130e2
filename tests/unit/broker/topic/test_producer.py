"""Batches of a producer: their answers leave in the order the entries came."""

from __future__ import annotations

from geminga.broker.core.producer_access import AccessMode
from geminga.broker.topic.producer import Producer, is_terminal
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult
from geminga.model.errors import (
    ChecksumMismatchError,
    DiskFullError,
    LedgerFencedError,
    NotAllowedError,
    TopicTerminatedError,
)
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker


async def connected(world: BrokerWorld) -> tuple[Client, Producer]:
    client = await world.publisher(producer_name="p")
    return client, world.broker.topics[TOPIC].producers["p"]


def begun(producer: Producer, *sequence_ids: int) -> PublishBatch:
    batch = PublishBatch(producer, [b"entry"] * len(sequence_ids), [(at, at) for at in sequence_ids], len(sequence_ids))
    producer.begin(batch, 10)
    return batch


def test_later_decision_waits_for_earlier_answers() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, producer = await connected(world)
        first = begun(producer, 0, 1)
        producer.reject(2, ChecksumMismatchError("bad"))
        third = begun(producer, 3)
        third.stored(7, 9, 1)
        assert producer.pending_batches == 3
        assert client.connection.publishes.pending == 4
        first.stored(7, 5, 1)
        assert producer.pending_batches == 3
        first.stored(8, 0, 1)
        assert producer.pending_batches == 0
        ids = [(await client.receipt()).message_id for _ in range(2)]
        assert [(found.ledgerId, found.entryId) for found in ids] == [(7, 5), (8, 0)]
        assert (await client.expect(Type.SEND_ERROR)).send_error.sequence_id == 2
        assert (await client.receipt()).sequence_id == 3

    run_with_broker(scenario)


def test_part_of_a_batch_may_fail() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, producer = await connected(world)
        topic = producer.topic
        batch = begun(producer, 0, 1)
        topic.publishing.pending_batches += 1
        batch.appended(AppendResult(7, 5, 0, 1, None))
        batch.appended(AppendResult(-1, -1, 1, 1, DiskFullError("full")))
        assert (await client.receipt()).sequence_id == 0
        assert (await client.expect(Type.SEND_ERROR)).send_error.sequence_id == 1
        await client.expect(Type.CLOSE_PRODUCER)
        assert topic.publishing.messages_in == 0
        assert producer.is_closed

    run_with_broker(scenario)


def test_fenced_ledger_unloads_the_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, producer = await connected(world)
        batch = begun(producer, 0)
        producer.topic.publishing.pending_batches += 1
        batch.appended(AppendResult(-1, -1, 0, 1, LedgerFencedError("another owner")))
        await client.expect(Type.CLOSE_PRODUCER)
        await world.broker.registry.unload(TopicName.parse(TOPIC))
        assert TOPIC not in world.broker.topics

    run_with_broker(scenario)


def test_closed_producer_is_silent_and_drops_what_comes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, producer = await connected(world)
        batch = begun(producer, 0)
        producer.disconnect()
        producer.disconnect()
        await client.expect(Type.CLOSE_PRODUCER)
        producer.publish(PublishBatch(producer, [b"late"], [(1, 1)], 1))
        batch.stored(1, 1, 1)
        assert producer.pending_batches == 0
        assert not client.received
        assert client.connection.publishes.pending == 0
        assert producer.access_mode is AccessMode.SHARED

    run_with_broker(scenario)


def test_errors_that_speak_for_themselves_do_not_disconnect() -> None:
    assert is_terminal(TopicTerminatedError("over"))
    assert is_terminal(NotAllowedError("no"))
    assert not is_terminal(DiskFullError("full"))
