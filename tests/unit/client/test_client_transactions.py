"""Transactions of our client in virtual time against a real broker: what counts, what comes again, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import geminga.client as gc
from geminga.client import TransactionState as State
from geminga.runtime import wait_ms
from support.worlds.client_world import URL, BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"
OTHER = "persistent://public/default/other"

Scenario = Callable[[gc.Client, BrokerOnNode], Awaitable[None]]


def run(scenario: Scenario, **options) -> None:
    run_with_broker(scenario, broker={"transaction_coordinator_enabled": True}, **options)


async def came(consumer: gc.Consumer[bytes], wait: int = 300) -> list[gc.Message[bytes]]:
    """All that comes until nothing does for a while."""
    found = []
    while True:
        try:
            found.append(await consumer.receive(wait))
        except gc.Timeout:
            return found


async def payloads(consumer: gc.Consumer[bytes]) -> list[bytes]:
    return [message.data() for message in await came(consumer)]


async def subscribed(client: gc.Client, topic=TOPIC, name: str = "sub", **options) -> gc.Consumer[bytes]:
    return await client.subscribe(topic, name, initial_position=gc.InitialPosition.Earliest, **options)


def test_what_is_sent_is_seen_when_the_transaction_is_committed_and_never_when_it_is_aborted() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        one, two = await client.create_producer(TOPIC), await client.create_producer(OTHER, batching_enabled=False)
        consumer, other = await subscribed(client), await subscribed(client, OTHER)
        async with client.transaction() as txn:
            assert txn.state is State.OPEN
            await one.send(b"1", txn=txn)
            two.send_nowait(b"2", txn=txn)
            one.send_nowait(b"3", txn=txn, partition_key="k", properties={"p": "v"})
            assert await payloads(consumer) == []
        assert txn.state is State.COMMITTED
        assert await payloads(consumer) == [b"1", b"3"]
        assert await payloads(other) == [b"2"]
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as txn:
                await one.send(b"4", txn=txn)
                two.send_nowait(b"5", txn=txn)
                raise ZeroDivisionError
        assert txn.state is State.ABORTED
        await one.send(b"6")
        await two.send(b"7")
        assert await payloads(consumer) == [b"6"]
        assert await payloads(other) == [b"7"]

    run(scenario)


@pytest.mark.parametrize("end", ["open", "aborted", "committed"])
def test_a_reader_at_latest_inclusive_begins_with_the_newest_message_that_may_be_read(end: str) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        await producer.send(b"0")
        await producer.send(b"1")
        txn = await client.transaction()
        for payload in (b"2", b"3"):
            await producer.send(payload, txn=txn)
        if end != "open":
            await (txn.commit() if end == "committed" else txn.abort())
        async with client.create_reader(TOPIC, gc.MessageId.latest, start_message_id_inclusive=True) as reader:
            assert await reader.has_message_available()
            assert (await reader.read_next(1000)).data() == (b"3" if end == "committed" else b"1")
            assert not await reader.has_message_available()
            if end == "open":
                await txn.commit()
                assert [(await reader.read_next(1000)).data() for _ in range(2)] == [b"2", b"3"]

    run(scenario)


def test_a_batch_holds_messages_of_one_transaction() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_max_publish_delay_ms=10_000)
        consumer = await subscribed(client)
        one, two = await client.transaction(), await client.transaction()
        assert one.id != two.id
        for index, txn in enumerate((None, None, one, one, one, two, one, None, None)):
            producer.send_nowait(b"%d" % index, txn=txn)
        await asyncio.gather(two.commit(), producer.flush())
        await one.abort()
        messages = await came(consumer)
        assert [message.data() for message in messages] == [b"0", b"1", b"5", b"7", b"8"]
        sizes = [message.message_id().batch_size() for message in messages]
        assert [max(size, 1) for size in sizes] == [2, 2, 1, 2, 2]
        stored = await broker.messages(TOPIC)
        entries: dict[tuple[int, int], list[bytes]] = {}
        for message in stored:
            if message.payload:  # markers have none
                entries.setdefault((message.ledger_id, message.entry_id), []).append(message.payload)
        assert list(entries.values()) == [[b"0", b"1"], [b"2", b"3", b"4"], [b"5"], [b"6"], [b"7", b"8"]]

    run(scenario)


@pytest.mark.parametrize("consumer_type", [gc.ConsumerType.Exclusive, gc.ConsumerType.Shared])
@pytest.mark.parametrize("batching", [True, False])
def test_acknowledgments_count_with_the_commit_and_come_again_after_an_abort(
    consumer_type: gc.ConsumerType, batching: bool
) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=batching)
        consumer = await subscribed(client, consumer_type=consumer_type)
        for index in range(6):
            producer.send_nowait(b"%d" % index)
        await producer.flush()
        messages = await came(consumer)
        assert len(messages) == 6
        txn = await client.transaction()
        await consumer.acknowledge(messages[0], txn=txn)
        await consumer.acknowledge(messages[1:3], txn=txn)
        assert await payloads(consumer) == []
        await txn.abort()
        again = await came(consumer)
        assert {message.data() for message in again} >= {b"0", b"1", b"2"}, "what was held comes again"
        async with client.transaction() as txn:
            await consumer.acknowledge([m for m in messages if m.data() in (b"0", b"1", b"5")], txn=txn)
        await consumer.redeliver_unacknowledged_messages()
        left = await payloads(consumer)
        assert sorted(set(left)) == [b"2", b"3", b"4"]
        async with client.transaction() as txn:
            await consumer.acknowledge([m for m in messages if m.data() in left], txn=txn)
        await consumer.close()
        consumer = await subscribed(client, consumer_type=consumer_type)
        assert await payloads(consumer) == []

    run(scenario)


def test_cumulative_acknowledgment_in_a_transaction() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await subscribed(client)
        for index in range(6):
            producer.send_nowait(b"%d" % index)
        await producer.flush()
        producer.send_nowait(b"6")
        await producer.flush()
        messages = await came(consumer)
        for commit in (False, True):
            txn = await client.transaction()
            await consumer.acknowledge_cumulative(messages[2], txn=txn)
            await (txn.commit() if commit else txn.abort())
            await consumer.redeliver_unacknowledged_messages()
            expected = [b"3", b"4", b"5", b"6"] if commit else [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
            assert await payloads(consumer) == expected
        async with client.transaction() as txn:
            await consumer.acknowledge_cumulative(messages[5].message_id(), txn=txn)
        await consumer.close()
        assert await payloads(await subscribed(client)) == [b"6"]

    run(scenario)


def test_plain_and_transactional_acknowledgments_of_one_batch_make_it_whole() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await subscribed(client, ack_receipt_enabled=True, batch_index_ack_enabled=False)
        for index in range(4):
            producer.send_nowait(b"%d" % index)
        await producer.flush()
        messages = await came(consumer)
        await consumer.acknowledge(messages[:2])  # without batch-index acknowledgment the broker hears nothing of it
        async with client.transaction() as txn:
            await consumer.acknowledge(messages[2:], txn=txn)
        await consumer.flush_acknowledgements()
        await consumer.close()
        assert await payloads(await subscribed(client)) == []

    run(scenario)


@pytest.mark.parametrize("by_index", [True, False])
@pytest.mark.parametrize("how", ["plain", "transaction", "cumulative"])
def test_what_another_transaction_holds_of_a_batch_is_not_acknowledged_with_the_rest(how: str, by_index: bool) -> None:
    """It was not delivered, and no word may be said of it: the transaction may be aborted."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        options: gc.ConsumerArguments = {"ack_receipt_enabled": True, "batch_index_ack_enabled": by_index}
        if how != "cumulative":
            options["consumer_type"] = gc.ConsumerType.Shared
        first = await subscribed(client, **options)
        for index in range(5):
            producer.send_nowait(b"%d" % index)
        await producer.flush()
        holder = await client.transaction()
        held = await came(first)
        await first.acknowledge(held[4 if how == "cumulative" else 2], txn=holder)
        await first.close()
        second = await subscribed(client, **options)
        rest = await came(second)
        assert [m.data() for m in rest] == [
            m.data() for m in held if m.data() != (b"4" if how == "cumulative" else b"2")
        ]
        if how == "plain":
            await second.acknowledge(rest)
        elif how == "cumulative":
            await second.acknowledge_cumulative(rest[-1])
        else:
            async with client.transaction() as txn:
                await second.acknowledge(rest, txn=txn)
        await holder.abort()
        await second.redeliver_unacknowledged_messages()
        again = await came(second)
        # Twice where it was on its way when all was asked for again.
        assert {m.data() for m in again} == {b"4" if how == "cumulative" else b"2"}
        await second.acknowledge(again)
        await second.close()
        assert await payloads(await subscribed(client, **options)) == []

    run(scenario)


