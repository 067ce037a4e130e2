"""A topic that is truncated: every subscription is at its end, and what other features know stays known."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import DiskFullError, GemingaError
from geminga.model.position import EARLIEST
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from support.clusters.transacting import transacting
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker

SMALL_LEDGERS = ManagedLedgerConfig(max_entries_per_ledger=4, min_rollover_minutes=0)
Sub = pb.CommandSubscribe


async def taken(client: Client) -> list[bytes]:
    """Payloads that came since it was looked at last."""
    await wait_ms(50)
    found = []
    for command, frame in client.received:
        if command.type == Type.MESSAGE:
            _, start = split_entry(frame)
            found.append(frame[start:])
    client.received.clear()
    return found


async def topic_with(world: BrokerWorld, messages: int) -> PersistentTopic:
    """With so many, of a producer that is known."""
    client = await world.publisher(producer_name="producer")
    for sequence_id in range(messages):
        await client.publish(sequence_id)
    return world.topic


async def sequence_id_known(world: BrokerWorld) -> int:
    return (await (await world.client()).create_producer(producer_name="producer")).last_sequence_id


@pytest.mark.parametrize("is_killed", [True, False])
def test_sequence_ids_of_what_is_deleted_are_known_after_a_restart_and_after_a_kill(is_killed: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_with(world, 9)
        await topic.truncate()
        assert topic.ledger.ledgers.entry_count == 0
        if not is_killed:
            await world.restart()
            assert await sequence_id_known(world) == 8
            return
        # Whoever takes over now reads what is stored.
        other = BrokerWorld(
            world.runtime, world.config, world.ledger_config, server=world.metadata.server, bookie=world.bookie
        )
        await other.start()
        assert await sequence_id_known(other) == 8
        await other.stop()

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, deduplication=True)


def test_without_a_snapshot_of_sequence_ids_nothing_is_deleted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_with(world, 9)
        world.bookie.add_error = DiskFullError("full")
        world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * 1_000)
        with pytest.raises(GemingaError):
            await topic.truncate()
        assert topic.ledger.ledgers.entry_count == 9
        world.bookie.add_error = None
        world.metadata.faults.next_writes.clear()
        await topic.truncate()
        assert topic.ledger.ledgers.entry_count == 0
        await world.restart()
        assert await sequence_id_known(world) == 8

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, deduplication=True)


def test_an_entry_that_no_snapshot_of_sequence_ids_knows_stays() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_with(world, 8)
        # As a failed write that was stored: deduplication has not read it again yet.
        stored = asyncio.get_running_loop().create_future()
        metadata = pb.MessageMetadata(producer_name="producer", sequence_id=8, publish_time=1)
        topic.ledger.append([encode_entry(metadata, b"untold")], stored.set_result)
        await stored
        await topic.truncate()
        assert topic.ledger.ledgers.entry_count == 1
        await world.restart()
        assert await sequence_id_known(world) == 8

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, deduplication=True)


def test_consumers_owe_no_acknowledgment_of_what_is_gone() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, reader = await world.client(), await world.client()
        await client.create_producer()
        await reader.subscribe(subType=Sub.Shared)
        for number in range(6):
            await client.publish(number, b"old%d" % number)
        # More it is not given before it acknowledges.
        assert await taken(reader) == [b"old0", b"old1", b"old2"]
        await world.topic.truncate()
        for number in range(6, 9):
            await client.publish(number, b"new%d" % number)
        assert await taken(reader) == [b"new6", b"new7", b"new8"]

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, max_unacked_messages_per_consumer=3)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared])
def test_consumers_get_what_comes_later_and_nothing_of_what_was_there(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, reader = await world.client(), await world.client()
        await client.create_producer()
        await reader.subscribe(subType=sub_type, permits=3)
        for number in range(10):
            await client.publish(number, b"old%d" % number)
        assert await taken(reader) == [b"old0", b"old1", b"old2"]
        topic = world.topic
        await topic.truncate()
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        reader.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))
        redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        reader.send(
            pb.BaseCommand(type=Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=redeliver)
        )
        await client.publish(10, b"new")
        assert await taken(reader) == [b"new"]

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, active_consumer_failover_delay_ms=0)


def test_readers_and_delayed_messages_are_passed_over_too() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, reader, shared = await world.client(), await world.client(), await world.client()
        await client.create_producer()
        await reader.subscribe(subscription="reader", durable=False, permits=1)
        await shared.subscribe(subType=Sub.Shared)
        now_ms = world.runtime.clock.wall_ms()
        client.send_message(0, b"delayed", metadata={"deliver_at_time": now_ms + 5_000})
        await client.receipt()
        for number in range(1, 7):
            await client.publish(number, b"old%d" % number)
        assert await taken(reader) == [b"delayed"]
        assert len(await taken(shared)) == 6
        await world.topic.truncate()
        reader.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))
        await client.publish(7, b"new")
        assert await taken(reader) == [b"new"]
        await wait_ms(10_000)
        assert await taken(shared) == [b"new"]
        assert world.topic.ledger.ledgers.entry_count == 1

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, active_consumer_failover_delay_ms=0)


@pytest.mark.parametrize("commits", [True, False])
def test_what_an_open_transaction_published_stays_until_it_ends(commits: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await transacting(world), await world.client()
        await reader.subscribe(permits=1)
        await writer.client.create_producer()
        for number in range(6):
            await writer.publish(b"old%d" % number)
        txn_id = await writer.begin()
        await writer.add_partition(txn_id)
        await writer.publish(b"open", txn_id)
        await writer.publish(b"behind it")
        topic = world.topic
        await topic.truncate()
        assert topic.ledger.ledgers.first_position.ledger_id >= topic.ledger.extent.readable_position.ledger_id
        reader.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))
        await writer.end(txn_id, commit=commits)
        assert [each for each in await taken(reader) if each != b"old0"] == [
            *([b"open"] if commits else []),
            b"behind it",
        ]
        await topic.truncate()
        assert topic.ledger.ledgers.entry_count == 0

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, transaction_coordinator_enabled=True)


def test_what_is_published_while_it_runs_is_delivered_and_stays() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, reader = await world.client(), await world.client()
        await client.create_producer()
        await reader.subscribe()
        topic = world.topic
        await topic.create_subscription("other", EARLIEST)
        for number in range(10):
            await client.publish(number, b"old")
        assert len(await taken(reader)) == 10
        truncating = asyncio.ensure_future(topic.truncate())
        sent = [b"new%d" % number for number in range(50)]
        for number, payload in enumerate(sent, 10):
            client.send_message(number, payload)
            if number % 7 == 0:
                await client.receipt()
        await truncating
        await wait_ms(100)
        assert await taken(reader) == sent
        assert [each.cursor.backlog_count for each in topic.subscriptions.values()] == [50, 50]
        entries = await topic.ledger.reader.read_range(topic.ledger.ledgers.first_position, 100, 1 << 20)
        assert len(entries) >= 50
        await world.restart()
        for name in ("sub", "other"):
            again = await world.subscriber(subscription=name)
            assert await taken(again) == sent

    run_with_broker(scenario, ledger_config=SMALL_LEDGERS, deduplication=True)
