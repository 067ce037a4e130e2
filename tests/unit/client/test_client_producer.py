"""Producers in virtual time against a real broker: batches, limits, sequence ids, partitions, interceptors."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._api.world import client_runtime
from geminga.client._producing.early_messages import EARLY_MESSAGES_MAX
from geminga.client._producing.intercepting_producer import InterceptingProducer
from geminga.client._producing.partitioned_producer import PartitionedProducer
from geminga.client._producing.send_buffer import SendBuffer
from geminga.client._producing.topic_producer import TopicProducer
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_partitions, encode_send_receipts
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import polite, run_against, run_with_broker

TOPIC = "persistent://public/default/topic"
#: All messages go to a partition whose producer is made with the first of them, for which they are early.
LATE: gc.ProducerArguments = {
    "lazy_start_partitioned_producers": True,
    "message_routing_mode": gc.PartitionsRoutingMode.CustomPartition,
    "message_router": lambda message, count: 1,
}


async def entries(broker: BrokerOnNode, topic: str = TOPIC) -> list[list[bytes]]:
    """The payloads of each entry."""
    found: dict[tuple[int, int], list[bytes]] = {}
    for message in await broker.messages(topic):
        found.setdefault((message.ledger_id, message.entry_id), []).append(message.payload)
    return list(found.values())


def test_batch_leaves_when_it_is_full_or_its_delay_is_over() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(
            TOPIC, batching_max_messages=3, batching_max_publish_delay_ms=50, batching_max_allowed_size_in_bytes=100
        )
        assert isinstance(producer, TopicProducer)
        for index in range(4):
            producer.send_nowait(b"%d" % index)
        await wait_ms(30)
        assert await entries(broker) == [[b"0", b"1", b"2"]]
        await wait_ms(30)
        assert await entries(broker) == [[b"0", b"1", b"2"], [b"3"]]
        producer.send_nowait(bytes(60))
        producer.send_nowait(bytes(50))
        producer.send_nowait(bytes(200))
        await producer.flush()
        assert (await entries(broker))[2:] == [[bytes(60)], [bytes(50)], [bytes(200)]]

    run_with_broker(scenario)


def test_awaited_sends_of_one_turn_are_one_batch_and_wait_for_no_delay() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_max_publish_delay_ms=10_000)
        ids = await asyncio.wait_for(asyncio.gather(*(producer.send(b"%d" % i) for i in range(4))), 1)
        assert [(i.batch_index(), i.batch_size()) for i in ids] == [(0, 4), (1, 4), (2, 4), (3, 4)]
        first = asyncio.ensure_future(producer.send(b"a"))
        await wait_ms(0.01)
        second = asyncio.ensure_future(producer.send(b"b"))
        await asyncio.wait_for(asyncio.gather(first, second), 1)
        assert (await entries(broker))[1:] == [[b"a"], [b"b"]]

    run_with_broker(scenario)


def test_full_queue_is_told_and_drain_waits_for_room() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(
            TOPIC, batching_enabled=False, max_pending_messages=2, block_if_queue_full=False
        )
        producer.send_nowait(b"0")
        producer.send_nowait(b"1")
        with pytest.raises(gc.ProducerQueueIsFull):
            producer.send_nowait(b"2")
        with pytest.raises(gc.ProducerQueueIsFull):
            await producer.send(b"2")
        await producer.drain()
        producer.send_nowait(b"2")
        await producer.flush()
        blocking = await client.create_producer("other", batching_enabled=False, max_pending_messages=2)
        assert len(await asyncio.gather(*(blocking.send(b"x") for _ in range(20)))) == 20

    run_with_broker(scenario)


def test_memory_limit_holds_for_all_producers_together() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        one = await client.create_producer("one", batching_enabled=False)
        two = await client.create_producer("two", batching_enabled=False)
        one.send_nowait(bytes(2000))
        with pytest.raises(gc.MemoryBufferIsFull):
            two.send_nowait(b"x")
        await two.send(b"waits for room")
        await one.flush()
        assert client.memory.used_bytes == 0

    run_with_broker(scenario, memory_limit_bytes=1000)


def test_callback_hears_the_id_and_flush_raises_for_the_others() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, send_timeout_millis=100)
        assert isinstance(producer, TopicProducer)
        assert isinstance(producer._buffer, SendBuffer)
        heard: list[object] = []
        producer.send_nowait(b"a", lambda error, message_id: heard.append((type(error), message_id)))
        await producer.flush()
        assert heard == [(gc.Timeout, None)]
        producer.send_nowait(b"b")
        with pytest.raises(gc.Timeout):
            await producer.flush()

    run_against(polite, scenario)


def test_callback_that_raises_harms_nothing_but_itself() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        raised: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context["exception"]))

        def bad(error: object, message_id: object) -> None:
            raise ValueError("bad callback")

        producer = await client.create_producer(TOPIC)
        producer.send_nowait(b"a", bad)
        await producer.flush()
        await producer.send(b"b")
        assert producer.is_connected()
        assert [type(error) for error in raised] == [ValueError]

    run_with_broker(scenario)


def test_sequence_ids_go_on_where_the_broker_remembers_them() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        first = await client.create_producer(TOPIC, producer_name="me")
        assert first.last_sequence_id() == -1
        await asyncio.gather(*(first.send(b"%d" % i) for i in range(5)))
        assert first.last_sequence_id() == 4
        await first.close()
        again = await client.create_producer(TOPIC, producer_name="me")
        assert again.last_sequence_id() == 4
        own = await again.send(b"own", sequence_id=100)
        assert own.ledger_id() >= 0
        duplicate = await again.send(b"own", sequence_id=50)
        assert (duplicate.ledger_id(), duplicate.entry_id()) == (-1, -1)
        assert again.last_sequence_id() == 100
        await again.close()
        chosen = await client.create_producer(TOPIC, producer_name="other", initial_sequence_id=41)
        await chosen.send(b"42")
        assert chosen.last_sequence_id() == 42
        assert [p for e in await entries(broker) for p in e] == [b"0", b"1", b"2", b"3", b"4", b"own", b"42"]

    run_with_broker(scenario, broker={"deduplication": True})


def test_own_and_counted_sequence_ids_do_not_share_a_batch() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        producer.send_nowait(b"a")
        producer.send_nowait(b"b", sequence_id=10)
        producer.send_nowait(b"c", sequence_id=20)
        producer.send_nowait(b"d")
        await producer.flush()
        assert await entries(broker) == [[b"a"], [b"b", b"c"], [b"d"]]

    run_with_broker(scenario)


@pytest.mark.parametrize("kind", [gc.BatchingType.Default, gc.BatchingType.KeyBased])
@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ([(1, "a"), (2, "b"), (3, "a")], [1, 2, 3]),
        ([(1, "a"), (2, "b"), (3, "a"), (4, "c"), (5, "b")], [1, 2, 3, 4, 5]),
        ([(5, "a"), (3, "a"), (4, "b"), (5, "a"), (6, "a")], [5, 6]),
        ([(5, "a"), (4, "b"), (6, "b"), (6, "a"), (7, "a")], [5, 6, 7]),
    ],
    ids=["between", "between twice", "descending", "repeated"],
)
def test_own_sequence_ids_mean_the_same_whatever_batch_they_come_into(
    kind: gc.BatchingType, sent: list[tuple[int, str]], stored: list[int]
) -> None:
    """With deduplication: each id that is higher than all before it is stored, once, and no other."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, producer_name="me", batching_type=kind)
        for _ in range(2):
            for number, key in sent:
                producer.send_nowait(b"%d" % number, sequence_id=number, partition_key=key)
            await producer.flush()
            assert [int(payload) for entry in await entries(broker) for payload in entry] == stored

    run_with_broker(scenario, broker={"deduplication": True})


