"""Persistent topics: one append for what several connections bring, rollovers in the middle, termination."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName, is_internal_cursor
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import turns
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker, send_frame

NAME = TopicName.parse(TOPIC)


def test_connections_of_one_turn_share_an_append() -> None:
    async def scenario(world: BrokerWorld) -> None:
        clients = [await world.client() for _ in range(5)]
        for client in clients:
            await client.create_producer()
        await clients[0].publish(0)
        calls = world.bookie.add_calls
        for client in clients:
            client.send_bytes(b"".join(send_frame(sequence_id) for sequence_id in range(1, 4)))
        entry_id = 1
        for client in clients:
            for sequence_id in range(1, 4):
                receipt = await client.receipt()
                assert (receipt.sequence_id, receipt.message_id.entryId) == (sequence_id, entry_id)
                entry_id += 1
        assert world.bookie.add_calls == calls + 1
        assert world.topic.publishing.pending_batches == 0

    run_with_broker(scenario)


def test_appends_over_rollovers_are_answered_in_order_with_their_ids() -> None:
    async def scenario(world: BrokerWorld) -> None:
        first, second = await world.client(), await world.client()
        for client in (first, second):
            await client.create_producer()
        await world.topic.create_subscription("keeper", EARLIEST)
        for client in (first, second):
            client.send_bytes(b"".join(send_frame(sequence_id) for sequence_id in range(20)))
        ids = []
        for client in (first, second):
            for sequence_id in range(20):
                receipt = await client.receipt()
                assert receipt.sequence_id == sequence_id
                ids.append((receipt.message_id.ledgerId, receipt.message_id.entryId))
        assert ids == sorted(ids)
        assert len({ledger_id for ledger_id, _ in ids}) > 2
        entries = await world.topic.ledger.reader.read_range(world.topic.ledger.ledgers.first_position, 100, 1 << 20)
        assert [(entry.ledger_id, entry.entry_id) for entry in entries] == ids
        assert world.topic.publishing.messages_in == 40

    run_with_broker(scenario, ledger_config=ManagedLedgerConfig(max_entries_per_ledger=7, min_rollover_minutes=0))


def test_termination_stores_what_came_before_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        client.send_message(1)
        assert (await world.broker.registry.terminate(NAME)).entry_id == 1
        assert (await client.receipt()).sequence_id == 1
        assert world.topic.ledger.stored.terminated_position is not None

    run_with_broker(scenario)


@pytest.mark.parametrize("deduplicates", [False, True])
@pytest.mark.parametrize("head_start", range(12))
def test_termination_is_heard_first_by_a_closed_producer_whatever_it_has_under_way(head_start, deduplicates) -> None:
    """A client that gets SEND_ERROR before CLOSE_PRODUCER drops its producer and never asks why."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        sent = 0

        async def send_on() -> None:
            nonlocal sent
            while client.connection.members.producers:
                client.send_bytes(send_frame(sent) + send_frame(sent + 1))
                sent += 2
                await turns(1)

        async def end() -> Position:
            await turns(head_start)
            return await world.broker.registry.terminate(NAME)

        _, position = await asyncio.gather(send_on(), end())
        client.send_message(sent)
        client.request_producer(producer_name="again")
        await turns(100)
        kinds = [command.type for command, _ in client.received]
        receipts = kinds.count(Type.SEND_RECEIPT)
        # What was acknowledged is all that the topic has, and CLOSE_PRODUCER and the refusal are all that follows.
        assert receipts == position.entry_id + 1 == world.topic.ledger.ledgers.entry_count < sent
        assert kinds == [Type.SEND_RECEIPT] * receipts + [Type.CLOSE_PRODUCER, Type.ERROR]
        assert client.received[-1][0].error.error == pb.TopicTerminatedError

    run_with_broker(scenario, deduplication=deduplicates)


def test_producer_that_waits_for_access_hears_that_the_topic_was_terminated() -> None:
    async def scenario(world: BrokerWorld) -> None:
        first, second = await world.client(), await world.client()
        await first.create_producer(producer_access_mode=pb.Exclusive)
        await second.create_producer(producer_access_mode=pb.WaitForExclusive)
        await world.broker.registry.terminate(NAME)
        assert (await second.error()).error == pb.TopicTerminatedError
        await first.expect(Type.CLOSE_PRODUCER)

    run_with_broker(scenario)


def test_end_of_topic_is_told_to_consumers_that_acknowledged_everything() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber()
        await client.create_producer()
        await world.broker.registry.terminate(NAME)
        await client.expect(Type.REACHED_END_OF_TOPIC)

    run_with_broker(scenario)


def test_unload_waits_for_writes_under_way() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await world.topic.create_subscription("keeper", EARLIEST)
        await client.publish(0)
        client.send_message(1)
        await world.broker.registry.unload(NAME)
        topic = await world.broker.registry.get(NAME, create=False)
        assert isinstance(topic, PersistentTopic)
        assert topic.ledger.ledgers.entry_count == 2
        assert client.connection.publishes.pending == 0

    run_with_broker(scenario)


def test_client_that_takes_no_receipts_is_not_read_from() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        client.transport.buffered_bytes = 100 << 20
        client.connection.pause_writing()
        client.send_message(0)
        await client.receipt()
        await asyncio.sleep(0)  # noqa: TID251  # one turn of the loop
        assert client.transport.is_reading_paused
        client.transport.buffered_bytes = 0
        client.connection.resume_writing()
        assert not client.transport.is_reading_paused

    run_with_broker(scenario)


def test_cursors_of_the_broker_are_no_subscriptions() -> None:
    assert is_internal_cursor("pulsar.dedup")
    assert is_internal_cursor("pulsar.repl.other")
    assert not is_internal_cursor("pulsar-sub")
    assert not is_internal_cursor("pulsar.billing")
