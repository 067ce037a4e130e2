"""What becomes of what is sent is told, and told truly: to who waits for room, for a chunked message, for a flush."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._producing.messages import key_text
from geminga.client._producing.room_line import RoomLine
from geminga.client._producing.topic_producer import TopicProducer
from geminga.client.producer_rules.router import partition_of_key
from geminga.client.schema import KeyValue, KeyValueEncoding, KeyValueSchema, StringSchema
from geminga.model.errors import ServerError
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_partitions, encode_send_receipts
from support.house.python_calls import counted_calls
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import Script, polite, run_against, run_with_broker
from support.worlds.scripted_coordinator import CoordinatorScript

TOPIC = "persistent://public/default/topic"
COVERED = (RoomLine,)
Type = pb.BaseCommand


def receipt(send: pb.CommandSend) -> bytes:
    return encode_send_receipts(send.producer_id, 1, send.sequence_id, 1, [(send.sequence_id,) * 2])


def holding(held: list[pb.CommandSend]) -> Script:
    """A broker that keeps what is sent to itself, and answers all else."""

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEND:
            held.append(command.send)
            return []
        return polite(command)

    return script


def test_who_waits_for_room_goes_on_once_there_is_though_another_producer_had_filled_the_memory() -> None:
    held: list[pb.CommandSend] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEND:
            held.append(command.send)
            # The first is stored when the memory is full of the other one's, which is stored later.
            return [receipt(held.pop(0))] if len(held) == 2 else []
        if command.type == Type.PING:
            stored = [receipt(send) for send in held]
            held.clear()
            return [*stored, *polite(command)]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        options: gc.ProducerArguments = {"batching_enabled": False, "block_if_queue_full": True}
        one = await client.create_producer("one", max_pending_messages=1, **options)
        other = await client.create_producer("other", **options)
        first, second = (asyncio.ensure_future(one.send(b"%d" % number)) for number in range(2))
        await wait_ms(1)
        await asyncio.gather(first, other.send(bytes(2000)))
        assert (await asyncio.wait_for(second, 10)).entry_id() == 1
        assert client.memory.used_bytes == 0

    run_against(script, scenario, memory_limit_bytes=1000)


@pytest.mark.parametrize(("messages_max", "bytes_max"), [(1, 0), (0, 1000)])
def test_who_waits_for_room_is_not_passed_by_those_who_have_their_receipts(messages_max: int, bytes_max: int) -> None:
    stored: list[bytes] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        return [receipt(command.send)] if command.type == Type.SEND else polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False, max_pending_messages=messages_max)

        async def sends(content: bytes) -> None:
            for _ in range(10):
                await producer.send(content)
                stored.append(content[:1])

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for content in (b"a", b"b", b"c"):
                group.create_task(sends(content * 1000))
        assert b"".join(stored) == b"abc" * 10
        assert client.memory.used_bytes == producer.pending_messages == 0

    run_against(script, scenario, memory_limit_bytes=bytes_max)


@pytest.mark.parametrize("batching", [True, False])
def test_a_send_waits_no_longer_for_room_than_its_timeout_whatever_holds_the_room(batching: bool) -> None:
    async def scenario(client: gc.Client) -> None:
        patient = await client.create_producer("other", send_timeout_millis=0, batching_enabled=False)
        patient.send_nowait(bytes(2000))
        producer = await client.create_producer(TOPIC, send_timeout_millis=1000, batching_enabled=batching)
        began = asyncio.get_running_loop().time()
        with pytest.raises(gc.Timeout, match="no room within 1000 ms: it was not stored; 1000 bytes of the client's"):
            async with asyncio.timeout(60):
                await producer.send(b"x")
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.01)
        assert not producer.pending_messages
        assert client.memory.used_bytes > 1000

    run_against(holding([]), scenario, memory_limit_bytes=1000)


@pytest.mark.parametrize("kind", list(gc.BatchingType))
def test_who_waited_for_room_is_not_refused_for_the_batch_that_his_message_closes(kind: gc.BatchingType) -> None:
    def script(command: pb.BaseCommand) -> list[bytes]:
        return [receipt(command.send)] if command.type == Type.SEND else polite(command)

    async def scenario(client: gc.Client) -> None:
        # Two do not fit into a batch, and two fill the memory: the third closes the batch that fills it.
        producer = await client.create_producer(
            TOPIC, batching_max_allowed_size_in_bytes=1000, batching_type=kind, max_pending_messages=4
        )
        sent = await asyncio.gather(*(producer.send(bytes(700)) for _ in range(9)), return_exceptions=True)
        assert [type(one) for one in sent] == [gc.MessageId] * 9
        assert producer.pending_messages == client.memory.used_bytes == 0

    run_against(script, scenario, memory_limit_bytes=1500)


def test_each_of_a_long_line_has_its_end_within_its_timeouts_for_room_and_receipt() -> None:
    ended: list[float] = []

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC, batching_enabled=False, max_pending_messages=1, send_timeout_millis=1000
        )
        began = asyncio.get_running_loop().time()

        async def sends(number: int) -> str:
            try:
                await producer.send(b"%d" % number)
            except gc.Timeout as error:
                ended.append(asyncio.get_running_loop().time() - began)
                return str(error)
            return ""

        told = await asyncio.gather(*map(sends, range(8)))
        assert "unknown whether it was stored" in told[0]
        assert all("it was not stored; 1 messages of " in text for text in told[2:])
        # Who was to wait for less than its time may still get the room of the first one.
        assert max(ended) <= 2.02
        assert producer.pending_messages == client.memory.used_bytes == 0

    run_against(holding([]), scenario)
    assert len(ended) == 8


def test_a_send_without_a_timeout_waits_for_room_as_long_as_it_takes() -> None:
    held: list[pb.CommandSend] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEND:
            held.append(command.send)
            return []
        if command.type == Type.PING and asyncio.get_running_loop().time() > 100:
            return [*map(receipt, held), *polite(command)]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC, batching_enabled=False, max_pending_messages=1, send_timeout_millis=0
        )
        producer.send_nowait(b"first")
        waiting = asyncio.ensure_future(producer.send(b"second"))
        await wait_ms(90_000)
        assert not waiting.done()
        await wait_ms(60_000)
        assert len(held) == 2
        waiting.cancel()

    run_against(script, scenario)


@pytest.mark.parametrize("kind", list(gc.BatchingType))
def test_an_open_batch_takes_no_more_messages_than_there_is_room_for(kind: gc.BatchingType) -> None:
    held: list[pb.CommandSend] = []

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC, batching_type=kind, batching_max_messages=3, max_pending_messages=4, send_timeout_millis=1000
        )
        for _ in range(4):
            producer.send_nowait(b"x")
        assert producer.pending_messages == 4
        with pytest.raises(gc.ProducerQueueIsFull):
            producer.send_nowait(b"x")
        await wait_ms(1)
        assert [send.num_messages for send in held] == [3, 1]
        with pytest.raises(gc.Timeout):
            await producer.flush()
        for _ in range(3):
            producer.send_nowait(b"x")  # batches are as large as before
        await wait_ms(1)
        assert held[-1].num_messages == 3

    run_against(holding(held), scenario)


def test_waiting_for_room_costs_each_the_same_however_many_wait() -> None:
    def script(command: pb.BaseCommand) -> list[bytes]:
        return [receipt(command.send)] if command.type == Type.SEND else polite(command)

    def calls_of(senders: int) -> int:
        async def scenario(client: gc.Client) -> int:
            producer = await client.create_producer(TOPIC, batching_enabled=False, max_pending_messages=1)
            with counted_calls() as calls:
                await asyncio.gather(*(producer.send(b"x") for _ in range(senders)))
            return calls()

        return run_against(script, scenario)

    assert calls_of(200) < 3 * calls_of(100)


def test_who_gives_up_waiting_for_room_holds_up_nobody_behind() -> None:
    held: list[pb.CommandSend] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEND:
            held.append(command.send)
            return []
        return [*map(receipt, held[-1:]), *polite(command)] if command.type == Type.PING else polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False, max_pending_messages=1)
        tasks = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(5)]
        await wait_ms(1)
        for number in (1, 3):
            tasks[number].cancel()
        async with asyncio.timeout(20):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [
            gc.MessageId,
            asyncio.CancelledError,
            gc.MessageId,
            asyncio.CancelledError,
            gc.MessageId,
        ]
        assert len(held) == 3
        waiting = [asyncio.ensure_future(producer.send(b"x")) for _ in range(3)]
        await wait_ms(1)
        await producer.close()
        closed = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, gc.AlreadyClosed | gc.MessageId) for end in closed)

    run_against(script, scenario)


@pytest.mark.parametrize("refused", [0, 1])
def test_a_message_of_which_a_chunk_is_refused_is_not_stored(refused: int) -> None:
    chunks = 0

    def script(command: pb.BaseCommand) -> list[bytes]:
        nonlocal chunks
        if command.type == Type.SEND:
            send = command.send
            if send.is_chunk:
                chunks += 1
                if chunks == refused + 1:
                    return [commands.send_error(send.producer_id, 0, ServerError.NOT_ALLOWED_ERROR, "too large here")]
            return [receipt(send)]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=1000
        )
        with pytest.raises(gc.NotAllowedError, match="too large here"):
            await producer.send(bytes(2500))
        assert chunks == 3
        assert (await producer.send(b"behind")).entry_id() == 1
        producer.send_nowait(bytes(10))
        await producer.flush()
        assert producer.pending_messages == client.memory.used_bytes == 0

    run_against(script, scenario)


def test_flush_waits_for_what_was_sent_before_a_message_that_its_transaction_refused() -> None:
    class Held(CoordinatorScript):
        def __call__(self, command: pb.BaseCommand) -> list[bytes]:
            if command.type == Type.SEND:
                self.heard.append((asyncio.get_running_loop().time(), command))
                return []
            answers = super().__call__(command)
            if command.type == Type.PING:
                answers += [receipt(sent.send) for _, sent in self.heard if sent.type == Type.SEND]
            return answers

    broker = Held()
    broker.instead[Type.ADD_PARTITION_TO_TXN] = [ServerError.NOT_ALLOWED_ERROR]

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        txn = await client.transaction()
        heard: list[str] = []
        producer.send_nowait(b"before", lambda error, _: heard.append(f"before {error}"))
        producer.send_nowait(b"refused", lambda error, _: heard.append(f"refused {type(error).__name__}"), txn=txn)
        await producer.flush()
        await wait_ms(0)
        assert heard == ["refused NotAllowedError", "before None"]
        await txn.abort()

    run_against(broker, scenario)


def test_flush_tells_what_nobody_heard_of_with_interceptors_too() -> None:
    class Watching(gc.ProducerInterceptor):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def on_send_acknowledgement(self, producer, message, message_id, error) -> None:
            self.heard.append(type(error).__name__)

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        watching = Watching()
        producer = await client.create_producer(TOPIC, interceptors=[watching], block_if_queue_full=False)
        bad = {"half": "\ud800"}
        errors: list[object] = []
        producer.send_nowait(b"a", lambda error, _: errors.append(type(error)), properties=bad)
        await producer.flush()
        producer.send_nowait(b"b", properties=bad)
        with pytest.raises(gc.UnexpectedError):
            await producer.flush()
        await producer.flush()
        assert errors == [gc.UnexpectedError]
        assert watching.heard == ["UnexpectedError"] * 2
        with pytest.raises(gc.InvalidMessage):
            producer.send_nowait("no bytes")
        assert watching.heard[2:] == ["InvalidMessage"], "it was told of the message before"

    run_with_broker(scenario)


def test_partitions_that_were_being_added_are_left_with_their_producer() -> None:
    made: dict[int, str] = {}
    left: list[str] = []
    partitions = 1

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, partitions)]
        if command.type == Type.PRODUCER:
            made[command.producer.producer_id] = command.producer.topic[-1]
            if command.producer.topic.endswith("-2"):
                return []
        if command.type == Type.CLOSE_PRODUCER:
            left.append(made[command.close_producer.producer_id])
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        nonlocal partitions
        producer = await client.create_producer(TOPIC, auto_update_partitions_interval_ms=1000)
        partitions = 3
        await wait_ms(1500)
        assert sorted(made.values()) == ["0", "1", "2"]
        await producer.close()
        await wait_ms(100)
        assert sorted(left) == ["0", "1", "2"]

    run_against(script, scenario)


def test_flush_tells_of_messages_whose_partition_could_not_be_reached_and_was_tried_again() -> None:
    refusals = 1

    def script(command: pb.BaseCommand) -> list[bytes]:
        nonlocal refusals
        if command.type == Type.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, 2)]
        if command.type == Type.PRODUCER and command.producer.topic.endswith("-1") and refusals:
            refusals -= 1
            return [commands.error(command.producer.request_id, ServerError.AUTHORIZATION_ERROR, "not yet")]
        if command.type == Type.SEND:
            return [receipt(command.send)]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(
            TOPIC,
            lazy_start_partitioned_producers=True,
            message_routing_mode=gc.PartitionsRoutingMode.CustomPartition,
            message_router=lambda message, count: 1,
        )
        producer.send_nowait(b"lost")
        await wait_ms(100)
        producer.send_nowait(b"stored")
        with pytest.raises(gc.AuthorizationError, match="not yet"):
            await producer.flush()
        await producer.flush()

    run_against(script, scenario)


@pytest.mark.parametrize("lazily", [False, True])
def test_messages_whose_schema_takes_the_key_from_the_value_go_by_it(lazily: bool) -> None:
    schema = KeyValueSchema(StringSchema(), StringSchema(), KeyValueEncoding.SEPARATED)

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await broker.broker.partitions.create(TopicName.parse(TOPIC), 7)
        seen: list[str | bytes | None] = []

        def router(message: gc.OutgoingMessage, partitions: int) -> int:
            seen.append(message.partition_key)
            return 0

        expected = {f"k{number}": partition_of_key(key_text(b"k%d" % number), 7, murmur3=False) for number in range(5)}
        assert len(set(expected.values())) > 1
        producer = await client.create_producer(TOPIC, schema=schema, lazy_start_partitioned_producers=lazily)
        where: dict[str, set[int]] = {key: set() for key in expected}
        for number in range(15):
            key = f"k{number % 5}"
            where[key].add((await producer.send(KeyValue(key, "v"))).partition())
            producer.send_nowait(
                KeyValue(key, "v"), lambda error, message_id, key=key: where[key].add(message_id.partition())
            )
        await producer.flush()
        await wait_ms(1)
        assert where == {key: {partition} for key, partition in expected.items()}
        custom = gc.PartitionsRoutingMode.CustomPartition
        routed = await client.create_producer(TOPIC, schema=schema, message_router=router, message_routing_mode=custom)
        await routed.send(KeyValue("k", "v"))
        await routed.send(None)
        assert seen == [b"k", None]

    run_with_broker(scenario)


class Hearing(gc.ProducerInterceptor):
    """Remembers what became of each message."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, gc.MessageId | None, str]] = []

    def on_send_acknowledgement(self, producer, message, message_id, error) -> None:
        self.heard.append((message.content, message_id, "" if error is None else str(error)))


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("is_batching", [True, False])
def test_interceptors_hear_what_became_of_a_message_whose_sender_gave_up(partitions: int, is_batching: bool) -> None:
    held: list[pb.CommandSend] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEND:
            held.append(command.send)
            return []
        if command.type == Type.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, partitions)]
        return [*map(receipt, held), *polite(command)] if command.type == Type.PING else polite(command)

    async def scenario(client: gc.Client) -> None:
        hearing = Hearing()
        options: gc.ProducerArguments = {"max_pending_messages": 1, "batching_enabled": is_batching}
        producer = await client.create_producer(
            "topic",
            interceptors=[hearing],
            message_routing_mode=gc.PartitionsRoutingMode.UseSinglePartition,
            block_if_queue_full=True,
            **options,
        )
        sent, waiting = (asyncio.ensure_future(producer.send(content)) for content in (b"sent", b"waiting"))
        await wait_ms(5)
        assert len(held) == 1
        for task in (sent, waiting):
            task.cancel()
        await wait_ms(5)
        # Whose message left does not know its end yet; the other one's will never leave.
        text = "sending it was given up before there was room: it is not stored"
        assert hearing.heard == [(b"waiting", None, text)]
        await wait_ms(60_000)
        assert [(content, error) for content, _, error in hearing.heard[1:]] == [(b"sent", "")]
        assert hearing.heard[1][1] is not None
        assert producer.pending_messages == 0

    run_against(script, scenario, operation_timeout_ms=100_000)


