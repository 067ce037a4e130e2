"""Acknowledgments in transactions against a script: what is one command, what is sent again, what is given up."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client import TransactionState as State
from geminga.client._messages import acks_in_transactions
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_consumer import entry_bytes
from support.worlds.scripted_coordinator import CoordinatorScript, Type

TOPIC = "persistent://public/default/topic"
BATCH = entry_bytes([b"%d" % index for index in range(70)], batched=True)
SINGLE = entry_bytes([b"single"])


async def _received(client: gc.Client, count: int) -> tuple[gc.Consumer[bytes], list[gc.Message[bytes]]]:
    consumer = await client.subscribe(TOPIC, "s", consumer_type=gc.ConsumerType.Shared)
    return consumer, [await consumer.receive(1000) for _ in range(count)]


def _acks(script: CoordinatorScript) -> list[pb.CommandAck]:
    return [command.ack for _, command in script.heard if command.type == Type.ACK]


def test_one_turn_is_one_command_with_what_is_left_of_each_batch() -> None:
    script = CoordinatorScript([BATCH, SINGLE])

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 71)
        async with client.transaction() as txn:
            await asyncio.gather(
                consumer.acknowledge(messages[0], txn=txn),
                consumer.acknowledge(messages[1].message_id(), txn=txn),
                consumer.acknowledge([messages[69], messages[70]], txn=txn),
            )
            await consumer.acknowledge(messages[2:69], txn=txn)
        first, second = _acks(script)
        assert [(one.entryId, one.batch_size) for one in first.message_id] == [(0, 70), (1, 0)]
        left = [word & 0xFFFFFFFFFFFFFFFF for word in first.message_id[0].ack_set]
        assert left == [0xFFFFFFFFFFFFFFFC, 0b011111]
        assert list(first.message_id[1].ack_set) == []
        assert (first.txnid_most_bits, first.txnid_least_bits) == txn.id
        assert list(second.message_id[0].ack_set) == [3, 0b100000], "what this one alone acknowledges"
        assert script.kinds().count("ADD_SUBSCRIPTION_TO_TXN") == 1
        kinds = script.kinds()
        assert kinds.index("ADD_SUBSCRIPTION_TO_TXN") < kinds.index("ACK")

    run_against(script, scenario)


@pytest.mark.parametrize("names_all", [False, True])
def test_all_of_a_batch_is_named_to_brokers_that_know_what_that_means(names_all: bool) -> None:
    script = CoordinatorScript([BATCH, SINGLE], names_all=names_all)

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 71)
        async with client.transaction() as txn:
            await consumer.acknowledge(messages, txn=txn)
        ((batch, single),) = [ack.message_id for ack in _acks(script)]
        assert (list(batch.ack_set), batch.batch_size) == (([0], 70) if names_all else ([], 0))
        assert (list(single.ack_set), single.batch_size) == ([], 0)

    run_against(script, scenario)


def test_what_was_not_answered_is_sent_again_over_the_next_connection() -> None:
    script = CoordinatorScript([SINGLE])

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 1)
        script.instead[Type.ACK] = ["cut"]
        async with client.transaction() as txn:
            await consumer.acknowledge(messages, txn=txn)
        assert txn.state is State.COMMITTED
        first, second = _acks(script)
        assert first.message_id == second.message_id
        assert first.request_id != second.request_id

    run_against(script, scenario)


def test_silence_ends_with_the_operation_timeout_and_the_transaction_with_it() -> None:
    script = CoordinatorScript([SINGLE])

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 1)
        script.instead[Type.ACK] = ["drop"] * 100
        txn = await client.transaction()
        with pytest.raises(gc.Timeout, match="no answer to an acknowledgment in"):
            await consumer.acknowledge(messages, txn=txn)
        with pytest.raises(gc.Timeout):
            await txn.commit()
        assert txn.state is State.ABORTED
        assert consumer.stats().ack_failures == 1

    run_against(script, scenario)


@pytest.mark.parametrize("kind", [Type.ACK, Type.ADD_SUBSCRIPTION_TO_TXN])
def test_a_refusal_is_raised_by_the_call_and_by_the_commit_and_not_by_the_abort(kind: int) -> None:
    script = CoordinatorScript([SINGLE])

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 1)
        for commit in (True, False):
            script.instead[kind] = [pb.TransactionConflict]
            txn = await client.transaction()
            with pytest.raises(gc.TransactionConflict):
                await consumer.acknowledge(messages, txn=txn)
            if commit:
                with pytest.raises(gc.TransactionConflict):
                    await txn.commit()
            else:
                await txn.abort()
            assert txn.state is State.ABORTED

    run_against(script, scenario)


def test_closing_the_consumer_ends_who_waits() -> None:
    script = CoordinatorScript([SINGLE])

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 1)
        script.instead[Type.ACK] = ["drop"] * 100
        txn = await client.transaction()
        waiting = asyncio.ensure_future(consumer.acknowledge(messages, txn=txn))
        await wait_ms(100)
        await consumer.close()
        with pytest.raises(gc.AlreadyClosed):
            await waiting
        with pytest.raises(gc.AlreadyClosed):
            await txn.commit()
        assert txn.state is State.ABORTED

    run_against(script, scenario)


def test_interceptors_hear_of_each_message() -> None:
    script = CoordinatorScript([BATCH])
    heard: list[tuple[int, object]] = []

    class Listening(gc.ConsumerInterceptor):
        def on_acknowledge(self, consumer: object, message_id: gc.MessageId, error: object) -> None:
            heard.append((message_id.batch_index(), type(error)))

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s", interceptors=[Listening()])
        messages = [await consumer.receive(1000) for _ in range(3)]
        async with client.transaction() as txn:
            await consumer.acknowledge(messages, txn=txn)
        assert heard == [(0, type(None)), (1, type(None)), (2, type(None))]

    run_against(script, scenario)


def test_more_entries_than_a_command_takes_are_acknowledged_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks_in_transactions, "IDS_MAX", 2)
    script = CoordinatorScript([SINGLE] * 5)

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 5)
        async with client.transaction() as txn:
            await consumer.acknowledge(messages, txn=txn)
        acked = [[one.entryId for one in ack.message_id] for ack in _acks(script)]
        assert acked == [[0, 1], [2, 3], [4]]

    run_against(script, scenario)


def test_a_message_of_more_chunks_than_a_command_takes_is_acknowledged_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acks_in_transactions, "IDS_MAX", 2)
    chunked = {"uuid": "u", "num_chunks_from_msg": 5, "total_chunk_msg_size": 10}
    script = CoordinatorScript([entry_bytes([b"xx"], chunk_id=part, **chunked) for part in range(5)])

    async def scenario(client: gc.Client) -> None:
        consumer, messages = await _received(client, 1)
        async with client.transaction() as txn:
            await consumer.acknowledge(messages, txn=txn)
        acked = [[one.entryId for one in ack.message_id] for ack in _acks(script)]
        assert acked == [[0, 1], [2, 3], [4]]

    run_against(script, scenario)
