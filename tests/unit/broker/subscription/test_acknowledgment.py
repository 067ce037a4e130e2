"""Acknowledgments on a real cursor: individual, cumulative, by batch index, of others' messages, with responses."""

from __future__ import annotations

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.model.errors import ServerError
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.subscriptions import Sub, acknowledge, settle, with_topic


def responses(connection):
    return [c.ackResponse for c in connection.of_type(pb.BaseCommand.ACK_RESPONSE)]


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared, Sub.Key_Shared])
def test_acknowledged_entries_do_not_come_again(sub_type):
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, sub_type)
        positions = await topic.publish("a", "b", "c", "d")
        acknowledge(connection, [positions[1], positions[3]])
        consumer.close()
        await topic.join(connection, sub_type, consumer_id=2)
        assert connection.texts(2) == ["a", "c"]

    with_topic(scenario)


def test_cumulative_acknowledges_everything_before():
    async def scenario(topic):
        connection = await topic.joined(Sub.Exclusive)
        positions = await topic.publish("a", "b", "c", "d")
        acknowledge(connection, [positions[2]], ack_type=pb.CommandAck.Cumulative, request_id=5)
        await settle(2)
        assert topic.subscriptions["sub"].cursor.backlog_count == 1
        assert [r.request_id for r in responses(connection)] == [5]
        assert not responses(connection)[0].HasField("error")

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_f26_cumulative_on_shared_and_key_shared_changes_nothing_and_says_so(sub_type):
    async def scenario(topic):
        connection = await topic.joined(sub_type)
        positions = await topic.publish("a", "b")
        acknowledge(connection, [positions[1]], ack_type=pb.CommandAck.Cumulative, request_id=5)
        assert topic.subscriptions["sub"].cursor.backlog_count == 2
        assert responses(connection)[0].error == ServerError.NOT_ALLOWED_ERROR

    with_topic(scenario)


def test_part_of_a_batch_comes_again_with_what_is_left():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, Sub.Shared)
        positions = await topic.publish("batch", batch=5)
        assert consumer.unacked_count == 5
        acknowledge(connection, positions, ack_set=[0b11100])
        assert consumer.unacked_count == 3
        acknowledge(connection, positions, ack_set=[0b10111])
        assert consumer.unacked_count == 2
        consumer.close()
        again = await topic.join(connection, Sub.Shared, consumer_id=2, permits=10)
        assert connection.messages[-1].ack_set == [0b10100]
        assert again.permits == 8
        assert again.unacked_count == 2
        acknowledge(connection, positions, consumer_id=2, ack_set=[0b01011])
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        assert again.unacked_count == 0
        assert not len(again.pending)

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared])
def test_part_of_a_batch_without_batch_index_is_dropped_until_the_whole(sub_type):
    async def scenario(topic):
        connection = await topic.joined(sub_type)
        positions = await topic.publish("batch", batch=3)
        acknowledge(connection, positions, ack_set=[0b110], request_id=1)
        cursor = topic.subscriptions["sub"].cursor
        assert cursor.state.ack_set(positions[0]) is None
        assert [r.HasField("error") for r in responses(connection)] == [False]
        acknowledge(connection, positions)
        assert cursor.backlog_count == 0

    with_topic(scenario, acknowledgment_at_batch_index_level_enabled=False)


def test_cumulative_inside_a_batch_keeps_the_rest():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, Sub.Exclusive)
        positions = [*(await topic.publish("a")), *(await topic.publish("batch", batch=4))]
        acknowledge(connection, positions[1:], ack_type=pb.CommandAck.Cumulative, ack_set=[0b1100])
        consumer.close()
        await topic.join(connection, Sub.Exclusive, consumer_id=2)
        assert connection.texts(2) == ["batch"]
        assert connection.messages[-1].ack_set == [0b1100]

    with_topic(scenario)


def test_consumer_may_acknowledge_what_another_holds():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        a = await topic.join(first, Sub.Shared)
        await topic.join(second, Sub.Shared, permits=0)
        positions = await topic.publish("m")
        acknowledge(second, positions)
        assert a.unacked_count == 0
        assert not len(a.pending)
        assert topic.subscriptions["sub"].cursor.backlog_count == 0

    with_topic(scenario)


def test_acknowledgment_after_negative_one_stops_the_redelivery():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, Sub.Shared, permits=1)
        positions = await topic.publish("m")
        dispatch = topic.subscriptions["sub"].dispatch
        dispatch.redeliver(consumer, positions, -1)
        acknowledge(connection, positions)
        handlers.handle_flow(connection, 1, 10)
        await settle()
        assert connection.texts() == ["m"]
        assert len(dispatch.core.replay) == 0

    with_topic(scenario)


def test_response_comes_after_the_cursor_is_durable():
    async def scenario(topic):
        connection = await topic.joined(Sub.Shared)
        positions = await topic.publish("m")
        acknowledge(connection, positions, request_id=9)
        assert responses(connection) == []
        await settle(2)
        assert [r.request_id for r in responses(connection)] == [9]

    with_topic(scenario)


def test_unknown_positions_validation_errors_and_transactions_harm_nothing():
    async def scenario(topic):
        connection = await topic.joined(Sub.Shared)
        positions = await topic.publish("m")
        far = type(positions[0])(999_999, 3)
        acknowledge(connection, [far])
        acknowledge(connection, positions, consumer_id=77, request_id=1)
        acknowledge(connection, positions, txnid_least_bits=1, txnid_most_bits=0, request_id=2)
        await settle()
        assert topic.subscriptions["sub"].cursor.backlog_count == 1
        assert [r.error for r in responses(connection)] == [
            ServerError.CONSUMER_NOT_FOUND,
            ServerError.NOT_ALLOWED_ERROR,
        ]
        acknowledge(connection, positions, validation_error=pb.CommandAck.DecryptionError)
        assert topic.subscriptions["sub"].cursor.backlog_count == 0

    with_topic(scenario)
