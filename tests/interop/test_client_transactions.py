"""Our client in transactions, judged by both brokers: what counts, what comes again, what times out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from tools.standalone_process import StandaloneProcess

import geminga.client as gc
from geminga.client import TransactionState as State
from support.house.weekly_sample import sampled
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import set_partitions
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
TYPES = [gc.ConsumerType.Exclusive, gc.ConsumerType.Shared, gc.ConsumerType.KeyShared]
#: Nothing comes within this time.
QUIET_MS = 600


@pytest.fixture(scope="module")
def transacting(start_judge: Callable[[Mapping[str, str]], StandaloneProcess]) -> StandaloneProcess:
    """A broker with transactions."""
    return start_judge({"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"})


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_messages_are_seen_with_the_commit_alone(transacting, topic, batched: bool, partitions: int) -> None:
    async def main(client):
        if partitions:
            set_partitions(transacting.web_service_url, topic, partitions)
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        producer = await client.create_producer(topic, batching_enabled=batched)
        for commit in (False, True):
            txn = await client.transaction(30)
            for number in range(30):
                producer.send_nowait(b"m%d" % (number + 100 * commit), partition_key=str(number), txn=txn)
            await producer.send(b"m%d" % (99 + 100 * commit), txn=txn)
            assert await drain(consumer, QUIET_MS) == []
            await (txn.commit() if commit else txn.abort())
            assert txn.state is (State.COMMITTED if commit else State.ABORTED)
        assert contents(await drain(consumer, count=31)) == [*range(100, 130), 199]
        await producer.send(b"m7")
        assert contents(await drain(consumer, count=1)) == [7]

    run(transacting, main)


@pytest.mark.parametrize("type_", sampled("types whose acknowledgments are aborted", TYPES, 2))
@pytest.mark.parametrize("batched", [True, False])
def test_acknowledgments_come_again_after_an_abort_and_never_after_a_commit(
    transacting, topic, type_: gc.ConsumerType, batched: bool
) -> None:
    async def main(client):
        options = {"initial_position": EARLIEST, "consumer_type": type_}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 20, batched=batched)
        messages = await drain(consumer, count=20)
        txn = await client.transaction(30)
        await consumer.acknowledge(messages[:7], txn=txn)
        await txn.abort()
        await consumer.redeliver_unacknowledged_messages()
        again = await drain(consumer, QUIET_MS, count=20)
        assert set(contents(again)) == set(range(20))
        done = {contents([message])[0]: message for message in again}
        async with client.transaction(30) as txn:
            await consumer.acknowledge([done[number] for number in range(13)], txn=txn)
        await consumer.close()
        consumer = await client.subscribe(topic, "sub", **options)
        assert contents(await drain(consumer, QUIET_MS, count=7)) == list(range(13, 20))

    run(transacting, main)


@pytest.mark.parametrize("type_", sampled("types that are moved in transactions", TYPES, 2))
@pytest.mark.parametrize("batched", [True, False])
def test_consume_process_produce_stays_in_order_though_transactions_are_aborted(
    transacting, topic, batched: bool, type_: gc.ConsumerType
) -> None:
    """On Shared and Key_Shared there is no order, but each message is moved once."""

    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST, consumer_type=type_)
        reader = await client.subscribe(f"{topic}-out", "sub", initial_position=EARLIEST)
        out = await client.create_producer(f"{topic}-out")
        await publish(client, topic, 20, batched=batched)
        moved = []
        for count in range(1, 25):
            message = await consumer.receive(RECEIVE_MS)
            moved += contents([message])
            txn = await client.transaction(30)
            await out.send(message.data(), txn=txn)
            await consumer.acknowledge(message, txn=txn)
            await (txn.commit() if count % 5 else txn.abort())
        results = contents(await drain(reader, count=20))
        assert sorted(results) == list(range(20))
        if type_ is gc.ConsumerType.Exclusive:
            assert moved == sorted([*range(20), 4, 8, 12, 16])
            assert results == list(range(20))

    run(transacting, main)


def test_cumulative_acknowledgment_in_a_transaction(transacting, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 20, batched=False)
        messages = await drain(consumer, count=20)
        for commit in (False, True):
            txn = await client.transaction(30)
            await consumer.acknowledge_cumulative(messages[11], txn=txn)
            await (txn.commit() if commit else txn.abort())
            await consumer.redeliver_unacknowledged_messages()
            left = list(range(12 if commit else 0, 20))
            assert contents(await drain(consumer, QUIET_MS, count=len(left))) == left

    run(transacting, main)


def test_two_transactions_can_not_have_the_same_message(transacting, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST, consumer_type=gc.ConsumerType.Shared)
        await publish(client, topic, 10)
        messages = await drain(consumer, count=10)
        one, two = await client.transaction(30), await client.transaction(30)
        assert one.id != two.id
        await consumer.acknowledge(messages[:5], txn=one)
        with pytest.raises(gc.TransactionConflict):
            await consumer.acknowledge(messages[4], txn=two)
        with pytest.raises(gc.TransactionConflict):
            await two.commit()
        assert two.state is State.ABORTED
        await one.commit()
        async with client.transaction(30) as three:
            await consumer.acknowledge(messages[5:], txn=three)
        await consumer.close()
        consumer = await client.subscribe(topic, "sub", consumer_type=gc.ConsumerType.Shared)
        assert await drain(consumer, QUIET_MS) == []

    run(transacting, main)


def test_the_broker_aborts_what_is_open_for_too_long(transacting, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        producer = await client.create_producer(topic)
        txn = await client.transaction(2)
        await producer.send(b"m1", txn=txn)
        await producer.send(b"m2")
        assert contents(await drain(consumer, count=1)) == [2], "it is held back for as long as the timeout"
        assert txn.state is State.TIMED_OUT
        with pytest.raises(gc.InvalidTxnStatusError):
            await txn.commit()

    run(transacting, main)


def test_chunked_messages_and_their_acknowledgment(transacting, topic) -> None:
    async def main(client):
        options = {"initial_position": EARLIEST, "consumer_type": gc.ConsumerType.Shared}
        consumer = await client.subscribe(topic, "sub", **options)
        producer = await client.create_producer(
            topic, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=10_000
        )
        large = bytes(range(256)) * 400
        async with client.transaction(30) as txn:
            await producer.send(large, txn=txn)
        message = await consumer.receive(RECEIVE_MS)
        assert message.data() == large
        async with client.transaction(30) as txn:
            await consumer.acknowledge(message, txn=txn)
        await consumer.close()
        consumer = await client.subscribe(topic, "sub", **options)
        assert await drain(consumer, QUIET_MS) == []

    run(transacting, main)


def test_consume_and_produce_while_topics_are_unloaded(transacting, topic) -> None:
    """Each number goes from one topic to the other once, though their connections go in between."""

    async def main(client):
        source, sink = f"{topic}-in", f"{topic}-out"
        consumer = await client.subscribe(
            source, "sub", initial_position=EARLIEST, consumer_type=gc.ConsumerType.Shared
        )
        await publish(client, source, 60)
        producer = await client.create_producer(sink)
        left = set(range(60))
        rest = Rest(transacting.web_service_url)

        async def unload(name: str) -> None:
            answer = await asyncio.to_thread(rest.put, f"persistent/public/default/{name}/unload")
            assert answer.status == 204, answer

        unloads, failed = 0, []
        while left:
            messages = {contents([m])[0]: m for m in await drain(consumer, QUIET_MS, count=1)}
            batch = [messages[number] for number in sorted(messages)[:15]]
            try:
                async with client.transaction(10) as txn:
                    for message in batch:
                        producer.send_nowait(message.data(), txn=txn)
                    if unloads < 3:
                        unloads += 1
                        await unload(sink if unloads % 2 else source)
                    await consumer.acknowledge(batch, txn=txn)
            except gc.PulsarException:
                failed.append(txn.state)
            else:
                left -= set(contents(batch))
            if left:
                await consumer.redeliver_unacknowledged_messages()
        assert set(failed) <= {State.ABORTED}
        reader = await client.create_reader(sink, gc.MessageId.earliest)
        found = []
        while await reader.has_message_available():
            found.append(await reader.read_next(RECEIVE_MS))
        assert contents(found) == list(range(60))

    run(transacting, main, limit_s=120)
