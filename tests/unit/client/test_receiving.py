"""What a consumer has prefetched and how it is taken, and whose message is acknowledged: no broker, no connection."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence

import pytest

import geminga.client as gc
from geminga import sim
from geminga.client._api.condition import Condition
from geminga.client._api.place import Place
from geminga.client._consuming import acknowledgment
from geminga.client._consuming.acknowledging import Acknowledging, along, one_of
from geminga.client._consuming.acknowledgment import Acknowledgment
from geminga.client._consuming.held_topics import HeldTopics
from geminga.client._consuming.permits import Permits
from geminga.client._consuming.receiving import Receiving
from geminga.client._consuming.redelivery import Redelivery
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.consumer_interceptors import ConsumerInterceptor, Interceptors
from geminga.client._messages.consumer_options import ConsumerOptions
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.message import Message
from geminga.client.consumer_rules.ack_properties import NONE
from geminga.client.rules.stats import ConsumerCounters
from geminga.model import TopicName
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch

COVERED = (Acknowledging, Receiving)


class Line:
    """Of one topic, and never connected."""

    consumer_id = 7
    connection = None

    def write(self, frame: bytes) -> None: ...


class Source:
    """The consumer of one topic as its entries know it: it notes what it hears."""

    decoder = None

    def __init__(self, subscription: Subscription, capacity: int = 100) -> None:
        self.topic = TopicName.parse("t")
        self.permits = Permits(Line(), capacity)
        self.flow = self.permits.flow
        redelivery = Redelivery(subscription, self.topic, self, lambda _: None)  # type: ignore[arg-type]
        self.acks = Acknowledgment(
            subscription, redelivery, consumer_id=7, topic="t", is_persistent=True, timeout_ms=30_000
        )
        self.heard: list[object] = []

    def first_received(self, entry: EntryBatch) -> None:
        self.heard.append(entry.key)
        if entry.is_batch:
            entry.expect_messages()

    def cut_off(self, entry: EntryBatch, index: int) -> None:
        self.heard.append(("cut", entry.key, index))

    def negative_acknowledge(self, key: tuple[int, int], redelivery_count: int) -> None:
        self.heard.append(("refused", key, redelivery_count))


class Stage:
    """The parts of one consumer, and entries of one topic."""

    def __init__(self, interceptors: Interceptors | None = None, **options) -> None:
        self.subscription = Subscription(
            "s", "c", ConsumerOptions(**options), ConsumerCounters(), interceptors, None, None
        )
        self.source = Source(self.subscription)
        self.held = HeldTopics()
        self.held.add(self.source)  # type: ignore[arg-type] # no more of it is asked for
        place = Place()
        self.condition = Condition(place, "the consumer of t")
        self.receiving: Receiving[bytes] = Receiving("t", self.subscription, place, self.condition, self.held)
        self.acknowledging = Acknowledging(self.subscription, place, self.held)
        self._entries = 0

    def entry(self, *payloads: bytes, ack_set: Sequence[int] = ()) -> EntryBatch:
        """One that arrives: of one message, or a batch, of which ``ack_set`` is delivered."""
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        data = payloads[0]
        if len(payloads) > 1:
            metadata.num_messages_in_batch = len(payloads)
            data = encode_batch(list(payloads), 0)
        self._entries += 1
        entry = EntryBatch(data, 0, metadata, 1, self._entries)
        entry.source, entry.ack_set = self.source, ack_set
        if entry.is_batch:
            self.source.acks.adopt(entry)
        self.receiving.on_entries([entry])
        return entry

    def take(self, count: int) -> list[bytes]:
        taken = [self.receiving.take() for _ in range(count)]
        return [message.data() for message in taken if message is not None]

    def is_acked(self, entry: EntryBatch) -> bool:
        return self.source.acks.sender.tracker.is_pending(entry.key)


def in_virtual_time(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main(_: sim.SimWorld) -> None:
        await scenario()

    sim.run(main)


# ---- receiving


def test_messages_are_taken_in_order_and_their_permits_are_owed() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.entry(b"1", b"2", b"3")
        stage.entry(b"4")
        assert stage.receiving.count == 4
        assert stage.take(5) == [b"1", b"2", b"3", b"4"]
        assert stage.source.flow.owed == 4
        assert stage.source.heard == [(1, 1), (1, 2)], "each entry is turned to once"
        assert stage.subscription.counters.messages_received == 4
        assert stage.receiving.count == 0

    in_virtual_time(scenario)


def test_what_is_dropped_of_a_batch_is_cut_off_behind_what_was_received() -> None:
    async def scenario() -> None:
        stage = Stage()
        begun, other, kept = stage.entry(b"1", b"2", b"3"), stage.entry(b"4"), stage.entry(b"5")
        assert stage.take(2) == [b"1", b"2"]
        assert stage.receiving.last_index(begun) == 1
        stage.receiving.drop_prefetched(lambda entry: entry is not kept)
        assert stage.source.heard == [(1, 1), ("cut", begun.key, 1)], "of the other nothing was received"
        assert stage.source.flow.owed == 4, "two that were received, two that were dropped"
        assert stage.take(2) == [b"5"]
        assert stage.receiving.last_index(other) == 0

    in_virtual_time(scenario)


def test_who_waits_takes_in_turn_and_one_that_is_cut_off_loses_nothing() -> None:
    async def scenario() -> None:
        stage = Stage()
        waiting = [asyncio.ensure_future(stage.receiving.next()) for _ in range(3)]
        await next_turn()
        stage.entry(b"1", b"2")
        waiting[0].cancel()
        heard = await asyncio.gather(waiting[1], asyncio.wait_for(waiting[2], 5), return_exceptions=True)
        assert [message.data() for message in heard if isinstance(message, Message)] == [b"1", b"2"]
        with pytest.raises(gc.Timeout):
            await stage.receiving.wait(1000)
        assert stage.subscription.counters.receive_timeouts == 1

    in_virtual_time(scenario)


def test_a_batch_is_as_large_as_its_policy_says() -> None:
    async def scenario() -> None:
        stage = Stage(batch_receive_policy=gc.BatchReceivePolicy(3, 0, 60_000))
        stage.entry(b"1", b"2")
        stage.entry(b"3", b"4", b"5")
        assert [message.data() for message in await stage.receiving.take_batch()] == [b"1", b"2", b"3"]
        waiting = asyncio.ensure_future(stage.receiving.take_batch())
        await next_turn()
        assert not waiting.done(), "two are here"
        assert stage.source.flow.owed == 0, "all of the queue may be needed for one batch"
        stage.entry(b"6")
        assert [message.data() for message in await waiting] == [b"4", b"5", b"6"]
        small = Stage(batch_receive_policy=gc.BatchReceivePolicy(0, 10, 0))
        first, second = small.entry(bytes(8)), small.entry(bytes(8))
        assert [message.message_id() for message in await small.receiving.take_batch()] == [first.message_id(0)]
        assert small.source.heard == [first.key], "an entry of which nothing fits is not turned to"
        assert small.receiving.count == 1
        assert small.take(1) == [bytes(8)]
        assert small.source.heard == [first.key, second.key]

    in_virtual_time(scenario)


def test_who_waits_for_a_batch_keeps_no_message_from_who_waits_for_one() -> None:
    async def scenario() -> None:
        stage = Stage(batch_receive_policy=gc.BatchReceivePolicy(3, 0, 0))
        batches = [asyncio.ensure_future(stage.receiving.take_batch()) for _ in range(2)]
        await next_turn()
        receiving = asyncio.ensure_future(stage.receiving.next())
        await next_turn()
        stage.entry(b"1")
        assert (await asyncio.wait_for(receiving, 5)).data() == b"1"
        stage.entry(b"2")
        stage.entry(b"3", b"4", b"5", b"6", b"7")
        taken = await asyncio.wait_for(asyncio.gather(*batches), 5)
        assert [[message.data() for message in batch] for batch in taken] == [[b"2", b"3", b"4"], [b"5", b"6", b"7"]]
        batches = [asyncio.ensure_future(stage.receiving.take_batch()) for _ in range(2)]
        await next_turn()
        assert stage.receiving._arrivals.are_awaited, "without prefetching they are asked for again after a loss"
        stage.condition.is_closed = True
        stage.receiving.close()
        ends = await asyncio.wait_for(asyncio.gather(*batches, return_exceptions=True), 5)
        assert [type(end) for end in ends] == [gc.AlreadyClosed] * 2

    in_virtual_time(scenario)


def test_whether_something_arrives_is_seen_without_taking_it() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert not await stage.receiving.has_arrived(30)
        receiving = asyncio.ensure_future(stage.receiving.next())
        watching = asyncio.ensure_future(stage.receiving.has_arrived(30))
        await next_turn()
        stage.entry(b"1")
        assert await watching
        assert (await receiving).data() == b"1"
        stage.entry(b"2")
        assert await stage.receiving.has_arrived(0)

    in_virtual_time(scenario)


# ---- acknowledging


def test_a_list_is_looked_at_before_anything_of_it_is_acknowledged() -> None:
    async def scenario() -> None:
        stage = Stage()
        entry = stage.entry(b"1")
        message: Message[bytes] = Message(entry, 0)
        foreign = EntryBatch(b"x", 0, pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), 5, 5)
        checked = stage.acknowledging.checked
        for given, error in (
            ([message, "no message"], gc.InvalidMessage),
            ("text", gc.InvalidMessage),
            ({message: 1}, gc.InvalidMessage),
            ([message, Message(foreign, 0)], gc.OperationNotSupported),
            ([message, gc.MessageId(-1, -2, 0, -1)], gc.InvalidMessage),
        ):
            with pytest.raises(error):
                checked(given)
        assert not stage.is_acked(entry)
        assert checked(message) == [message]
        await stage.acknowledging.all(checked(iter([message])), NONE)
        assert stage.is_acked(entry)
        assert stage.subscription.counters.acks_sent == 1

    in_virtual_time(scenario)


def test_a_batch_is_acknowledged_with_the_last_of_its_messages() -> None:
    async def scenario() -> None:
        stage = Stage(batch_index_ack_enabled=False)
        first, second = stage.entry(b"1", b"2", b"3"), stage.entry(b"4")
        messages = [Message(first, index) for index in (2, 0)]
        await stage.acknowledging.all([*messages, Message(second, 0)], NONE)
        assert (stage.is_acked(first), stage.is_acked(second)) == (False, True)
        await stage.acknowledging.all([Message(first, 1)], NONE)
        assert stage.is_acked(first)
        assert stage.subscription.counters.acks_sent == 4

    in_virtual_time(scenario)


def test_interceptors_hear_of_each_message_and_of_all_up_to_one() -> None:
    class Hearing(ConsumerInterceptor):
        def __init__(self) -> None:
            self.heard: list[tuple[str, gc.MessageId]] = []

        def on_acknowledge(self, consumer, message_id, error) -> None:
            self.heard.append(("one", message_id))

        def on_acknowledge_cumulative(self, consumer, message_id, error) -> None:
            self.heard.append(("up to", message_id))

    async def scenario() -> None:
        hearing = Hearing()
        interceptors = Interceptors([hearing])
        stage = Stage(interceptors)
        interceptors.speak_for(stage)  # type: ignore[arg-type] # whoever it is
        first, second, third = stage.entry(b"1", b"2"), stage.entry(b"3"), stage.entry(b"4")
        await stage.acknowledging.all([Message(first, 1), Message(second, 0)], NONE)
        await stage.acknowledging.up_to(Message(third, 0), NONE)
        ids = [first.message_id(1), second.message_id(0), third.message_id(0)]
        assert hearing.heard == list(zip(("one", "one", "up to"), ids, strict=True))
        assert all(map(stage.is_acked, (first, second, third)))

    in_virtual_time(scenario)


def test_what_could_not_be_processed_is_told_to_its_topic() -> None:
    async def scenario() -> None:
        stage = Stage()
        entry = stage.entry(b"1")
        stage.acknowledging.refuse(Message(entry, 0))
        assert stage.source.heard == [("refused", entry.key, 0)]
        assert stage.subscription.counters.negative_acks == 1
        stage.acknowledging.refuse(entry.message_id(0))
        assert stage.source.heard[1:] == [("refused", entry.key, 0)], "an id of the only topic"
        entry.source = None
        with pytest.raises(gc.OperationNotSupported):
            stage.acknowledging.refuse(Message(entry, 0))
        with pytest.raises(gc.InvalidMessage):
            one_of([Message(entry, 0)])
        assert stage.subscription.counters.negative_acks == 2

    in_virtual_time(scenario)


@pytest.mark.parametrize("properties", ["a", {"a": "b"}, {"a": True}, {"": 1}, {1: 1}, {"a": 1 << 63}])
def test_only_names_and_numbers_go_along_with_an_acknowledgment(properties) -> None:
    with pytest.raises(gc.InvalidMessage, match="64-bit integers"):
        along(properties, None)
    assert along({"a": -(1 << 63)}, None) == {"a": -(1 << 63)}
    assert along(None, None) is NONE


def test_batches_that_never_came_are_remembered_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of them are made up, or of another consumer; what came is acknowledged as ever."""
    monkeypatch.setattr(acknowledgment, "ACKERS_MAX", 5)

    async def scenario() -> None:
        stage = Stage()
        acks = stage.source.acks
        entry = stage.entry(b"1", b"2")
        for number in range(100, 200):
            assert acks.acknowledge_id(gc.MessageId(-1, 1, number, 0, 2)) is None
        assert len(acks._ackers) == 5
        acks.acknowledge(entry, 0)
        assert not stage.is_acked(entry)
        acks.acknowledge(entry, 1)
        assert stage.is_acked(entry)
        acks.acknowledge_id(gc.MessageId(-1, 1, 199, 1, 2))
        assert acks.sender.tracker.is_pending((1, 199))

    in_virtual_time(scenario)