@pytest.mark.parametrize("batching", [True, False])
def test_counted_sequence_ids_go_on_behind_the_users_own(batching: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=batching)
        for number in (5, 7):
            await producer.send(b"own %d" % number, sequence_id=number)
        await producer.send(b"counted")
        assert producer.last_sequence_id() == 8
        await producer.send(b"repeated", sequence_id=6)
        await producer.send(b"counted too")
        assert producer.last_sequence_id() == 9
        stored = [payload for entry in await entries(broker) for payload in entry]
        assert stored == [b"own 5", b"own 7", b"counted", b"counted too"]

    run_with_broker(scenario, broker={"deduplication": True})


def test_new_partitions_are_used_once_they_are_there() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        name = TopicName.parse(TOPIC)
        await broker.broker.partitions.create(name, 2)
        seen: list[tuple[str, int]] = []

        class Watching(gc.ProducerInterceptor):
            def on_partitions_change(self, topic: str, partitions: int) -> None:
                seen.append((topic, partitions))

        producer = await client.create_producer(
            TOPIC, auto_update_partitions_interval_ms=1000, interceptors=[Watching()]
        )
        assert isinstance(producer, InterceptingProducer)
        assert {(await producer.send(b"x")).partition() for _ in range(4)} == {0, 1}
        await broker.broker.partitions.grow(name, 4)
        await wait_ms(2500)
        assert seen == [(TOPIC, 4)]
        assert {(await producer.send(b"x")).partition() for _ in range(8)} == {0, 1, 2, 3}
        assert client.pool.open_connections == 1

    run_with_broker(scenario)