def test_interceptors_hear_of_a_refusal_that_the_sender_did_not_wait_for() -> None:
    async def scenario(client: gc.Client) -> None:
        hearing = Hearing()
        producer = await client.create_producer("topic", interceptors=[hearing], send_timeout_millis=1000)
        sending = asyncio.ensure_future(producer.send(b"sent"))
        await wait_ms(5)
        sending.cancel()
        await wait_ms(2000)
        assert [(content, "unknown whether" in error) for content, _, error in hearing.heard] == [(b"sent", True)]

    run_against(polite, scenario)


def test_a_flush_that_is_given_up_again_and_again_leaves_nothing_with_the_message() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("topic", send_timeout_millis=0)
        assert isinstance(producer, TopicProducer)
        producer.send_nowait(b"never stored")
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.flush(), 0.01)
        newest = producer._buffer.queue.newest
        assert newest is not None
        assert len(newest.waiters or ()) <= 1
        flushing = [asyncio.ensure_future(producer.flush()) for _ in range(3)]
        await wait_ms(1)
        closing = asyncio.ensure_future(producer.close())
        await asyncio.gather(*flushing, closing, return_exceptions=True)
        assert all(task.done() for task in flushing)

    run_against(polite, scenario)


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_the_clients_end_waits_for_partitions_that_are_being_closed(is_cut_off: bool) -> None:
    """What was sent has its receipts, whether who closes the producer waits for that or gave it up."""
    held: list[pb.CommandSend] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, 2)]
        if command.type == Type.SEND:
            held.append(command.send)
            return []
        return [*map(receipt, held), *polite(command)] if command.type == Type.PING else polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        heard: list[gc.PulsarException | None] = []
        for number in range(4):
            producer.send_nowait(b"x", lambda error, _: heard.append(error), partition_key=str(number))
        closing = asyncio.ensure_future(producer.close())
        await wait_ms(1)
        if is_cut_off:
            closing.cancel()
            await asyncio.wait([closing])
        await client.close()
        await wait_ms(1)
        assert heard == [None] * 4
        await producer.close()
        if not is_cut_off:
            await closing

    run_against(script, scenario)