def test_a_conflict_is_told_and_lets_the_transaction_be_aborted_only() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await subscribed(client, consumer_type=gc.ConsumerType.Shared)
        out = await client.create_producer(OTHER)
        reader = await subscribed(client, OTHER)
        await producer.send(b"m")
        message = await consumer.receive(1000)
        one, two = await client.transaction(), await client.transaction()
        await consumer.acknowledge(message, txn=one)
        await out.send(b"two", txn=two)
        with pytest.raises(gc.TransactionConflict):
            await consumer.acknowledge(message, txn=two)
        with pytest.raises(gc.TransactionConflict):
            await two.commit()
        assert two.state is State.ABORTED
        await out.send(b"one", txn=one)
        await one.commit()
        assert await payloads(reader) == [b"one"]

    run(scenario)


def test_a_transaction_that_is_not_open_takes_nothing() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await subscribed(client)
        await producer.send(b"m")
        message = await consumer.receive(1000)
        ended, aborted = await client.transaction(), await client.transaction()
        timed_out = await client.transaction(timedelta(seconds=2))
        await ended.commit()
        await aborted.abort()
        await producer.send(b"lost", txn=timed_out)
        await wait_ms(2100)
        for txn, state in ((ended, State.COMMITTED), (aborted, State.ABORTED), (timed_out, State.TIMED_OUT)):
            assert txn.state is state
            with pytest.raises(gc.InvalidTxnStatusError, match=state.value):
                await producer.send(b"no", txn=txn)
            with pytest.raises(gc.InvalidTxnStatusError):
                producer.send_nowait(b"no", txn=txn)
            with pytest.raises(gc.InvalidTxnStatusError):
                await consumer.acknowledge(message, txn=txn)
            with pytest.raises(gc.InvalidTxnStatusError):
                await txn.commit()
            with pytest.raises(gc.InvalidTxnStatusError):
                await txn.abort()
        with pytest.raises(gc.InvalidTxnStatusError):
            async with client.transaction(0.5):
                await wait_ms(600)
        await wait_ms(5000)
        assert await payloads(consumer) == [], "the broker aborted what timed out"

    run(scenario)