def test_batch_sizes_that_are_made_up_take_no_more_room_than_batches_that_can_be() -> None:
    async def scenario() -> None:
        acks = Stage(batch_index_ack_enabled=False).source.acks
        tracemalloc.start()
        try:
            for number in range(1000):
                with pytest.raises(gc.OperationNotSupported, match="at most 1048576 messages"):
                    acks.acknowledge_id(gc.MessageId(-1, 1, number, 0, (1 << 31) - 1))
                acks.acknowledge_id(gc.MessageId(-1, 1, number, 0, 1 << 20))
            assert tracemalloc.get_traced_memory()[1] < 12 * 1024 * 1024
        finally:
            tracemalloc.stop()
        acks.acknowledge_id(gc.MessageId(-1, 2, 0, 0, 2))
        assert acks.acknowledge_id(gc.MessageId(-1, 2, 0, 1, 2)) is None
        assert acks.sender.tracker.is_pending((2, 0))

    in_virtual_time(scenario)


def test_index_behind_the_end_of_a_batch_that_came_is_refused() -> None:
    async def scenario() -> None:
        stage = Stage()
        entry = stage.entry(b"1", b"2")
        acks = stage.source.acks
        message_id = gc.MessageId(-1, *entry.key, 64, 100)
        for call in (acks.check_id, acks.acknowledge_id, acks.acknowledge_cumulative_id, acks.batch_size_of):
            with pytest.raises(gc.OperationNotSupported, match="of 2 messages"):
                call(message_id)
        assert not stage.is_acked(entry)
        assert acks.batch_size_of(gc.MessageId(-1, *entry.key, 1, 100)) == 2

    in_virtual_time(scenario)


def test_what_was_withheld_of_a_batch_stays_so_when_the_batch_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a transaction's: acknowledged with the rest of the entry, it would not come again after an abort."""
    monkeypatch.setattr(acknowledgment, "ACKERS_MAX", 2)

    async def scenario() -> None:
        for is_many in (False, True):
            stage = Stage(batch_index_ack_enabled=True)
            acks = stage.source.acks
            entry = stage.entry(b"1", b"2", b"3", ack_set=[0b101])
            for number in range(100, 110):
                acks.acknowledge_id(gc.MessageId(-1, 1, number, 0, 2))
            if is_many:
                acks.acknowledge_many(entry, [0, 2])
            else:
                acks.acknowledge(entry, 0)
                acks.acknowledge(entry, 2)
            assert not stage.is_acked(entry)

    in_virtual_time(scenario)
