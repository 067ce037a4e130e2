"""Transactions as the official clients do them, frame by frame: what ours does otherwise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.subscription.subscription import Subscription
from geminga.model import Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import transaction_of
from geminga.wire.pulsar.metadata import checksum_matches, peek_metadata
from support.clusters.transacting import Transacting, both_ends, producing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker, send_frame

NAME = TopicName.parse(TOPIC)


def run(scenario: Callable[[BrokerWorld], Awaitable[None]]) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True)


async def subscription(world: BrokerWorld) -> Subscription:
    topic = await world.broker.registry.get(NAME, create=False)
    found = topic.subscriptions["sub"]
    assert isinstance(found, Subscription)
    return found


async def send_as_go(writer: Transacting, sequence_id: int, payload: bytes, txn_id: TxnId, metadata: dict) -> None:
    """The transaction is named in the command; in the metadata is what is told."""
    frame = send_frame(
        sequence_id,
        payload,
        metadata=metadata,
        txnid_most_bits=txn_id.coordinator,
        txnid_least_bits=txn_id.number,
    )
    writer.client.send_bytes(frame)
    await wait_ms(50)


@pytest.mark.parametrize("is_unloaded", [False, True])
def test_a_transaction_that_only_the_command_names_is_known_to_readers_and_after_an_unload(is_unloaded: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await both_ends(world)
        commits, aborts = await writer.begin(), await writer.begin()
        for txn_id in (commits, aborts):
            await writer.add_partition(txn_id)
        await send_as_go(writer, 1, b"hidden", aborts, {})
        await send_as_go(writer, 2, b"shown", commits, {"partition_key": "k"})
        if is_unloaded:
            await world.broker.registry.unload(NAME)
            reader = await transacting(world)
            await reader.client.subscribe()
            assert await reader.read() == [], "both are open"
        await writer.end(aborts, commit=False)
        assert await reader.read() == [], "one is open"
        await writer.end(commits, commit=True)
        await wait_ms(50)
        entries = [entry for command, entry in reader.client.received if command.type == Type.MESSAGE]
        assert [entry[-5:] for entry in entries] == [b"shown"]
        metadata = peek_metadata(entries[0])
        assert metadata is not None
        assert transaction_of(metadata) == commits
        assert metadata.partition_key == "k"
        assert checksum_matches(entries[0])

    run(scenario)


def test_a_message_of_two_transactions_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        one, two = await writer.begin(), await writer.begin()
        await writer.add_partition(one)
        await send_as_go(writer, 1, b"x", one, {"txnid_most_bits": two.coordinator, "txnid_least_bits": two.number})
        (error,) = [each.send_error for each, _ in writer.client.received if each.type == Type.SEND_ERROR]
        assert error.error == pb.NotAllowedError

    run(scenario)


async def with_batch(world: BrokerWorld, count: int) -> tuple[Transacting, pb.MessageIdData]:
    """A consumer on Shared that got a batch, and the batch's id."""
    client = await transacting(world)
    await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
    await client.client.create_producer()
    single = pb.SingleMessageMetadata(payload_size=1).SerializeToString()
    payload = (len(single).to_bytes(4, "big") + single + b"x") * count
    frame = send_frame(1, payload, metadata={"num_messages_in_batch": count}, num_messages=count)
    client.client.send_bytes(frame)
    await wait_ms(50)
    ((message_id, _),) = client.messages()
    return client, message_id


def part(of: pb.MessageIdData, left: int, **fields) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=of.ledgerId, entryId=of.entryId, ack_set=[left], **fields)


def test_an_ack_set_without_the_size_of_its_batch_acknowledges_up_to_the_last_message() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, 5)
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        # Each names all that was acknowledged before, as the Go client's do.
        for left in (0b11110, 0b01110):
            assert not (await client.acknowledge([part(batch, left)], txn_id)).HasField("error")
        await client.end(txn_id, commit=True)
        assert list((await subscription(world)).cursor.state.ack_set(batch_position(batch)) or ()) == [0b01110]

    run(scenario)


def batch_position(batch: pb.MessageIdData) -> Position:
    return Position(batch.ledgerId, batch.entryId)


def test_a_batch_that_two_transactions_acknowledge_together_is_with_no_consumer() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, 3)
        one, two = await client.begin(), await client.begin()
        for txn_id in (one, two):
            await client.add_subscription(txn_id)
        held = await subscription(world)
        (consumer,) = held.consumers
        assert consumer.unacked_count == 3
        await client.acknowledge([part(batch, 0b110, batch_size=3)], one)
        assert consumer.unacked_count == 2
        await client.acknowledge([part(batch, 0b101, batch_size=3)], two)
        await client.acknowledge([part(batch, 0b011, batch_size=3)], two)
        assert consumer.unacked_count == 0
        await client.end(one, commit=True)
        await client.end(two, commit=False)
        assert await client.read() != [], "what was aborted comes again"
        assert consumer.unacked_count == 2

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_whose_rest_is_acknowledged_outside_of_the_transaction_is_with_no_consumer(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, batch = await with_batch(world, 3)
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        await client.acknowledge([part(batch, 0b110, batch_size=3)], txn_id)
        await client.acknowledge([part(batch, 0b001, batch_size=3)])
        await client.end(txn_id, commit=commit)
        (consumer,) = (await subscription(world)).consumers
        assert (await client.read() == []) is commit
        assert consumer.unacked_count == (0 if commit else 1)
        await client.acknowledge([part(batch, 0, batch_size=3)])
        assert consumer.unacked_count == 0

    run(scenario)


def test_an_abort_counts_as_a_redelivery_so_that_dead_letters_are_found() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
        await client.client.create_producer()
        await client.publish(b"x")
        for count in range(3):
            await wait_ms(50)
            (command,) = [each.message for each, _ in client.client.received if each.type == Type.MESSAGE]
            assert command.redelivery_count == count
            client.messages()
            txn_id = await client.begin()
            await client.add_subscription(txn_id)
            assert not (await client.acknowledge([command.message_id], txn_id)).HasField("error")
            await client.end(txn_id, commit=count == 2)
        assert await client.read() == []
        assert not (await subscription(world)).redeliveries.tracker(), "what is acknowledged is counted no more"

    run(scenario)
