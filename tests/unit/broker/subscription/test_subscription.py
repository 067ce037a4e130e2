"""Subscriptions of all types on a real managed ledger: delivery, order, redelivery, permits."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.broker.subscription.consumer import FIRST_ACTIVE_CHANGE_S
from geminga.model.errors import ConsumerAssignError, ConsumerBusyError, NotAllowedError, StorageError
from geminga.runtime import spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.subscriptions import Sub, settle, with_topic

TEXTS = [f"m{i}" for i in range(10)]


def redeliver(connection, consumer_id, positions=(), epoch=None):
    request = pb.CommandRedeliverUnacknowledgedMessages(
        consumer_id=consumer_id,
        message_ids=[pb.MessageIdData(ledgerId=p.ledger_id, entryId=p.entry_id) for p in positions],
    )
    if epoch is not None:
        request.consumer_epoch = epoch
    handlers.handle_redeliver(connection, pb.BaseCommand(redeliverUnacknowledgedMessages=request))


def acknowledge(connection, consumer_id, positions, *, ack_type=pb.CommandAck.Individual, ack_set=(), request_id=None):
    ack = pb.CommandAck(
        consumer_id=consumer_id,
        ack_type=ack_type,
        message_id=[pb.MessageIdData(ledgerId=p.ledger_id, entryId=p.entry_id, ack_set=ack_set) for p in positions],
    )
    if request_id is not None:
        ack.request_id = request_id
    raw = pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString()
    handlers.handle_ack_bytes(connection, raw)


def active_changes(connection):
    return [c.active_consumer_change.is_active for c in connection.of_type(pb.BaseCommand.ACTIVE_CONSUMER_CHANGE)]


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared])
def test_consumer_of_any_type_gets_backlog_and_tail_in_order(sub_type):
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish(*TEXTS[:5], key="k")
        connection = topic.connect()
        await topic.join(connection, sub_type)
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
        dead = topic.connect()
        await topic.join(dead, Sub.Exclusive)
        dead.is_alive = False
        connection = topic.connect()
        await topic.join(connection, Sub.Exclusive)
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


def test_failover_standby_takes_over_unacknowledged():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        a = await topic.join(first, Sub.Failover, name="a", priority_level=0)
        await topic.join(second, Sub.Failover, name="b", priority_level=1)
        positions = await topic.publish(*TEXTS[:3])
        acknowledge(first, 1, positions[:1])
        assert first.texts() == TEXTS[:3]
        assert second.texts() == []
        first.drop()
        await settle()
        assert second.texts() == TEXTS[1:3]
        assert active_changes(second) == [False, True]
        assert a.is_closed

    with_topic(scenario)


def test_failover_consumer_is_told_that_it_is_active_only_after_its_client_knows_it():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, Sub.Failover, permits=0)
        # The Go client drops what comes before it has read the answer to SUBSCRIBE.
        assert active_changes(connection) == []
        handlers.handle_flow(connection, 1, 10)
        assert active_changes(connection) == [True]
        handlers.handle_flow(connection, 1, 10)
        await settle(FIRST_ACTIVE_CHANGE_S + 0.1)
        assert active_changes(connection) == [True]

    with_topic(scenario)


def test_failover_consumer_that_asks_for_nothing_is_told_the_last_state_after_a_while():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Failover, name="a")
        await topic.join(second, Sub.Failover, name="b", permits=0, priority_level=1)
        assert active_changes(second) == []
        first.drop()
        await settle(FIRST_ACTIVE_CHANGE_S + 0.1)
        assert active_changes(second) == [True]

    with_topic(scenario)


def test_failover_group_that_starts_together_waits_once_and_the_active_one_gets_everything():
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish(*TEXTS)
        connections = {name: topic.connect() for name in ("c", "b", "a")}
        for name, priority in (("c", 2), ("b", 1), ("a", 0)):
            # The next comes in the pause of the one before, which goes on and does not begin anew.
            await topic.join(connections[name], Sub.Failover, name=name, priority_level=priority)
            await settle(0.3)
        assert {name: connection.texts() for name, connection in connections.items()} == {"a": [], "b": [], "c": []}
        assert not any(active_changes(connection) for connection in connections.values())
        await settle(0.05)
        assert active_changes(connections["a"]) == []
        await settle(0.1)
        assert connections["a"].texts() == TEXTS
        assert connections["b"].texts() == connections["c"].texts() == []
        changes = {name: active_changes(connection)[-1:] for name, connection in connections.items()}
        assert changes == {"a": [True], "b": [False], "c": [False]}

    with_topic(scenario, active_consumer_failover_delay_ms=1000)


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_failover_first_consumer_waits_for_the_delay_if_there_is_one(delay_ms):
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish("m0")
        connection = topic.connect()
        await topic.join(connection, Sub.Failover)
        await topic.publish("m1")
        handlers.handle_flow(connection, 1, 10)
        await settle(delay_ms / 1000 - 0.01 if delay_ms else 0)
        assert connection.texts() == ([] if delay_ms else ["m0", "m1"])
        await settle(0.02)
        assert connection.texts() == ["m0", "m1"]
        assert active_changes(connection) == [True]

    with_topic(scenario, active_consumer_failover_delay_ms=delay_ms)


def test_failover_standby_waits_too_when_the_active_one_is_gone():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Failover, name="a", priority_level=0)
        await topic.join(second, Sub.Failover, name="b", priority_level=1)
        await settle(1.1)
        await topic.publish("m0", "m1")
        assert first.texts() == ["m0", "m1"]
        first.drop()
        await settle(0.9)
        assert second.texts() == []
        await settle(0.2)
        assert second.texts() == ["m0", "m1"]

    with_topic(scenario, active_consumer_failover_delay_ms=1000)


def test_exclusive_consumer_never_waits():
    async def scenario(topic):
        await topic.join(topic.connect(), Sub.Exclusive)
        await topic.publish("m")
        assert topic.subscriptions["sub"].consumers[0].connection.texts() == ["m"]

    with_topic(scenario, active_consumer_failover_delay_ms=1000)


def test_failover_better_priority_takes_over_after_the_delay():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Failover, name="a", priority_level=1)
        await settle(1.1)
        positions = await topic.publish("m0", "m1")
        await topic.join(second, Sub.Failover, name="b", priority_level=0)
        acknowledge(first, 1, positions[:1])
        assert second.texts() == []
        await settle(1.1)
        assert second.texts() == ["m1"]

    with_topic(scenario, active_consumer_failover_delay_ms=1000)


@pytest.mark.parametrize(("partition", "active"), [(0, "a"), (1, "b"), (2, "a")])
def test_failover_partitions_spread_by_index(partition, active):
    async def scenario(topic):
        connections = {"b": topic.connect(), "a": topic.connect()}
        for name, connection in connections.items():
            await topic.join(connection, Sub.Failover, name=name)
        await settle(1.5)
        await topic.publish("m")
        assert connections[active].texts() == ["m"]

    with_topic(scenario, name=f"persistent://public/default/t-partition-{partition}")


def test_shared_consumers_take_turns():
    async def scenario(topic):
        connections = [topic.connect() for _ in range(3)]
        for index, connection in enumerate(connections):
            await topic.join(connection, Sub.Shared, consumer_id=index)
        await topic.publish(*[f"m{i}" for i in range(90)])
        texts = [connection.texts() for connection in connections]
        assert sorted(len(t) for t in texts) == [20, 30, 40]  # whole turns of 20 messages
        assert sorted(t for group in texts for t in group) == sorted(f"m{i}" for i in range(90))

    with_topic(scenario)


def test_shared_better_priority_goes_first_while_it_has_permits():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Shared, priority_level=1)
        await topic.join(second, Sub.Shared, priority_level=0, permits=4)
        await topic.publish(*TEXTS)
        assert second.texts() == TEXTS[:4]
        assert first.texts() == TEXTS[4:]

    with_topic(scenario)


def test_shared_messages_of_a_lost_consumer_go_to_others_with_count():
    async def scenario(topic):
        lost, left = topic.connect(), topic.connect()
        await topic.join(lost, Sub.Shared, permits=4)
        await topic.join(left, Sub.Shared, permits=0)
        positions = await topic.publish(*TEXTS[:4])
        acknowledge(lost, 1, positions[1:2])
        lost.drop()
        handlers.handle_flow(left, 1, 100)
        await settle()
        assert left.texts() == ["m0", "m2", "m3"]
        assert [m.redelivery_count for m in left.messages] == [1, 1, 1]

    with_topic(scenario)


def test_negative_acknowledgement_brings_the_message_again_with_count():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, Sub.Shared)
        positions = await topic.publish("a", "b")
        for _ in range(3):
            redeliver(connection, 1, positions[:1])
            await settle()
        assert connection.texts() == ["a", "b", "a", "a", "a"]
        assert [m.redelivery_count for m in connection.messages] == [0, 0, 1, 2, 3]

    with_topic(scenario)


def test_exclusive_redelivery_of_one_brings_all_unacknowledged():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, Sub.Exclusive, consumer_epoch=0)
        positions = await topic.publish(*TEXTS[:4])
        acknowledge(connection, 1, positions[:1])
        redeliver(connection, 1, positions[2:3], epoch=1)
        await settle()
        assert connection.texts() == [*TEXTS[:4], *TEXTS[1:4]]
        assert [m.epoch for m in connection.messages] == [0] * 4 + [1] * 3

    with_topic(scenario)


def test_redelivery_asked_for_by_a_standby_consumer_counts_once_it_is_active():
    """Its client drops messages of older epochs: they must not come with the epoch of its SUBSCRIBE."""

    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        a = await topic.join(first, Sub.Failover, name="a", priority_level=0, consumer_epoch=0)
        await topic.join(second, Sub.Failover, name="b", priority_level=1, consumer_epoch=0)
        await topic.publish(*TEXTS[:2])
        redeliver(second, 1, epoch=3)
        redeliver(second, 1, epoch=2)
        await settle()
        assert second.texts() == []
        a.close()
        await settle()
        assert second.texts() == [*TEXTS[:2]]
        assert [m.epoch for m in second.messages] == [3, 3]

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
        connection = topic.connect()
        await topic.join(connection, sub_type, permits=0)
        await topic.publish(*TEXTS)
        for expected in range(1, 4):
            handlers.handle_flow(connection, 1, 1)
            await settle()
            assert len(connection.messages) == expected

    with_topic(scenario)


def test_connection_that_is_not_writable_stops_dispatch_until_it_is():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, Sub.Shared)
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
        acknowledge(connection, 1, positions[:4])
        await settle()
        assert connection.texts() == TEXTS
        acknowledge(connection, 1, positions[4:5])
        await settle()
        assert connection.texts() == [*TEXTS, "x"]
        assert more[0] in consumer.pending

    with_topic(scenario, max_unacked_messages_per_consumer=10)


def test_key_shared_key_stays_with_its_consumer_until_drained():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        keys = [f"k{i}" for i in range(20)]
        await topic.join(first, Sub.Key_Shared, name="a")
        positions = {}
        for key in keys:
            positions[key] = (await topic.publish(key, key=key))[0]
        await topic.join(second, Sub.Key_Shared, name="b")
        for key in keys:
            await topic.publish(f"{key}-2", key=key)
        moved = [key for key in keys if f"{key}-2" not in first.texts()]
        assert 3 < len(moved) < 17
        assert second.texts() == []  # all that moved is draining
        acknowledge(first, 1, [positions[moved[0]]])
        await settle()
        assert second.texts() == [f"{moved[0]}-2"]
        first.drop()
        await settle()
        expected = {key: [key, f"{key}-2"] for key in keys if key != moved[0]}
        for key, texts in expected.items():
            assert [t for t in second.texts() if t in (key, f"{key}-2")] == texts

    with_topic(scenario)


def test_key_shared_slow_consumer_does_not_hold_up_others():
    async def scenario(topic):
        slow, fast = topic.connect(), topic.connect()
        await topic.join(slow, Sub.Key_Shared, name="a", permits=1)
        await topic.join(fast, Sub.Key_Shared, name="b")
        for i in range(200):
            await topic.publish(f"m{i}", key=f"k{i}")
        assert len(slow.messages) == 1
        assert len(fast.messages) > 50

    with_topic(scenario)


def test_key_shared_sticky_ranges_must_not_overlap():
    def policy(*ranges):
        return pb.KeySharedMeta(
            keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=first, end=last) for first, last in ranges]
        )

    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Key_Shared, keySharedMeta=policy((0, 30000)))
        with pytest.raises(ConsumerAssignError):
            await topic.join(second, Sub.Key_Shared, keySharedMeta=policy((30000, 65535)))
        with pytest.raises(ConsumerBusyError):
            await topic.join(second, Sub.Key_Shared)
        await topic.join(second, Sub.Key_Shared, keySharedMeta=policy((30001, 65535)))
        await topic.publish(*TEXTS)
        assert sorted(first.texts() + second.texts()) == TEXTS
        assert first.texts()
        assert second.texts()

    with_topic(scenario)


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
        connection = topic.connect()
        await topic.join(connection, Sub.Exclusive, durable=False, start_message_rollback_duration_sec=60)
        assert connection.texts() == ["new"]

    with_topic(scenario)


def test_non_durable_on_a_durable_subscription_is_not_allowed():
    async def scenario(topic):
        await topic.create_subscription("sub")
        with pytest.raises(NotAllowedError):
            await topic.join(topic.connect(), Sub.Exclusive, durable=False)

    with_topic(scenario)


def test_markers_are_skipped_and_acknowledged():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, Sub.Shared)
        await topic.publish("marker", marker_type=10)
        positions = await topic.publish("m")
        assert connection.texts() == ["m"]
        acknowledge(connection, 1, positions)
        subscription = topic.subscriptions["sub"]
        assert subscription.cursor.backlog_count == 0

    with_topic(scenario)


def test_dispatch_of_many_entries_is_few_writes():
    async def scenario(topic):
        await topic.publish(*[f"m{i}" for i in range(100)])
        connection = topic.connect()
        await topic.join(connection, Sub.Exclusive)
        assert len(connection.messages) == 100
        assert connection.write_calls <= 2

    with_topic(scenario)


def test_terminated_topic_tells_consumers_once_everything_is_acknowledged():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, Sub.Shared)
        positions = await topic.publish("m")
        await topic.ledger.terminate()
        topic.subscriptions["sub"].wake()
        await settle()
        assert not connection.of_type(pb.BaseCommand.REACHED_END_OF_TOPIC)
        acknowledge(connection, 1, positions)
        await settle()
        assert len(connection.of_type(pb.BaseCommand.REACHED_END_OF_TOPIC)) == 1

    with_topic(scenario)


def test_many_ledgers_are_dispatched_through():
    async def scenario(topic):
        await topic.create_subscription("sub")
        for text in TEXTS:
            await topic.publish(text)
        connection = topic.connect()
        await topic.join(connection, Sub.Shared, permits=3)
        handlers.handle_flow(connection, 1, 100)
        await settle()
        assert connection.texts() == TEXTS

    with_topic(scenario, entries_per_ledger=3)


class SlowLogs:
    """Logs of acknowledgements of which none is there; whether that is so can not be read, or takes until told."""

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
