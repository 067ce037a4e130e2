"""Redelivery counts: each delivery says how often the entry was sent before, to whomever, however it came back."""

from __future__ import annotations

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.broker.subscription import seek
from geminga.model import EARLIEST
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.subscriptions import Sub, acknowledge, redeliver, settle, with_topic

both_types = pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])


def counts(connection) -> dict[str, list[int]]:
    """Text -> redelivery counts of its deliveries on this connection."""
    result: dict[str, list[int]] = {}
    for message in connection.messages:
        result.setdefault(message.text, []).append(message.redelivery_count)
    return result


@both_types
def test_count_goes_on_when_the_only_consumer_is_cut_off_and_comes_back(sub_type):
    async def scenario(topic):
        await topic.publish("a", "b", key="k")
        for life in range(4):
            connection = await topic.joined(sub_type)
            assert counts(connection) == {"a": [life], "b": [life]}
            connection.drop()
            await settle(life)

    with_topic(scenario)


@both_types
def test_count_goes_on_with_the_consumer_that_takes_over(sub_type):
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, sub_type, name="a")
        positions = await topic.publish("a", "b", key="k")
        redeliver(first, positions[:1])
        await settle()
        await topic.join(second, sub_type, name="b", permits=0)
        assert counts(first) == {"a": [0, 1], "b": [0]}
        first.drop()
        handlers.handle_flow(second, 1, 10)
        await settle()
        assert counts(second) == {"a": [2], "b": [1]}
        redeliver(second, positions)
        await settle()
        assert counts(second) == {"a": [2, 3], "b": [1, 2]}

    with_topic(scenario)


def test_count_of_a_batch_stays_while_parts_of_it_are_acknowledged():
    async def scenario(topic):
        positions = await topic.publish("batch", batch=3)
        for life in range(3):
            connection = await topic.joined()
            assert counts(connection) == {"batch": [life]}
            acknowledge(connection, positions, ack_set=[0b111 & ~(1 << life)])
            connection.drop()
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        assert topic.subscriptions["sub"].redeliveries._tracker is None

    with_topic(scenario)


def test_what_was_read_and_not_sent_does_not_count():
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish("a", "b", "c")
        first, second = topic.connect(), topic.connect()
        await topic.join(first, permits=1)
        first.drop()
        await topic.join(second)
        assert counts(second) == {"a": [1], "b": [0], "c": [0]}

    with_topic(scenario)


def test_seek_starts_to_count_anew():
    async def scenario(topic):
        connection = await topic.joined()
        positions = await topic.publish("a")
        redeliver(connection, positions)
        await settle()
        await seek.seek(topic.subscriptions["sub"], EARLIEST)
        again = await topic.joined()
        assert counts(again) == {"a": [0]}

    with_topic(scenario)


def test_counts_are_dropped_by_a_type_that_has_none():
    async def scenario(topic):
        shared = await topic.joined()
        await topic.publish("a")
        shared.drop()
        subscription = topic.subscriptions["sub"]
        assert subscription.redeliveries._tracker is not None
        exclusive = await topic.joined(Sub.Exclusive)
        assert counts(exclusive) == {"a": [0]}
        assert subscription.redeliveries._tracker is None

    with_topic(scenario)


@pytest.mark.parametrize("is_connected", [False, True])
def test_what_is_skipped_is_forgotten(is_connected):
    async def scenario(topic):
        connection = await topic.joined()
        positions = await topic.publish("a", "b", "c")
        subscription = topic.subscriptions["sub"]
        connection.drop()
        if is_connected:
            await topic.join(topic.connect(), permits=0)
        await seek.skip(subscription, 2)
        assert len(subscription.redeliveries._tracker) == 1
        assert subscription.redeliveries._tracker.count(positions[2]) == 1
        await seek.clear_backlog(subscription)
        assert not subscription.redeliveries._tracker

    with_topic(scenario)


def test_subscription_whose_messages_were_all_acknowledged_keeps_nothing():
    async def scenario(topic):
        connection = await topic.joined()
        positions = await topic.publish("a", "b")
        redeliver(connection, positions)
        await settle()
        acknowledge(connection, positions)
        connection.drop()
        assert topic.subscriptions["sub"].redeliveries._tracker is None

    with_topic(scenario)


@both_types
def test_batch_partly_acknowledged_given_back_and_cut_off_comes_with_what_is_left_of_it(sub_type):
    """A part, a negative acknowledgment, another part, an ack timeout (which says the same), a cut connection."""

    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, sub_type)
        positions = await topic.publish("batch", batch=5)
        expected = [(0, [])]
        for part, left in ((0b11110, 0b11110), (0b11101, 0b11100), (0b11011, 0b11000)):
            acknowledge(connection, positions, ack_set=[part])
            redeliver(connection, positions)
            await settle()
            expected.append((len(expected), [left]))
            assert consumer.unacked_count == left.bit_count()
        connection.drop()
        again = topic.connect()
        consumer = await topic.join(again, sub_type)
        expected.append((4, [0b11000]))
        found = [(m.redelivery_count, m.ack_set) for m in connection.messages + again.messages]
        assert found == expected
        assert (consumer.unacked_count, consumer.permits) == (2, 998)
        acknowledge(again, positions, ack_set=[0b00111])
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        assert (consumer.unacked_count, len(consumer.pending)) == (0, 0)

    with_topic(scenario)


def test_failover_in_the_middle_of_a_batch_sends_the_rest_of_it_to_the_next():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Failover, name="a", priority_level=0)
        await topic.join(second, Sub.Failover, name="b", priority_level=1)
        positions = [*await topic.publish("one"), *await topic.publish("batch", batch=4), *await topic.publish("last")]
        ids = [pb.MessageIdData(ledgerId=positions[1].ledger_id, entryId=positions[1].entry_id, ack_set=[0b1100])]
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative, message_id=ids)
        handlers.handle_ack_bytes(first, pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString())
        first.drop()
        await settle()
        assert [(m.text, m.ack_set) for m in second.messages] == [("batch", [0b1100]), ("last", [])]

    with_topic(scenario)
