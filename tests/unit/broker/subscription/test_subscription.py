"""Subscriptions on a real managed ledger: delivery, order, redelivery, permits, and what each type refuses."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.broker.subscription.consumer import SENT_AWAY_A_TURN
from geminga.model import EARLIEST
from geminga.model.errors import ConsumerBusyError, NotAllowedError, StorageError
from geminga.runtime import next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.subscriptions import Sub, acknowledge, redeliver, settle, with_topic

TEXTS = [f"m{i}" for i in range(10)]


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared])
def test_consumer_of_any_type_gets_backlog_and_tail_in_order(sub_type):
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish(*TEXTS[:5], key="k")
        connection = await topic.joined(sub_type)
        await topic.publish(*TEXTS[5:], key="k")
        assert connection.texts() == TEXTS

    with_topic(scenario)


def test_exclusive_second_consumer_is_busy():
    async def scenario(topic):
        await topic.join(topic.connect(), Sub.Exclusive)
        with pytest.raises(ConsumerBusyError):
            await topic.join(topic.connect(), Sub.Exclusive, consumer_id=2)

    with_topic(scenario)


def test_exclusive_consumers_with_key_ranges_get_their_keys_only():
    async def scenario(topic):
        halves = [(0, 32767), (32768, 65535)]
        connections = [topic.connect() for _ in halves]
        for index, (start, end) in enumerate(halves):
            meta = pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=start, end=end)])
            name = f"reader-{index}"
            await topic.join(
                connections[index], Sub.Exclusive, subscription=name, permits=5, durable=False, keySharedMeta=meta
            )
        for index in range(40):
            await topic.publish(f"m{index}", key=f"key-{index}")
        # What is left out costs no permits.
        for connection in connections:
            assert len(connection.texts()) == 5
            handlers.handle_flow(connection, 1, 100)
        await settle()
        first, second = (connection.texts() for connection in connections)
        assert first
        assert second
        assert sorted(first + second) == sorted(f"m{index}" for index in range(40))

    with_topic(scenario)


def test_exclusive_consumer_on_dead_connection_gives_way():
    async def scenario(topic):
        dead = await topic.joined(Sub.Exclusive)
        dead.is_alive = False
        connection = await topic.joined(Sub.Exclusive)
        await topic.publish("m")
        assert connection.texts() == ["m"]
        assert dead.texts() == []

    with_topic(scenario)


def test_other_type_while_consumers_are_connected_is_busy_then_switches():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, Sub.Shared)
        with pytest.raises(ConsumerBusyError):
            await topic.join(connection, Sub.Failover, consumer_id=2)
        consumer.close()
        await topic.join(connection, Sub.Failover, consumer_id=2)
        await topic.publish("m")
        assert connection.texts(2) == ["m"]

    with_topic(scenario)


MANY = 3 * SENT_AWAY_A_TURN + 5


async def many_joined(topic, sub_type):
    """Consumers of one connection, one of which has all that there is."""
    connection = topic.connect()
    await topic.join(connection, sub_type)
    await topic.publish(*TEXTS, key="k")
    for index in range(2, MANY + 1):
        await topic.join(connection, sub_type, consumer_id=index, name=f"c{index:04}")
    return connection


@pytest.mark.parametrize("step", ["close", "fence"])
@pytest.mark.parametrize("sub_type", [Sub.Failover, Sub.Shared, Sub.Key_Shared])
def test_many_consumers_are_sent_away_in_several_turns_and_what_they_had_goes_to_none_of_them(sub_type, step):
    async def scenario(topic):
        connection = await many_joined(topic, sub_type)
        subscription = topic.subscriptions["sub"]
        assert connection.texts()[-len(TEXTS) :] == TEXTS
        connection.commands.clear()
        connection.messages.clear()
        present: list[int] = []

        async def look() -> None:
            while True:
                present.append(len(subscription.consumers))
                await next_turn()

        looking = spawn(look(), name="look")
        await next_turn()
        await getattr(subscription, step)()
        looking.cancel()
        assert present[0] == MANY
        left = [before - now for before, now in pairwise([*present, 0]) if before > now]
        assert left == [SENT_AWAY_A_TURN] * 3 + [5]
        assert connection.texts() == []
        gone = [command.close_consumer.consumer_id for command in connection.of_type(pb.BaseCommand.CLOSE_CONSUMER)]
        assert sorted(gone) == list(range(1, MANY + 1))
        assert len(connection.commands) == MANY

    with_topic(scenario, active_consumer_failover_delay_ms=0)


def test_a_move_that_is_called_off_while_consumers_go_leaves_none_without_dispatch():
    async def scenario(topic):
        connection = await many_joined(topic, Sub.Shared)
        subscription = topic.subscriptions["sub"]
        moving = spawn(subscription.fence(), name="move")
        await next_turn()
        await next_turn()
        assert 0 < len(subscription.consumers) < MANY
        moving.cancel()
        await settle()
        assert moving.cancelled()
        assert subscription.consumers == ()
        assert len(connection.of_type(pb.BaseCommand.CLOSE_CONSUMER)) == MANY
        again = await topic.joined(Sub.Shared)
        assert again.texts() == TEXTS

    with_topic(scenario)


def test_exclusive_consumer_never_waits():
    async def scenario(topic):
        await topic.join(topic.connect(), Sub.Exclusive)
        await topic.publish("m")
        assert topic.subscriptions["sub"].consumers[0].connection.texts() == ["m"]

    with_topic(scenario, active_consumer_failover_delay_ms=1000)


def test_negative_acknowledgment_brings_the_message_again_with_count():
    async def scenario(topic):
        connection = await topic.joined(Sub.Shared)
        positions = await topic.publish("a", "b")
        for _ in range(3):
            redeliver(connection, positions[:1])
            await settle()
        assert connection.texts() == ["a", "b", "a", "a", "a"]
        assert [m.redelivery_count for m in connection.messages] == [0, 0, 1, 2, 3]

    with_topic(scenario)


def test_exclusive_redelivery_of_one_brings_all_unacknowledged():
    async def scenario(topic):
        connection = await topic.joined(Sub.Exclusive, consumer_epoch=0)
        positions = await topic.publish(*TEXTS[:4])
        acknowledge(connection, positions[:1])
        redeliver(connection, positions[2:3], epoch=1)
        await settle()
        assert connection.texts() == [*TEXTS[:4], *TEXTS[1:4]]
        assert [m.epoch for m in connection.messages] == [0] * 4 + [1] * 3

    with_topic(scenario)


def test_permits_are_messages_and_a_batch_is_never_cut():
    async def scenario(topic):
        connection = topic.connect()
        await topic.publish("b1", "b2", "b3", batch=5)
        consumer = await topic.join(connection, Sub.Shared, permits=6)
        assert connection.texts() == ["b1", "b2"]
        assert consumer.permits == -4
        handlers.handle_flow(connection, 1, 4)
        await settle()
        assert len(connection.messages) == 2
        handlers.handle_flow(connection, 1, 1)
        await settle()
        assert len(connection.messages) == 3

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared])
def test_queue_of_zero_gets_one_message_per_permit(sub_type):
    async def scenario(topic):
        connection = await topic.joined(sub_type, permits=0)
        await topic.publish(*TEXTS)
        for expected in range(1, 4):
            handlers.handle_flow(connection, 1, 1)
            await settle()
            assert len(connection.messages) == expected

    with_topic(scenario)


def test_connection_that_is_not_writable_stops_dispatch_until_it_is():
    async def scenario(topic):
        connection = await topic.joined(Sub.Shared)
        connection.output.is_writable = False
        await topic.publish("m")
        assert connection.texts() == []
        connection.set_writable()
        await settle()
        assert connection.texts() == ["m"]

    with_topic(scenario)


def test_unacknowledged_limit_of_consumer_blocks_until_half_is_acknowledged():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, Sub.Shared)
        positions = await topic.publish(*TEXTS)
        assert consumer.was_blocked
        more = await topic.publish("x")
        acknowledge(connection, positions[:4])
        await settle()
        assert connection.texts() == TEXTS
        acknowledge(connection, positions[4:5])
        await settle()
        assert connection.texts() == [*TEXTS, "x"]
        assert more[0] in consumer.pending

    with_topic(scenario, max_unacked_messages_per_consumer=10)


def test_reader_starts_at_its_id_and_vanishes():
    async def scenario(topic):
        positions = await topic.publish(*TEXTS)
        connection = topic.connect()
        start = pb.MessageIdData(ledgerId=positions[4].ledger_id, entryId=positions[4].entry_id)
        consumer = await topic.join(connection, Sub.Exclusive, durable=False, start_message_id=start)
        assert connection.texts() == TEXTS[4:]
        consumer.close()
        await settle()
        assert topic.subscriptions == {}
        assert not topic.ledger.cursor_set.non_durable
        earliest = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
        await topic.join(connection, Sub.Exclusive, consumer_id=2, durable=False, start_message_id=earliest)
        assert connection.texts(2) == TEXTS
        latest = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1)
        await topic.join(
            connection, Sub.Exclusive, consumer_id=3, subscription="r3", durable=False, start_message_id=latest
        )
        await topic.publish("new")
        assert connection.texts(3) == ["new"]

    with_topic(scenario)


def test_reader_rolled_back_by_seconds_starts_at_that_time():
    async def scenario(topic):
        await topic.publish("old")
        await settle(100)
        await topic.publish("new")
        await settle(20)
        connection = await topic.joined(Sub.Exclusive, durable=False, start_message_rollback_duration_sec=60)
        assert connection.texts() == ["new"]

    with_topic(scenario)


def test_subscription_rolled_back_by_seconds_is_made_there_or_not_at_all():
    """One that was made at the end, and not moved, would pass over what it was to begin with when it is asked again."""

    async def scenario(topic):
        await topic.create_subscription("keeps", EARLIEST)
        await topic.publish("old")
        await settle(100)
        await topic.publish("new")
        await settle(20)
        made = 0
        for turns in range(1, 40):
            join = topic.join(topic.connect(), Sub.Exclusive, start_message_rollback_duration_sec=60)
            joining = spawn(join, name="join")
            for _ in range(turns):
                await next_turn()
            joining.cancel()
            await asyncio.wait([joining])
            if "sub" in topic.subscriptions:
                made += 1
                assert topic.subscriptions["sub"].cursor.backlog_count == 1
                await topic.subscriptions["sub"].delete(True)
        assert made > 10

    with_topic(scenario)


def test_non_durable_on_a_durable_subscription_is_not_allowed():
    async def scenario(topic):
        await topic.create_subscription("sub")
        with pytest.raises(NotAllowedError):
            await topic.join(topic.connect(), Sub.Exclusive, durable=False)

    with_topic(scenario)


def test_markers_are_skipped_and_acknowledged():
    async def scenario(topic):
        connection = await topic.joined(Sub.Shared)
        await topic.publish("marker", marker_type=10)
        positions = await topic.publish("m")
        assert connection.texts() == ["m"]
        acknowledge(connection, positions)
        subscription = topic.subscriptions["sub"]
        assert subscription.cursor.backlog_count == 0

    with_topic(scenario)


def test_dispatch_of_many_entries_is_few_writes():
    async def scenario(topic):
        await topic.publish(*[f"m{i}" for i in range(100)])
        connection = await topic.joined(Sub.Exclusive)
        assert len(connection.messages) == 100
        assert connection.write_calls <= 2

    with_topic(scenario)


def test_terminated_topic_tells_consumers_once_everything_is_acknowledged():
    async def scenario(topic):
        connection = await topic.joined(Sub.Shared)
        positions = await topic.publish("m")
        await topic.ledger.terminate()
        topic.subscriptions["sub"].wake()
        await settle()
        assert not connection.of_type(pb.BaseCommand.REACHED_END_OF_TOPIC)
        acknowledge(connection, positions)
        await settle()
        assert len(connection.of_type(pb.BaseCommand.REACHED_END_OF_TOPIC)) == 1

    with_topic(scenario)


def test_many_ledgers_are_dispatched_through():
    async def scenario(topic):
        await topic.create_subscription("sub")
        for text in TEXTS:
            await topic.publish(text)
        connection = await topic.joined(Sub.Shared, permits=3)
        handlers.handle_flow(connection, 1, 100)
        await settle()
        assert connection.texts() == TEXTS

    with_topic(scenario, entries_per_ledger=3)


class SlowLogs:
    """Logs of acknowledgments of which none is there; whether that is so can not be read, or takes until told."""

    def __init__(self):
        self.error = StorageError("a ledger can not be read")
        self.told = asyncio.Event()

    async def exists(self, topic, subscription):
        if self.error is not None:
            raise self.error
        await self.told.wait()
        return False


def test_who_waits_for_what_transactions_acknowledged_is_counted_when_it_joins():
    async def scenario(topic):
        logs = SlowLogs()
        topic.services.has_transactions, topic.services.pending_ack_logs = True, logs
        for name in ("sub", "other"):
            await topic.create_subscription(name)
        await topic.subscriptions["sub"].transactions.load()
        logs.error = None

        async def wait():
            with pytest.raises(ConsumerBusyError):
                await topic.join(topic.connect(), consumer_id=2)

        waiting = spawn(wait(), name="one that waits")
        await settle()
        await topic.join(topic.connect(), subscription="other")
        logs.told.set()
        await waiting
        assert not topic.subscriptions["sub"].consumers

    with_topic(scenario, max_consumers_per_topic=1)
