"""What was prefetched, or asked for, reaches who receives: over pauses, losses of the connection and seeks."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._consuming.last_message import is_any_left
from geminga.client._transport.service_urls import ServiceUrls
from geminga.model.errors import ServerError
from geminga.runtime import next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.metadata import split_entry
from geminga.wire.pulsar.varint import signed64
from support.worlds.client_world import URL, BrokerOnNode
from support.worlds.scripted_broker import run_against, run_with_broker
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, message_frame, singles

TOPIC = "persistent://public/default/topic"
#: As a message id has them.
LATEST = (gc.MessageId.latest.ledger_id(), gc.MessageId.latest.entry_id())
UINT64 = (1 << 64) - 1


def cut(client: gc.Client) -> None:
    """All connections break."""
    for connection in list(client.pool._connections.values()):
        connection.abort(gc.NotConnected("cut"))


@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("before", [0, 2])
def test_a_reader_at_the_end_keeps_what_came_before_its_connection_broke(
    before: int, batch: int, is_inclusive: bool
) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_max_messages=batch)
        for _ in range(before):
            await producer.send(b"before")
        reader = await client.create_reader(TOPIC, gc.MessageId.latest, start_message_id_inclusive=is_inclusive)
        if before and is_inclusive:
            assert (await reader.read_next(1000)).data() == b"before"
        for number in range(3):
            producer.send_nowait(b"%d" % number)
        await producer.flush()
        await wait_ms(100)
        assert reader.prefetched_bytes() > 0
        cut(client)
        await wait_ms(1000)
        assert [(await reader.read_next(1000)).data() for _ in range(3)] == [b"0", b"1", b"2"]
        cut(client)
        await wait_ms(1000)
        await producer.send(b"3")
        assert (await reader.read_next(1000)).data() == b"3"

    run_with_broker(scenario)


def test_a_reader_that_was_moved_to_the_end_keeps_what_came_before_its_connection_broke() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        reader = await client.create_reader(TOPIC, gc.MessageId.earliest)
        await producer.send(b"0")
        assert (await reader.read_next(1000)).data() == b"0"
        await producer.send(b"passed over")
        await reader.seek(gc.MessageId.latest)
        await wait_ms(1000)
        await producer.send(b"1")
        await wait_ms(100)
        assert reader.prefetched_bytes() > 0
        cut(client)
        await wait_ms(1000)
        assert (await reader.read_next(2000)).data() == b"1"

    run_with_broker(scenario)


@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_a_reader_at_the_end_gets_what_is_published_while_it_is_away(before: int, is_inclusive: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        for _ in range(before):
            await producer.send(b"before")
        reader = await client.create_reader(TOPIC, gc.MessageId.latest, start_message_id_inclusive=is_inclusive)
        if before and is_inclusive:
            assert (await reader.read_next(1000)).data() == b"before"
        assert not await reader.has_message_available()
        await broker.restart()
        await producer.send(b"0")
        await producer.send(b"1")
        await wait_ms(1000)
        assert [(await reader.read_next(1000)).data() for _ in range(2)] == [b"0", b"1"]
        assert not await reader.has_message_available()

    run_with_broker(scenario)


@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("start", [gc.MessageId.earliest, gc.MessageId.latest], ids=["earliest", "latest"])
@pytest.mark.parametrize("sought", [3, 5])
def test_a_reader_at_a_time_stays_there_when_its_connection_breaks_before_it_reads(
    sought: int, start: gc.MessageId, is_inclusive: bool
) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        reader = await client.create_reader(TOPIC, start, start_message_id_inclusive=is_inclusive)
        times: list[int] = []
        for number in range(5):
            times.append(int(client.runtime.clock.wall_ms()))
            await producer.send(b"%d" % number)
            await wait_ms(100)
        times.append(int(client.runtime.clock.wall_ms()))
        await reader.seek(times[sought])
        await wait_ms(1000)
        assert (reader.prefetched_bytes() > 0) is (sought < 5)
        cut(client)
        await producer.send(b"5")
        await wait_ms(1000)
        read = [(await reader.read_next(1000)).data() for _ in range(sought, 6)]
        assert read == [b"%d" % number for number in range(sought, 6)]

    run_with_broker(scenario)


class AtTheEnd(ConsumerScript):
    """Tells where the subscription is; before the first answers it does what is planned."""

    def __init__(self, *planned: str) -> None:
        super().__init__(singles(2))
        self.planned = list(planned)

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type != Type.GET_LAST_MESSAGE_ID:
            return super().__call__(command)
        asked = command.getLastMessageId
        what = self.planned.pop(0) if self.planned else ""
        if what == "refuse":
            return [commands.error(asked.request_id, ServerError.METADATA_ERROR, "not now")]
        if what == "cut":
            return [b"\x7f\xff\xff\xff\x00\x00\x00\x04"]
        answer = pb.CommandGetLastMessageIdResponse(
            request_id=asked.request_id,
            last_message_id=pb.MessageIdData(ledgerId=1, entryId=UINT64),
            consumer_mark_delete_position=pb.MessageIdData(ledgerId=1, entryId=UINT64),
        )
        answered = pb.BaseCommand(type=Type.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)
        closed = [commands.close_consumer(asked.consumer_id, 0)] if what == "close" else []
        return [*closed, commands.encode_command(answered)]

    def starts(self) -> list[tuple[int, int]]:
        """Where it was to begin, each time."""
        starts = [command.subscribe.start_message_id for _, command in self.of(Type.SUBSCRIBE)]
        return [(one.ledgerId, signed64(one.entryId)) for one in starts]


@pytest.mark.parametrize(
    ("what", "starts"),
    [("refuse", [LATEST]), ("cut", [LATEST, LATEST]), ("close", [LATEST, (1, -1)])],
)
def test_a_reader_whose_place_is_not_told_is_subscribed_once_all_the_same(
    what: str, starts: list[tuple[int, int]]
) -> None:
    script = AtTheEnd(what)

    async def scenario(client: gc.Client) -> None:
        reader = await client.create_reader(TOPIC, gc.MessageId.latest)
        assert [(await reader.read_next(1000)).data() for _ in range(2)] == [b"0", b"1"]
        await wait_ms(2000)
        assert script.starts() == starts

    run_against(script, scenario)


def test_a_reader_at_the_end_begins_at_the_end_of_another_cluster() -> None:
    script = AtTheEnd()

    async def scenario(client: gc.Client) -> None:
        await client.create_reader(TOPIC, gc.MessageId.latest)
        cut(client)
        await wait_ms(1000)
        client.pool.go_on_with(ServiceUrls(URL), client.options, gc.NotConnected("elsewhere"))
        await wait_ms(1000)
        assert script.starts() == [LATEST, (1, -1), LATEST]

    run_against(script, scenario)


def test_who_waits_without_prefetching_is_served_when_a_pause_ends() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "s", receiver_queue_size=0)
        producer = await client.create_producer(TOPIC)
        await producer.send(b"0")
        consumer.pause()
        receiving = asyncio.ensure_future(consumer.receive())
        await wait_ms(100)
        assert not receiving.done()
        consumer.resume()
        assert (await asyncio.wait_for(receiving, 1)).data() == b"0"
        await producer.send(b"1")
        consumer.pause()
        consumer.resume()
        await wait_ms(100)
        assert consumer.prefetched_bytes() == 0, "nobody waits"
        assert (await consumer.receive(1000)).data() == b"1"

    run_with_broker(scenario)


@pytest.mark.parametrize("kind", list(gc.ConsumerType), ids=lambda kind: kind.name)
def test_without_prefetching_batches_come_one_after_the_other(kind: gc.ConsumerType) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "s", receiver_queue_size=0, consumer_type=kind)
        producer = await client.create_producer(TOPIC, batching_max_messages=5)
        for number in range(15):
            producer.send_nowait(b"%d" % number, partition_key="k")
        await producer.flush()
        for number in range(10):
            assert (await consumer.receive(1000)).data() == b"%d" % number
            assert len(consumer.receiving._queue._entries) == 0, "an entry came that nobody asked for"
        await wait_ms(100)
        assert consumer.prefetched_bytes() == 0
        assert [(await consumer.receive(1000)).data() for _ in range(5)] == [b"10", b"11", b"12", b"13", b"14"]

    run_with_broker(scenario)


@pytest.mark.parametrize("by_index", [False, True])
def test_without_prefetching_what_is_left_of_a_batch_comes_and_what_is_behind_it(by_index: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        options: gc.ConsumerArguments = {
            "receiver_queue_size": 0,
            "batch_index_ack_enabled": by_index,
            "consumer_type": gc.ConsumerType.Shared,
            "negative_ack_redelivery_delay_ms": 100,
        }
        consumer = await client.subscribe(TOPIC, "s", **options)
        producer = await client.create_producer(TOPIC, batching_max_messages=5)
        for number in range(10):
            producer.send_nowait(b"%d" % number)
        await producer.flush()
        for number in range(3):
            message = await consumer.receive(1000)
            assert message.data() == b"%d" % number
            if number < 2:
                await consumer.acknowledge(message)
        await consumer.negative_acknowledge(message)
        await wait_ms(1000)
        left = [b"2", b"3", b"4"]
        assert [(await consumer.receive(1000)).data() for _ in range(8)] == [*left, *(b"%d" % n for n in range(5, 10))]

    run_with_broker(scenario)


def test_without_prefetching_a_batch_asks_for_no_more_than_others_do() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        policy = gc.BatchReceivePolicy(max_num_message=1, timeout_ms=100)
        options: gc.ConsumerArguments = {"consumer_type": gc.ConsumerType.Shared, "receiver_queue_size": 0}
        consumer = await client.subscribe(TOPIC, "s", batch_receive_policy=policy, **options)
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        for number in range(5):
            await producer.send(b"%d" % number)
            await consumer.acknowledge(await consumer.receive(1000))
        assert await consumer.batch_receive() == []
        for number in range(5, 10):
            await producer.send(b"%d" % number)
        await wait_ms(100)
        assert consumer.prefetched_bytes() == 1, "what was asked for, and nothing beside"
        other = await client.subscribe(TOPIC, "s", **options)
        assert [(await other.receive(1000)).data() for _ in range(4)] == [b"6", b"7", b"8", b"9"]
        assert [message.data() for message in await consumer.batch_receive()] == [b"5"]

    run_with_broker(scenario)


class Moved(ConsumerScript):
    """Closes the consumer for SEEK, and answers once it is there again and was sent a message."""

    seek: int | None = None

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEEK:
            self.seek = command.seek.request_id
            return [commands.close_consumer(command.seek.consumer_id, 0)]
        answers = super().__call__(command)
        if command.type == Type.FLOW and self.seek is not None:
            message = message_frame(command.flow.consumer_id, 3, entry_bytes([b"there"]))
            answers += [message, commands.success(self.seek)]
            self.seek = None
        return answers


def test_what_came_from_where_a_consumer_was_moved_to_is_kept_when_the_answer_comes_behind_it() -> None:
    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s")
        await consumer.seek(gc.MessageId.earliest)
        assert (await consumer.receive(1000)).data() == b"there"

    run_against(Moved(), scenario)


class MovedBack(ConsumerScript):
    """Closes the consumer for SEEK before it answers what was acknowledged, and sends its messages once more."""

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEEK:
            self.heard.append((0.0, command))
            seek = command.seek
            return [commands.close_consumer(seek.consumer_id, 0), commands.success(seek.request_id)]
        return super().__call__(command)


@pytest.mark.parametrize("is_cumulative", [False, True])
@pytest.mark.parametrize("has_receipts", [False, True])
def test_what_was_acknowledged_before_a_seek_comes_again_behind_it(has_receipts: bool, is_cumulative: bool) -> None:
    script = MovedBack(singles(2), answers_acks=False)

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s", ack_receipt_enabled=has_receipts)
        first = await consumer.receive(1000)
        await consumer.receive(1000)
        acknowledge = consumer.acknowledge_cumulative if is_cumulative else consumer.acknowledge
        before = asyncio.ensure_future(acknowledge(first))
        await wait_ms(1)
        seeking = asyncio.ensure_future(consumer.seek(gc.MessageId.earliest))
        await next_turn()
        during = asyncio.ensure_future(acknowledge(first))
        await seeking
        assert [(await consumer.receive(1000)).data() for _ in range(2)] == [b"0", b"1"]
        await wait_ms(1000)
        kinds = [command.type for _, command in script.heard]
        again = kinds.index(Type.SUBSCRIBE, kinds.index(Type.SEEK))
        assert Type.ACK not in kinds[again:]
        outcomes = await asyncio.wait_for(asyncio.gather(before, during, return_exceptions=True), 10)
        kind = gc.NotConnected if has_receipts else type(None)
        assert [type(outcome) for outcome in outcomes] == [kind, kind]

    run_against(script, scenario)


class Refused(ConsumerScript):
    """Sends its messages as permits allow, also while the consumer is to be moved, which it refuses."""

    def __init__(self, entries: list[bytes]) -> None:
        super().__init__(entries)
        self.permits = self.sent = 0
        self.is_asked = False

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEEK:
            self.is_asked = True
            refused = commands.error(command.seek.request_id, ServerError.NOT_ALLOWED_ERROR, "not now")
            return [*self.given(command.seek.consumer_id), refused]
        if command.type == Type.FLOW:
            self.permits += command.flow.messagePermits
            return self.given(command.flow.consumer_id) if self.is_asked else []
        if command.type == Type.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            self.sent = 0
            return self.given(command.redeliverUnacknowledgedMessages.consumer_id)
        return super().__call__(command)

    def given(self, consumer_id: int) -> list[bytes]:
        frames = []
        while self.permits > 0 and self.sent < len(self.entries):
            entry = self.entries[self.sent]
            metadata, _ = split_entry(entry)
            assert metadata is not None
            self.permits -= max(1, metadata.num_messages_in_batch)
            frames.append(message_frame(consumer_id, self.sent, entry))
            self.sent += 1
        return frames


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("queue", [0, 1, 2])
def test_who_waits_is_served_when_a_seek_is_refused(queue: int, is_batch: bool) -> None:
    entries = [entry_bytes([b"0", b"1"], batched=True), entry_bytes([b"2"])] if is_batch else singles(3)

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s", receiver_queue_size=queue)
        receiving = asyncio.ensure_future(consumer.receive(5000))
        await wait_ms(1)
        with pytest.raises(gc.NotAllowedError):
            await consumer.seek(gc.MessageId.earliest)
        assert (await receiving).data() == b"0"
        assert [(await consumer.receive(5000)).data() for _ in range(2)] == [b"1", b"2"]

    run_against(Refused(entries), scenario)


def test_what_comes_again_of_a_batch_gives_back_no_more_than_it_took() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(
            TOPIC,
            "s",
            receiver_queue_size=10,
            batch_index_ack_enabled=True,
            consumer_type=gc.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=10,
        )
        producer = await client.create_producer(TOPIC, batching_max_messages=10)
        for number in range(10):
            producer.send_nowait(b"%d" % number)
        await producer.flush()
        await consumer.acknowledge([await consumer.receive(1000) for _ in range(9)])
        await wait_ms(1000)
        for _ in range(20):
            await consumer.negative_acknowledge(await consumer.receive(1000))
        last = await consumer.receive(1000)
        alone = await client.create_producer(TOPIC, batching_enabled=False)
        for _ in range(100):
            alone.send_nowait(b"x")
        await alone.flush()
        await wait_ms(1000)
        assert last.data() == b"9"
        assert consumer.prefetched_bytes() <= 10

    run_with_broker(scenario)


@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("batch", [1, 5])
def test_a_reader_at_a_time_knows_at_once_that_there_is_more(is_inclusive: bool, batch: int) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_max_messages=batch)
        reader = await client.create_reader(
            TOPIC, gc.MessageId.latest, start_message_id_inclusive=is_inclusive, receiver_queue_size=1
        )
        await producer.send(b"before")
        await wait_ms(100)
        sought = int(client.runtime.clock.wall_ms())
        for number in range(batch):
            producer.send_nowait(b"%d" % number)
        await producer.flush()
        (topic,) = reader._consumer.held.all()
        topic.permits.pause()
        await reader.seek(sought)
        await wait_ms(500)
        assert reader.prefetched_bytes() == 0
        assert await is_any_left([topic])
        topic.permits.resume()
        assert [(await reader.read_next(1000)).data() for _ in range(batch)] == [b"%d" % n for n in range(batch)]
        assert not await reader.has_message_available()

    run_with_broker(scenario)
