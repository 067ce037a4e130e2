"""The parts that a producer joins, each by itself: open batches, frames, and how it comes to be on its broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

import geminga.client as gc
from geminga.client._api.options import ProducerOptions
from geminga.client._producing.batching import Batching
from geminga.client._producing.framing import Framing
from geminga.client._producing.registration import Registration
from geminga.client._producing.send_buffer import SendBuffer
from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.encoded_batch import EncodedBatch
from geminga.client.producer_rules.frame_maker import FrameMaker
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.producer_rules.message import EncodedMessage
from geminga.runtime import Clock, next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.batch import encode_batch
from support.worlds.scripted_broker import polite, run_against

COVERED = (Batching, Framing, Registration)


def in_virtual_time(scenario: Callable[[Clock], Awaitable[None]]) -> None:
    run_against(polite, lambda client: scenario(client.cluster.runtime.clock))


def refuse() -> NoReturn:
    raise gc.AlreadyClosed("no more")


class Room:
    """Hears of batches that open and close; refuses to open them when it is full."""

    def __init__(self, clock: Clock, *, takes_plain: bool = True, **options) -> None:
        self.opened = 0
        self.is_full = False
        self.room = 1000
        self.left: list[list[bytes]] = []
        self.batching = Batching(
            clock,
            ProducerOptions(**options),
            takes_plain=takes_plain,
            check_room=self.check,
            on_batch=lambda batch: self.left.append(batch.payloads),
        )

    def check(self) -> int:
        if self.is_full:
            raise gc.ProducerQueueIsFull("full")
        self.opened += 1
        return self.room

    def add(self, *payloads: bytes, **fields) -> None:
        for payload in payloads:
            self.batching.add(EncodedMessage(payload, **fields), None)


# ---- batches


def test_a_batch_leaves_when_it_is_full_in_number_or_in_size_and_opens_once() -> None:
    async def scenario(clock: Clock) -> None:
        room = Room(clock, batching_max_messages=3, batching_max_allowed_size_in_bytes=10)
        room.add(b"1", b"2", b"3", b"4")
        assert (room.left, room.opened, room.batching.messages) == ([[b"1", b"2", b"3"]], 2, 1)
        room.add(b"012345678")
        assert room.left[1:] == [[b"4", b"012345678"]]
        room.add(b"0", b"0123456789")
        assert room.left[2:] == [[b"0"], [b"0123456789"]]
        room.batching.close()
        assert len(room.left) == 4, "nothing is left to leave"

    in_virtual_time(scenario)


def test_a_batch_that_may_not_open_leaves_nothing_behind() -> None:
    async def scenario(clock: Clock) -> None:
        for type_ in gc.BatchingType:
            room = Room(clock, batching_max_messages=2, batching_type=type_)
            room.is_full = True
            with pytest.raises(gc.ProducerQueueIsFull):
                room.add(b"refused")
            assert (room.batching.messages, room.batching.plain) == (0, None)
            room.is_full = False
            room.add(b"1")
            room.is_full = True
            room.add(b"2")  # it passed the check with its first message
            assert room.left == [[b"1", b"2"]]
            room.is_full, room.room = False, 1
            room.add(b"3")
            assert room.left[1:] == [[b"3"]], "there was room for one"

    in_virtual_time(scenario)


def test_bytes_alone_may_be_appended_to_a_batch_that_holds_nothing_of_the_users_own() -> None:
    async def scenario(clock: Clock) -> None:
        room = Room(clock)
        assert room.batching.plain is None
        room.add(b"1")
        assert room.batching.plain is room.batching.batch
        room.add(b"2", sequence_id=7)
        assert room.left == [[b"1"]]
        assert room.batching.plain is None, "it counts by the user's own ids"
        room.batching.close()
        encoding = Room(clock, takes_plain=False)
        encoding.add(b"1")
        assert encoding.batching.plain is None
        room.batching.stop(refuse)
        encoding.batching.stop(refuse)

    in_virtual_time(scenario)


def test_a_batch_leaves_its_delay_after_it_was_opened() -> None:
    async def scenario(clock: Clock) -> None:
        room = Room(clock, batching_max_publish_delay_ms=10)
        room.add(b"1")
        await wait_ms(6)
        room.batching.close()
        room.add(b"2")  # while the timer of the first runs
        await wait_ms(6)
        assert room.left == [[b"1"]]
        await wait_ms(6)
        assert room.left == [[b"1"], [b"2"]]
        room.add(b"3")
        room.batching.close()
        room.add(b"4")
        room.batching.stop(refuse)
        await wait_ms(100)
        assert room.left[2:] == [[b"3"]]
        room.batching.close()
        with pytest.raises(gc.AlreadyClosed, match="no more"):
            room.add(b"5")
        assert room.left[2:] == [[b"3"], [b"4"]]

    in_virtual_time(scenario)


@pytest.mark.parametrize("type_", gc.BatchingType)
def test_what_somebody_awaits_leaves_when_nothing_is_in_flight(type_) -> None:
    async def scenario(clock: Clock) -> None:
        room = Room(clock, batching_max_publish_delay_ms=10_000, batching_type=type_)
        room.add(b"1")
        room.batching.close_awaited()
        assert room.left == [], "nobody waits"
        room.batching.want_receipt(is_idle=True)
        room.add(b"2")
        room.batching.want_receipt(is_idle=True)
        assert room.left == [], "all of one turn is one batch"
        await next_turn()
        assert room.left == [[b"1", b"2"]]
        room.add(b"3")
        room.batching.want_receipt(is_idle=False)
        await next_turn()
        assert len(room.left) == 1, "a receipt is to come"
        room.batching.close_awaited()
        assert room.left[1:] == [[b"3"]]
        room.add(b"4")
        room.batching.close_awaited()
        assert len(room.left) == 2, "nobody waits for the next one"
        room.batching.want_receipt(is_idle=True)
        await next_turn()
        assert room.left[2:] == [[b"4"]]
        room.batching.stop(refuse)

    in_virtual_time(scenario)


def test_batches_by_key_leave_together_and_one_of_stored_and_new_ids_is_cut() -> None:
    async def scenario(clock: Clock) -> None:
        room = Room(clock, batching_max_messages=4, batching_type=gc.BatchingType.KeyBased)
        for number in range(4):
            room.add(b"%d" % number, partition_key="ab"[number % 2])
        assert room.left == [[b"0", b"2"], [b"1", b"3"]]
        own = Room(clock)
        own.batching.stored_sequence_id = 5
        for number in range(3, 8):
            own.add(b"%d" % number, sequence_id=number)
        own.batching.close()
        assert own.left == [[b"3", b"4", b"5"], [b"6", b"7"]], "a batch of both would count as new as a whole"
        own.batching.stop(refuse)
        room.batching.stop(refuse)

    in_virtual_time(scenario)


# ---- frames


def framing(clock: Clock, initial: int | None = None, bytes_max: int = 1000) -> tuple[Framing, SendBuffer]:
    buffer = SendBuffer(clock, MemoryLimit(0), partition=-1, timeout_ms=0, messages_max=0)
    maker = FrameMaker(7, compression=0, is_chunking=False, chunk_bytes_max=0)
    maker.connected("me", bytes_max, b"")
    return Framing(clock, maker, buffer, "t", initial), buffer


def ids(buffer: SendBuffer) -> list[tuple[int, int]]:
    """First and last sequence id of each frame, in order."""
    return [(one.sequence_id, one.highest_sequence_id) for one in buffer.queue.take_all()]


def batch_of(*payloads: bytes, **fields) -> Batch:
    batch = Batch(0.0, is_custom="sequence_id" in fields)
    for payload in payloads:
        batch.add(EncodedMessage(payload, **fields), None)
    return batch


def test_sequence_ids_count_on_from_the_highest_however_a_message_is_sent() -> None:
    async def scenario(clock: Clock) -> None:
        made, buffer = framing(clock)
        made.begin(9)
        assert buffer.last_sequence_id == 9
        made.add_alone(EncodedMessage(b"a"), None)
        made.add_batch(batch_of(b"b", b"c", b"d"))
        made.add_alone(EncodedMessage(b"own", sequence_id=20), None)
        made.add_alone(EncodedMessage(b"older", sequence_id=15), None)
        made.add_batch(batch_of(b"e"))
        made.add_encoded(EncodedBatch(encode_batch([b"x", b"y"], 40), 2, 40), None)
        made.add_alone(EncodedMessage(b"f"), None)
        assert ids(buffer) == [(10, 10), (11, 13), (20, 20), (15, 15), (21, 21), (40, 41), (42, 42)]

    in_virtual_time(scenario)


@pytest.mark.parametrize(("initial", "stored", "last", "first"), [(None, -1, -1, 0), (4, -1, 4, 5), (4, 9, 9, 5)])
def test_ids_begin_where_the_user_says_or_else_the_broker(initial, stored: int, last: int, first: int) -> None:
    async def scenario(clock: Clock) -> None:
        made, buffer = framing(clock, initial)
        made.begin(stored)
        assert buffer.last_sequence_id == last
        made.add_alone(EncodedMessage(b"a"), None)
        assert ids(buffer) == [(first, first)]

    in_virtual_time(scenario)


def test_what_is_too_big_is_told_to_who_sends_it_or_who_waits_for_it() -> None:
    async def scenario(clock: Clock) -> None:
        made, buffer = framing(clock, bytes_max=100)
        made.begin(-1)
        with pytest.raises(gc.MessageTooBig):
            made.add_alone(EncodedMessage(bytes(200)), None)
        with pytest.raises(gc.MessageTooBig):
            made.add_encoded(EncodedBatch(encode_batch([bytes(200)], 0), 1, 0), None)
        waiting = asyncio.get_running_loop().create_future()
        batch = batch_of(bytes(60), b"1")
        batch.add(EncodedMessage(bytes(200)), waiting)
        made.add_batch(batch)
        with pytest.raises(gc.MessageTooBig):
            await waiting
        assert ids(buffer) == [(0, 0), (1, 1)], "the others of its batch go alone, and none of the ids is left out"

    in_virtual_time(scenario)


# ---- being on the broker


class Handler:
    """A producer that may be closed while it waits."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration

    def on_receipt(self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int) -> None: ...

    def on_send_error(self, sequence_id: int, error: gc.PulsarException) -> None: ...

    def on_closed_by_broker(self, assigned_url: str) -> None:
        self.registration.lost()

    def on_connection_lost(self, error: gc.PulsarException) -> None:
        self.registration.lost()

    def on_writable(self) -> None: ...