def test_topic_that_was_deleted_is_not_made_again_by_looking_for_new_partitions() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        name = TopicName.parse(TOPIC)
        await broker.broker.partitions.create(name, 2)
        producer = await client.create_producer(
            TOPIC, lazy_start_partitioned_producers=True, auto_update_partitions_interval_ms=1000
        )
        await wait_ms(1500)
        await broker.broker.partitions.delete(name, force=True)
        await wait_ms(5000)
        assert await broker.broker.resources.partitioned_topics.find(name) is None
        await producer.close()

    run_with_broker(scenario, broker={"auto_topic_creation_type": "partitioned"})


@pytest.mark.parametrize("lazy", [False, True])
def test_routing_modes(lazy: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await broker.broker.partitions.create(TopicName.parse(TOPIC), 5)
        options: gc.ProducerArguments = {"lazy_start_partitioned_producers": lazy}
        single = await client.create_producer(
            TOPIC, message_routing_mode=gc.PartitionsRoutingMode.UseSinglePartition, **options
        )
        assert isinstance(single, PartitionedProducer)
        assert len({(await single.send(b"x")).partition() for _ in range(5)}) == 1
        assert len({(await single.send(b"x", partition_key=f"k{i}")).partition() for i in range(20)}) > 1
        custom = await client.create_producer(
            TOPIC,
            message_routing_mode=gc.PartitionsRoutingMode.CustomPartition,
            message_router=lambda message, count: int(message.properties["to"]),
            **options,
        )
        assert (await custom.send(b"x", properties={"to": "3"})).partition() == 3
        with pytest.raises(gc.InvalidMessage):
            await custom.send(b"x", properties={"to": "5"})
        robin = await client.create_producer(TOPIC, **options)
        for _ in range(10):
            for _ in range(3):
                robin.send_nowait(b"b")
            await robin.flush()
        await robin.drain()
        assert (robin.pending_messages, robin.is_connected(), robin.last_sequence_id()) == (0, True, 5)
        by_partition = [await entries(broker, f"{TOPIC}-partition-{i}") for i in range(5)]
        assert [[len(e) for e in found].count(3) for found in by_partition] == [2] * 5

    run_with_broker(scenario)


def test_send_timeout_fails_what_is_too_old_in_order_and_the_rest_goes_on() -> None:
    """1. m0 and m1 are sent, m2 two seconds later. 2. m0 and m1 time out. 3. m2 gets its receipt after that."""
    sent: list[int] = []
    ids: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.PRODUCER:
            ids.append(command.producer.producer_id)
        if command.type == pb.BaseCommand.SEND:
            sent.append(command.send.sequence_id)
        if command.type == pb.BaseCommand.PING and asyncio.get_running_loop().time() > 3.5:
            return [*polite(command), encode_send_receipts(ids[0], 1, 1, 1, [(2, 2)])]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, send_timeout_millis=3000, batching_enabled=False)
        assert isinstance(producer, TopicProducer)
        results: list[object] = []
        for _ in range(2):
            producer.send_nowait(b"old", lambda error, _: results.append(error))
        await wait_ms(2000)
        producer.send_nowait(b"new", lambda error, message_id: results.append(error or message_id))
        await wait_ms(1200)
        assert [type(result) for result in results] == [gc.Timeout, gc.Timeout]
        assert all("unknown whether it was stored" in str(result) for result in results)
        assert producer.pending_messages == 1
        await wait_ms(1500)
        assert isinstance(results[2], gc.MessageId)

    run_against(script, scenario)
    assert sent == [0, 1, 2]


