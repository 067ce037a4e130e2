"""Transactions that another client ends by their id, and entries that are sent in them encoded already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import geminga.client as gc
from geminga.client import TransactionState as State
from geminga.client.producer_rules.encoded_batch import EncodedBatch
from geminga.client.producer_rules.message import EncodedMessage
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch
from support.worlds.client_world import URL, BrokerOnNode
from support.worlds.scripted_broker import run_against, run_with_broker
from support.worlds.scripted_coordinator import CoordinatorScript, Type

TOPIC = "persistent://public/default/topic"

Scenario = Callable[[gc.Client, BrokerOnNode], Awaitable[None]]


def run(scenario: Scenario, **options) -> None:
    run_with_broker(scenario, broker={"transaction_coordinator_enabled": True}, **options)


async def payloads(consumer: gc.Consumer[bytes]) -> list[bytes]:
    found = []
    while True:
        try:
            found.append((await consumer.receive(300)).data())
        except gc.Timeout:
            return found


async def written(client: gc.Client, *values: bytes) -> gc.Transaction:
    producer = await client.create_producer(TOPIC, batching_enabled=False)
    assert isinstance(producer, gc.EntryProducer)
    txn = await client.transaction()
    first = producer.last_sequence_id() + 1
    producer.send_encoded(EncodedBatch(encode_batch(list(values), first), len(values), first), txn=txn)
    producer.send_encoded(EncodedMessage(b"alone"), txn=txn)
    return txn


@pytest.mark.parametrize("commit", [True, False])
def test_a_detached_transaction_outlives_its_client_and_is_ended_by_its_id(commit: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "sub")
        async with gc.connect(URL, runtime=client.runtime) as other:
            txn = await written(other, b"1", b"2")
            assert await txn.detach() == txn.id
            assert txn.state is State.DETACHED
            with pytest.raises(gc.InvalidTxnStatusError, match="detached"):
                await txn.commit()
        assert await payloads(consumer) == []
        await client.end_transaction(txn.id, commit=commit)
        assert await payloads(consumer) == ([b"1", b"2", b"alone"] if commit else [])
        await client.end_transaction(txn.id, commit=commit)  # its answer may have been lost
        with pytest.raises(gc.InvalidTxnStatusError):
            await client.end_transaction(txn.id, commit=not commit)
        with pytest.raises(gc.TransactionNotFound):
            await client.end_transaction(gc.TxnId(txn.id.coordinator, txn.id.number + 1000), commit=commit)

    run(scenario)


def test_what_takes_no_end_and_no_detaching() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "sub")
        producer = await client.create_producer(TOPIC)
        await producer.send(b"1")
        txn = await client.transaction()
        await consumer.acknowledge(await consumer.receive(1000), txn=txn)
        with pytest.raises(gc.NotAllowedError, match="acknowledgments"):
            await txn.detach()
        await txn.commit()
        with pytest.raises(gc.InvalidTxnStatusError, match="committed"):
            await txn.detach()
        with pytest.raises(gc.InvalidConfiguration, match="txn_id"):
            await client.end_transaction((1, 2), commit=True)  # type: ignore[arg-type]

    run(scenario)


def test_detaching_with_a_message_that_was_not_stored_aborts_and_raises_its_error() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        script.instead[Type.ADD_PARTITION_TO_TXN] = [pb.NotAllowedError]
        txn = await written(client, b"1")
        with pytest.raises(gc.NotAllowedError):
            await txn.detach()
        assert txn.state is State.ABORTED
        assert [command.endTxn.txn_action for _, command in script.heard if command.type == Type.END_TXN] == [pb.ABORT]

    run_against(script, scenario)


def test_a_detached_transaction_is_asked_about_no_more_when_its_client_is_closed() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        await (await written(client, b"1")).detach()
        await client.close()
        assert "END_TXN" not in script.kinds()

    run_against(script, scenario)


def test_entries_that_were_sent_again_though_the_broker_remembers_no_sequence_ids_are_counted() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        assert isinstance(producer, gc.EntryProducer)
        producer.send_encoded(EncodedMessage(b"1"))
        await producer.flush()
        assert producer.unsure_resends == 0
        script.instead[Type.SEND] = ["cut"]
        producer.send_encoded(EncodedMessage(b"2"))
        await asyncio.wait_for(producer.flush(), 60)
        assert producer.unsure_resends == 1

    run_against(script, scenario)


def test_entries_that_were_sent_again_to_a_broker_that_deduplicates_are_stored_once() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "sub")
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        assert isinstance(producer, gc.EntryProducer)
        producer.send_encoded(EncodedMessage(b"1"))
        await producer.flush()
        producer.send_encoded(EncodedMessage(b"2"))
        await broker.restart()
        await producer.flush()
        assert producer.unsure_resends == 0
        assert await payloads(consumer) == [b"1", b"2"]

    run_with_broker(scenario, broker={"deduplication": True})