def registration(**options) -> Registration:
    return Registration("t", 3, ProducerOptions(**options), is_encrypted=False, schema=None, timeout_s=5)


def test_each_producer_command_has_a_higher_epoch_and_the_access_that_was_granted() -> None:
    heard: list[tuple[int, int | None, str]] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type != pb.BaseCommand.PRODUCER:
            return polite(command)
        said = command.producer
        heard.append((said.epoch, said.topic_epoch if said.HasField("topic_epoch") else None, said.producer_name))
        answer = {"last_sequence_id": 4, "schema_version": b"", "topic_epoch": 7 if len(heard) > 1 else None}
        return [commands.producer_success(said.request_id, "p", is_ready=True, **answer)]

    async def scenario(client: gc.Client) -> None:
        connection = await client.pool.service_connection("t")
        made = registration()
        assert (await made.make(connection, Handler(made), "")).last_sequence_id == 4
        for name in ("p", "p"):
            await made.make(connection, Handler(made), name)
        assert heard == [(0, None, ""), (1, None, "p"), (2, 7, "p")]
        assert connection.listeners.has_producer(3)
        connection.listeners.unregister_producer(3)

    run_against(script, scenario)


def test_who_waits_for_access_hears_that_it_was_closed_and_leaves_nothing_on_the_broker_if_it_gives_up() -> None:
    left: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.PRODUCER:
            answer = {"last_sequence_id": -1, "schema_version": b"", "topic_epoch": None}
            return [commands.producer_success(command.producer.request_id, "p", is_ready=False, **answer)]
        if command.type == pb.BaseCommand.CLOSE_PRODUCER:
            left.append(command.close_producer.producer_id)
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        connection = await client.pool.service_connection("t")
        made = registration(access_mode=gc.ProducerAccessMode.WaitForExclusive)
        made.lost()  # nobody waits
        waiting = asyncio.ensure_future(made.make(connection, Handler(made), ""))
        await wait_ms(60_000)  # for as long as it takes
        assert not waiting.done()
        made.lost()
        made.lost()
        with pytest.raises(gc.NotConnected, match="while it waited for access"):
            await waiting
        assert (connection.listeners.has_producer(3), left) == (False, [])
        again = asyncio.ensure_future(made.make(connection, Handler(made), ""))
        await wait_ms(10)
        again.cancel()
        with pytest.raises(asyncio.CancelledError):
            await again
        await wait_ms(10)
        assert (connection.listeners.has_producer(3), left) == (False, [3])

    run_against(script, scenario)