def test_message_that_was_never_written_is_known_not_to_be_stored_when_it_times_out() -> None:
    made: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.PRODUCER:
            made.append(1)
            return polite(command) if len(made) == 1 else []
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, send_timeout_millis=1000)
        sending = asyncio.ensure_future(producer.send(b"written"))
        await wait_ms(10)
        for connection in list(client.pool._connections.values()):
            connection.close()
        with pytest.raises(gc.Timeout, match="it was not stored"):
            await producer.send(b"never written")
        with pytest.raises(gc.Timeout, match="unknown whether it was stored"):
            await sending

    run_against(script, scenario)


def test_send_timeout_counts_also_before_a_lazy_partition_is_connected() -> None:
    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, 3)]
        if command.type == pb.BaseCommand.PRODUCER and not command.producer.topic.endswith("-0"):
            return []
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC,
            **LATE,
            send_timeout_millis=1000,
        )
        heard: list[float] = []
        started = asyncio.get_running_loop().time()
        for _ in range(2):
            producer.send_nowait(b"x", lambda error, _: heard.append(asyncio.get_running_loop().time() - started))
            await wait_ms(500)
        with pytest.raises(gc.Timeout, match="not connected within 1000 ms: it was not stored"):
            await producer.send(b"x")
        assert heard == pytest.approx([1.0, 1.5], abs=0.01)
        assert producer.pending_messages == 0

    run_against(script, scenario)


def never_made(command: pb.BaseCommand) -> list[bytes]:
    """Two partitions, of which the second one's producer is not answered."""
    if command.type == pb.BaseCommand.PARTITIONED_METADATA:
        return [encode_partitions(command.partitionMetadata.request_id, 2)]
    if command.type == pb.BaseCommand.PRODUCER and command.producer.topic.endswith("-1"):
        return []
    return polite(command)


def test_early_messages_are_limited_and_end_with_their_producer() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC,
            **LATE,
        )
        errors: list[object] = []
        for _ in range(EARLY_MESSAGES_MAX):
            producer.send_nowait(b"x", lambda error, _: errors.append(error))
        with pytest.raises(gc.ProducerQueueIsFull):
            producer.send_nowait(b"x")
        await producer.close()
        await wait_ms(10)
        assert [type(error) for error in errors] == [gc.AlreadyClosed] * EARLY_MESSAGES_MAX

    run_against(never_made, scenario)


def test_early_messages_count_in_the_memory_limit() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC,
            **LATE,
            send_timeout_millis=500,
        )
        errors: list[object] = []
        for _ in range(2):
            producer.send_nowait(bytes(600), lambda error, _: errors.append(error))
        with pytest.raises(gc.MemoryBufferIsFull):
            producer.send_nowait(b"x")
        await wait_ms(600)
        assert [type(error) for error in errors] == [gc.Timeout] * 2
        assert client.memory.used_bytes == 0
        producer.send_nowait(bytes(600))
        await producer.close()
        assert client.memory.used_bytes == 0

    run_against(never_made, scenario, memory_limit_bytes=1000)


@pytest.mark.parametrize(
    "batching",
    [{"batching_enabled": False}, {}, {"batching_type": gc.BatchingType.KeyBased}],
    ids=["alone", "batches", "by key"],
)
def test_early_messages_that_were_taken_are_sent_whatever_others_hold_by_then(batching: gc.ProducerArguments) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await broker.broker.partitions.create(TopicName.parse(TOPIC), 2)
        lazy = await client.create_producer(
            TOPIC,
            **LATE,
            block_if_queue_full=True,
            **batching,
        )
        other = await client.create_producer("other", batching_enabled=False)
        sending = [asyncio.ensure_future(lazy.send(bytes(300))) for _ in range(20)]
        await next_turn()
        assert client.memory.used_bytes > 300
        with pytest.raises(gc.MemoryBufferIsFull):
            other.send_nowait(bytes(300))
        assert len(await asyncio.gather(*sending)) == 20
        one = asyncio.ensure_future(other.send(bytes(5000)))
        await asyncio.gather(one, *(lazy.send(b"x") for _ in range(20)))
        assert client.memory.used_bytes == 0

    run_with_broker(scenario, memory_limit_bytes=1000)