def test_what_is_no_transaction_of_this_client_is_refused() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await subscribed(client)
        await producer.send(b"m")
        message = await consumer.receive(1000)
        async with gc.connect(URL, runtime=client.runtime) as stranger:
            foreign = await stranger.transaction()
            for use in (
                lambda txn: producer.send(b"x", txn=txn),
                lambda txn: consumer.acknowledge(message, txn=txn),
                lambda txn: consumer.acknowledge_cumulative(message, txn=txn),
            ):
                with pytest.raises(gc.NotAllowedError, match="another client's"):
                    await use(foreign)
                with pytest.raises(gc.InvalidMessage, match="expected a transaction"):
                    await use("t")
        assert foreign.state is State.ABORTED, "a client that is closed aborts what is open"
        with pytest.raises(gc.AlreadyClosed):
            await stranger.transaction()
        for timeout in (0, -1, "1", True, float("nan"), float("inf"), timedelta(0)):
            with pytest.raises(gc.InvalidConfiguration, match="timeout="):
                await client.transaction(timeout)

    run(scenario)


def test_a_cluster_without_transactions_says_so() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        with pytest.raises(gc.NotAllowedError, match="transactionCoordinatorEnabled"):
            async with client.transaction():
                raise AssertionError

    run_with_broker(scenario)


