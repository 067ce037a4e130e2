"""Entries of a topic without a message object each: ``Client.entry_stream``, in virtual time, against a real broker."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._batch_source import CHUNKED_BYTES_MAX, CHUNKED_PENDING_MAX
from geminga.client._entry_stream import GATHER_MS, WINDOW_BYTES_DEFAULT
from geminga.spark.source.positions import Probe
from geminga.spark.source.range_read import RangeReader
from geminga.spark.source_rules.offsets import BEGINNING
from geminga.spark.source_rules.options import ReaderConfiguration
from geminga.spark.source_rules.planner import TopicRange
from geminga.wire.pulsar.commands import topic_migrated
from support.worlds.client_world import URL, BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"


async def publish(client: gc.Client, count: int, batch: int = 1) -> None:
    await publish_to(client, TOPIC, count, batch)


async def publish_to(client: gc.Client, topic: str, count: int, batch: int = 1) -> None:
    async with client.create_producer(topic, batching_max_messages=batch, batching_enabled=batch > 1) as producer:
        for number in range(count):
            producer.send_nowait(b"%d" % number)
        await producer.flush()


def send_away(broker: BrokerOnNode) -> None:
    """Every consumer, to another cluster, which is this one."""
    for topic in broker.broker.topics.values():
        for subscription in [*topic.subscriptions.values()]:
            for consumer in [*subscription.consumers]:
                consumer.connection.output.write_soon(topic_migrated(consumer.consumer_id, URL, "", is_producer=False))
                consumer.disconnect()


async def read(stream: gc.EntryStream[gc.EntryBatch], count: int) -> list[gc.EntryBatch]:
    found: list[gc.EntryBatch] = []
    while len(found) < count:
        found += await stream.take(5000)
    return found


async def stream_of(client: gc.Client, count: int, **options: int) -> gc.EntryStream[gc.EntryBatch]:
    """Of a topic with so many messages, opened."""
    await publish(client, count)
    stream: gc.EntryStream[gc.EntryBatch] = client.entry_stream(TOPIC, **options)
    await gc.open_batches(stream)
    return stream


def test_entries_come_whole_and_in_order_from_a_position_on() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await publish(client, 40, batch=10)
        stream: gc.EntryStream[gc.EntryBatch] = client.entry_stream("topic")
        await gc.open_batches(stream)
        entries = await read(stream, 4)
        assert [entry.batch_size for entry in entries] == [10, 10, 10, 10]
        assert [entry.payload(index) for entry in entries for index in entry.order] == [b"%d" % n for n in range(40)]
        assert stream.next_entry == (entries[-1].ledger_id, entries[-1].entry_id + 1)
        last, _ = await stream.last_message_id()
        assert (last.ledger_id(), last.entry_id()) == entries[-1].key
        later: gc.EntryStream[gc.EntryBatch] = client.entry_stream(TOPIC, entries[2].key, end=entries[3].key)
        source = await gc.open_batches(later)
        assert (await read(later, 1))[0].key == entries[2].key
        assert source.chunks_without_beginning == []
        await later.close()
        await stream.close()

    run_with_broker(scenario)


def test_stream_goes_on_behind_what_was_taken_over_another_connection() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        stream = await stream_of(client, 60, permits_max=7)
        found: list[bytes] = []
        while len(found) < 60:
            found += [entry.payload(0) for entry in await stream.take(5000)]
            for connection in list(client.pool._connections.values()):
                connection.close()
        assert found == [b"%d" % number for number in range(60)]
        assert stream.attached_count > 3
        await stream.close()

    run_with_broker(scenario)


def test_borrowed_entries_are_what_copies_are_and_others_on_the_connection_get_copies() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        payloads = [b"%d-" % number * 20_000 for number in range(30)]
        for is_batched in (True, False):
            options: gc.ProducerArguments = {"batching_enabled": is_batched, "batching_max_messages": 2}
            async with client.create_producer(TOPIC, **options) as producer:
                for number, payload in enumerate(payloads):
                    producer.send_nowait(payload, partition_key=f"k{number}")
                await producer.flush()
        stream: gc.EntryStream[gc.EntryBatch] = client.entry_stream(TOPIC)
        stream.borrow(1 << 20)
        await gc.open_batches(stream, are_laid_out=False)
        consumer = await client.subscribe(TOPIC, "others", initial_position=gc.InitialPosition.Earliest)
        entries = await read(stream, 45)
        assert any(isinstance(entry.data, memoryview) for entry in entries[15:])
        for entry in entries:
            if entry.is_batch:
                entry.lay_out()
            assert entry.key_as_sent(0).startswith(b"k")
        assert [bytes(entry.payload(index)) for entry in entries for index in entry.order] == payloads * 2
        received = [await consumer.receive() for _ in range(60)]
        assert [message.data() for message in received] == payloads * 2
        assert {type(message.data()) for message in received} == {bytes}
        assert [message.partition_key() for message in received] == [f"k{number}" for number in range(30)] * 2
        await stream.close()

    run_with_broker(scenario)


def test_stream_gathers_what_is_wanted_and_does_not_wait_where_nothing_can_come() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        stream = await stream_of(client, 300, permits_max=5)
        few = await stream.take(5000)
        assert 1 <= len(few) <= 5
        last, _ = await stream.last_message_id()
        bounded: gc.EntryStream[gc.EntryBatch] = client.entry_stream(
            TOPIC, few[0].key, end=(last.ledger_id(), last.entry_id() + 1)
        )
        await gc.open_batches(bounded)
        clock = client.runtime.clock
        found: list[gc.EntryBatch] = []
        while len(found) < 300:
            since_s = clock.monotonic()
            taken = await bounded.take(5000, 1 << 20)
            found += taken
            if len(found) == 300:  # fewer bytes than were wanted, and the end
                assert clock.monotonic() - since_s < GATHER_MS / 1000
            else:
                assert clock.monotonic() - since_s >= GATHER_MS / 1000
        assert [entry.payload(0) for entry in found] == [b"%d" % number for number in range(300)]
        await bounded.close()
        await stream.close()

    run_with_broker(scenario)


def test_stream_whose_topic_moved_to_another_cluster_says_so_and_reads_nothing_there_at_positions_of_here() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await publish(client, 3)
        fresh: gc.EntryStream[gc.EntryBatch] = client.entry_stream("nothing")
        await publish_to(client, "nothing", 0)
        stream: gc.EntryStream[gc.EntryBatch] = client.entry_stream(TOPIC)
        for each in (stream, fresh):
            await gc.open_batches(each)
        last = (await read(stream, 3))[-1].key
        send_away(broker)
        with pytest.raises(gc.OperationNotSupported, match=f"the last that was taken is {last[0]}:{last[1]}") as error:
            await stream.take(5000)
        assert "moved to another cluster" in str(error.value)
        # Nothing was taken of this one: what it is asked for, the topic's beginning, is there too.
        await publish_to(client, "nothing", 2)
        assert len(await read(fresh, 2)) == 2
        await fresh.close()
        await stream.close()

    run_with_broker(scenario)


def test_closing_the_client_closes_its_streams_and_who_waits_hears_it() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        stream = await stream_of(client, 1)
        await read(stream, 1)
        waiting = asyncio.ensure_future(stream.take(60_000))
        await asyncio.wait([waiting], timeout=0.1)
        await client.close()
        with pytest.raises(gc.AlreadyClosed):
            await waiting
        with pytest.raises(gc.AlreadyClosed):
            await gc.open_batches(client.entry_stream(TOPIC))

    run_with_broker(scenario)


def test_stream_of_a_topic_that_is_not_there_leaves_nothing_behind() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        stream: gc.EntryStream[gc.EntryBatch] = client.entry_stream("none")
        with pytest.raises(gc.TopicNotFound):
            await gc.open_batches(stream)
        assert not client.lifetime.others
        with pytest.raises(gc.AlreadyClosed):
            await stream.take(1)

    run_with_broker(scenario)


def test_what_was_prefetched_over_a_lost_connection_is_not_taken_for_read() -> None:
    """A task of Spark ends its range at the last entry that it saw: not at one that went before it was taken."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await publish(client, 10)
        probe = Probe(client, TOPIC, "probe")
        wanted = TopicRange(TOPIC, BEGINNING, await probe.end())
        await probe.close()
        reader = RangeReader(client, wanted, ReaderConfiguration())
        await reader.open()
        stream = reader._stream
        assert stream is not None
        await stream.on_arrival()
        await stream.last_message_id()  # whose answer comes behind them
        assert stream.last_seen == (wanted.end.ledger_id, 9)
        for connection in list(client.pool._connections.values()):
            connection.abort(gc.ConnectError("cut by the test"))
        found: list[bytes] = []
        while (pieces := await reader.next()) is not None:
            found += [piece.entry.payload(0) for piece in pieces]
        assert found == [b"%d" % number for number in range(10)]
        assert stream.attached_count == 2
        assert stream.is_attached
        await reader.close()

    run_with_broker(scenario, initial_backoff_ms=5000)


def test_limits_have_names() -> None:
    assert (WINDOW_BYTES_DEFAULT, CHUNKED_PENDING_MAX, CHUNKED_BYTES_MAX) == (16 << 20, 100, 1 << 30)


def test_producer_of_one_topic_takes_encoded_entries_and_one_of_partitions_does_not() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        assert isinstance(producer, gc.EntryProducer)
        assert producer.is_usable
        await producer.close()
        assert not producer.is_usable

    run_with_broker(scenario)