def test_early_message_is_sent_though_another_producer_filled_the_memory_since() -> None:
    sent: list[pb.CommandSend] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.PARTITIONED_METADATA:
            count = 2 if command.partitionMetadata.topic == TOPIC else 0
            return [encode_partitions(command.partitionMetadata.request_id, count)]
        if command.type == pb.BaseCommand.SEND:
            sent.append(command.send)
            # The other one's is stored once the early one is.
            stored = sent if len(sent) > 1 else []
            return [encode_send_receipts(one.producer_id, 1, 2, 1, [(one.sequence_id,) * 2]) for one in stored]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        lazy = await client.create_producer(
            TOPIC,
            **LATE,
        )
        other = await client.create_producer("other", batching_enabled=False)
        early = asyncio.ensure_future(lazy.send(b"early"))
        await next_turn()
        other.send_nowait(bytes(5000))
        assert (await early).entry_id() == 2
        await other.flush()
        assert client.memory.used_bytes == 0

    run_against(script, scenario, memory_limit_bytes=1000)


def test_lazy_partition_that_can_not_connect_fails_its_messages_and_is_tried_again() -> None:
    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, 3)]
        if command.type == pb.BaseCommand.PRODUCER and command.producer.topic.endswith("-1"):
            return [commands.error(command.producer.request_id, gc.TopicNotFound.server_error, "gone")]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC,
            **LATE,
        )
        for _ in range(2):
            failed: list[object] = []
            producer.send_nowait(b"x", lambda error, message_id, failed=failed: failed.append(error))
            with pytest.raises(gc.TopicNotFound):
                await producer.send(b"y")
            assert [type(error) for error in failed] == [gc.TopicNotFound]
        assert client.memory.used_bytes == 0

    run_against(script, scenario)


def test_interceptors_change_messages_and_hear_of_them() -> None:
    heard: list[object] = []

    class Stamp(gc.ProducerInterceptor):
        def before_send(self, producer, message):
            message.properties = {**(message.properties or {}), "stamp": str(len(message.content))}
            return message

        def on_send_acknowledgement(self, producer, message, message_id, error) -> None:
            heard.append((message.content, message_id is not None, error))

        def close(self) -> None:
            heard.append("closed")

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        async with await client.create_producer(TOPIC, interceptors=[Stamp()]) as producer:
            await producer.send(b"abc")
            producer.send_nowait(b"de")
            await producer.flush()
            assert producer.topic() == TOPIC

    run_with_broker(scenario)
    assert heard == [(b"abc", True, None), (b"de", True, None), "closed"]


def test_terminated_topic_ends_its_producer_with_the_reason() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"last")
        await broker.broker.registry.terminate(TopicName.parse(TOPIC))
        with pytest.raises(gc.TopicTerminated):
            await producer.send(b"too late")
        with pytest.raises(gc.TopicTerminated):
            producer.send_nowait(b"too late")
        await producer.close()

    run_with_broker(scenario)


def test_unloaded_topic_gets_everything_in_order_exactly_once_with_deduplication() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_max_messages=5)
        for index in range(200):
            producer.send_nowait(b"%d" % index)
            if index % 40 == 20:
                await broker.broker.registry.unload(TopicName.parse(TOPIC))
            await producer.drain()
        await producer.flush()
        assert [p for e in await entries(broker) for p in e] == [b"%d" % i for i in range(200)]

    run_with_broker(scenario, broker={"deduplication": True})


def test_closed_client_and_producer_say_so() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        producer.send_nowait(b"in the batch")
        await producer.close()
        await producer.close()
        assert await entries(broker) == [[b"in the batch"]]
        with pytest.raises(gc.AlreadyClosed):
            producer.send_nowait(b"x")
        left = await client.create_producer(TOPIC)
        left.send_nowait(b"left")
        await client.close()
        await client.close()
        assert await entries(broker) == [[b"in the batch"], [b"left"]]
        with pytest.raises(gc.AlreadyClosed):
            await left.send(b"x")
        with pytest.raises(gc.AlreadyClosed):
            await client.producers.create(TOPIC, None, {})

    run_with_broker(scenario)


def test_world_of_a_client_is_real() -> None:
    runtime = client_runtime()
    assert runtime.clock.wall_ms() > 1_600_000_000_000
    assert 0 <= runtime.rng.random() < 1