def test_cancelling_the_block_aborts_and_cancelling_the_commit_does_not_stop_it() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await subscribed(client)
        begun: list[gc.Transaction] = []

        async def block() -> None:
            async with client.transaction() as txn:
                begun.append(txn)
                await producer.send(b"cancelled", txn=txn)
                await wait_ms(10_000)

        task = asyncio.ensure_future(block())
        await wait_ms(1000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert begun[0].state is State.ABORTED
        txn = await client.transaction()
        await producer.send(b"committed", txn=txn)
        commit = asyncio.ensure_future(txn.commit())
        await wait_ms(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert txn.state is State.COMMITTING
        await txn.commit()
        assert await payloads(consumer) == [b"committed"]

    run(scenario)


def test_coordinators_take_turns() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        begun = [await client.transaction() for _ in range(6)]
        assert [txn.id.coordinator for txn in begun] == [0, 1, 2, 0, 1, 2]

    run(scenario)


@pytest.mark.parametrize("batching_type", [gc.BatchingType.Default, gc.BatchingType.KeyBased])
def test_partitions_keys_chunks_and_schemas(batching_type: gc.BatchingType) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        chunked = await client.create_producer(
            TOPIC, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=5000
        )
        keyed = await client.create_producer(OTHER, batching_type=batching_type)
        consumer = await subscribed(client, [TOPIC, OTHER])
        large = bytes(range(256)) * 100
        for commit in (False, True):
            txn = await client.transaction()
            for index in range(20):
                keyed.send_nowait(b"%d" % index, partition_key=str(index % 3), txn=txn)
            await chunked.send(large, txn=txn)
            await (txn.commit() if commit else txn.abort())
        messages = await came(consumer)
        assert sorted(message.data() for message in messages) == sorted([large, *(b"%d" % i for i in range(20))])
        for commit in (False, True):
            txn = await client.transaction()
            await consumer.acknowledge(messages, txn=txn)
            await (txn.commit() if commit else txn.abort())
        await consumer.close()
        assert await payloads(await subscribed(client, [TOPIC, OTHER])) == []

    run(scenario)


def test_a_message_that_was_not_stored_aborts_the_commit_with_its_error() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_max_allowed_size_in_bytes=1 << 30)
        consumer = await subscribed(client)
        with pytest.raises(gc.MessageTooBig):
            async with client.transaction() as txn:
                producer.send_nowait(b"small", txn=txn)
                await producer.flush()
                producer.send_nowait(bytes(6 << 20), txn=txn)
        assert txn.state is State.ABORTED
        await producer.send(b"after")
        assert await payloads(consumer) == [b"after"]

    run(scenario)


async def send_in_tens(producer: gc.Producer, payloads: list[bytes], **message: Any) -> None:
    """Ten at a time, which may be batches."""
    for start in range(0, len(payloads), 10):
        for payload in payloads[start : start + 10]:
            producer.send_nowait(payload, **message)
        await producer.flush()


async def move(client: gc.Client, consumer: gc.Consumer[bytes], producer: gc.Producer, *, commit: bool) -> bytes:
    """One message from the consumer to the producer in a transaction."""
    message = await consumer.receive(1000)
    txn = await client.transaction()
    await producer.send(message.data(), txn=txn)
    await consumer.acknowledge(message, txn=txn)
    await (txn.commit() if commit else txn.abort())
    return message.data()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", [gc.ConsumerType.Exclusive, gc.ConsumerType.Failover])
def test_messages_moved_in_transactions_stay_in_order_though_some_are_aborted(kind, batched: bool) -> None:
    """What was acknowledged in a committed transaction came again after the abort of another, and conflicted."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=batched)
        out = await client.create_producer(OTHER)
        consumer, reader = await subscribed(client, consumer_type=kind), await subscribed(client, OTHER)
        numbers = [b"%d" % number for number in range(30)]
        await send_in_tens(producer, numbers)
        moved = [await move(client, consumer, out, commit=count % 5 > 0) for count in range(1, 38)]
        assert moved == [n for index, n in enumerate(numbers) for n in ([n, n] if index and index % 4 == 0 else [n])]
        assert await payloads(consumer) == []
        assert await payloads(reader) == numbers
        await consumer.close()
        assert await payloads(await subscribed(client, consumer_type=kind)) == []

    run(scenario)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", [gc.ConsumerType.Shared, gc.ConsumerType.KeyShared])
def test_messages_of_a_shared_subscription_are_moved_once_though_transactions_are_aborted(kind, batched: bool) -> None:
    """Of a batch all came again, while the consumer had the rest of it: that conflicted later."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=batched)
        out = await client.create_producer(OTHER)
        consumer, reader = await subscribed(client, consumer_type=kind), await subscribed(client, OTHER)
        numbers = [b"%d" % number for number in range(30)]
        await send_in_tens(producer, numbers, partition_key="key")
        for count in range(1, 38):
            await move(client, consumer, out, commit=count % 5 > 0)
        assert await payloads(consumer) == []
        assert sorted(await payloads(reader), key=int) == numbers
        await consumer.close()
        assert await payloads(await subscribed(client, consumer_type=kind)) == []

    run(scenario)


@pytest.mark.parametrize("batched", [True, False])
def test_what_the_application_has_in_its_hands_does_not_come_again_with_what_an_abort_gives_back(batched: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=batched)
        consumer = await subscribed(client)
        for number in range(8):
            producer.send_nowait(b"%d" % number)
        await producer.flush()
        held = [await consumer.receive(1000) for _ in range(5)]
        one, two, three = [await client.transaction() for _ in range(3)]
        await consumer.acknowledge(held[1], txn=one)
        await consumer.acknowledge([held[0], held[3]], txn=two)
        await one.abort()
        assert (await consumer.receive(1000)).data() == b"1"
        await two.abort()
        again = await came(consumer)
        assert [message.data() for message in again] == [b"0", b"3", b"5", b"6", b"7"]
        await consumer.acknowledge([held[1], held[2], *again], txn=three)
        await three.commit()
        await consumer.acknowledge(held[4])
        await consumer.close()
        assert await payloads(await subscribed(client)) == []

    run(scenario)


def test_what_is_asked_for_after_an_abort_is_everything() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await subscribed(client, negative_ack_redelivery_delay_ms=10_000)
        for number in range(4):
            await producer.send(b"%d" % number)
        held = [await consumer.receive(1000) for _ in range(3)]
        await consumer.negative_acknowledge(held[0])
        txn = await client.transaction()
        await consumer.acknowledge(held[1], txn=txn)
        await txn.abort()
        assert await payloads(consumer) == [b"1", b"3"]
        assert [message.data() for message in await came(consumer, 15_000)] == [b"0", b"1", b"2", b"3"]

    run(scenario)