def test_closing_waits_for_the_first_connection_of_partitions_that_were_sent_to() -> None:
    late: list[bytes] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, 3)]
        if command.type == Type.PRODUCER and not command.producer.topic.endswith("-0"):
            late.extend(polite(command))
            return []
        if command.type == Type.SEND:
            return [receipt(command.send)]
        return [*late, *polite(command)] if command.type == Type.PING else polite(command)

    async def scenario(client: gc.Client) -> None:
        heard: list[gc.PulsarException | None] = []
        async with client.create_producer(
            TOPIC,
            lazy_start_partitioned_producers=True,
            message_routing_mode=gc.PartitionsRoutingMode.CustomPartition,
            message_router=lambda message, partitions: int(str(message.partition_key)),
        ) as producer:
            for partition in ("0", "1", "2"):
                producer.send_nowait(b"x", lambda error, _: heard.append(error), partition_key=partition)
        await wait_ms(1)
        assert heard == [None] * 3

    run_against(script, scenario)


@pytest.mark.parametrize("interceptors", [[], [gc.ProducerInterceptor()]])
def test_closing_warns_of_messages_that_were_not_stored_and_nobody_heard_of(caplog, interceptors) -> None:
    async def scenario(client: gc.Client) -> None:
        heard: list[gc.PulsarException | None] = []
        for has_callback in (True, False):
            producer = await client.create_producer(TOPIC, interceptors=interceptors)
            producer.send_nowait(b"x", (lambda error, _: heard.append(error)) if has_callback else None)
            await producer.close()
        assert [type(error) for error in heard] == [gc.AlreadyClosed]

    with caplog.at_level("WARNING", "geminga.client"):
        run_against(holding([]), scenario, operation_timeout_ms=1000)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith(f"producer of {TOPIC} was closed; of what was sent without a callback nobody heard: ")
