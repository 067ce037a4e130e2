"""Delayed messages on subscriptions: who waits, how exactly, and what happens over a change of consumers."""

from __future__ import annotations

import pytest

from geminga.broker.subscription import handlers
from support.subscriptions import Sub, settle, with_topic


async def publish_delayed(topic, text, delay_ms, **fields):
    now = topic.broker.runtime.clock.wall_ms()
    return await topic.publish(text, deliver_at_time=now + delay_ms, **fields)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
@pytest.mark.parametrize(("is_strict", "early_s", "late_s"), [(False, 1.0, 0.1), (True, 0.0, 0.6)])
def test_shared_types_wait_within_the_bounds(sub_type, is_strict, early_s, late_s):
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, sub_type)
        await publish_delayed(topic, "later", 5000, key="k")
        await topic.publish("now", key="j")
        assert connection.texts() == ["now"]
        await settle(5.0 - early_s - 0.01)
        assert connection.texts() == ["now"]
        await settle(early_s + late_s)
        assert connection.texts() == ["now", "later"]
        assert connection.messages[-1].redelivery_count == 0

    with_topic(scenario, is_delayed_delivery_deliver_at_time_strict=is_strict)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover])
def test_exclusive_types_deliver_at_once(sub_type):
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, sub_type)
        await publish_delayed(topic, "later", 60_000)
        assert connection.texts() == ["later"]

    with_topic(scenario)


def test_delayed_delivery_switched_off_delivers_at_once():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection)
        await publish_delayed(topic, "later", 60_000)
        assert connection.texts() == ["later"]

    with_topic(scenario, delayed_delivery_enabled=False)


def test_earliest_time_comes_first_and_takes_no_permits_while_waiting():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, permits=3)
        await publish_delayed(topic, "c", 9000)
        await publish_delayed(topic, "a", 3000)
        await publish_delayed(topic, "b", 6000)
        assert consumer.permits == 3
        await settle(10)
        assert connection.texts() == ["a", "b", "c"]

    with_topic(scenario)


def test_due_messages_wait_for_permits():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection, permits=1)
        for i in range(4):
            await publish_delayed(topic, f"m{i}", 2000)
        await settle(5)
        assert connection.texts() == ["m0"]
        handlers.handle_flow(connection, 1, 10)
        await settle()
        assert connection.texts() == ["m0", "m1", "m2", "m3"]

    with_topic(scenario)


def test_index_is_rebuilt_when_consumers_come_back():
    async def scenario(topic):
        first = topic.connect()
        await topic.join(first)
        await publish_delayed(topic, "later", 5000)
        first.drop()
        await settle(1)
        second = topic.connect()
        await topic.join(second)
        assert second.texts() == []
        await settle(5)
        assert second.texts() == ["later"]
        assert first.texts() == []

    with_topic(scenario)


def test_skipped_delayed_message_never_comes():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(connection)
        await publish_delayed(topic, "later", 5000)
        await topic.subscriptions["sub"].cursor.clear_backlog()
        await settle(10)
        assert connection.texts() == []

    with_topic(scenario)


def test_redelivered_message_does_not_wait_again():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection)
        positions = await publish_delayed(topic, "later", 2000)
        await settle(3)
        topic.subscriptions["sub"].dispatch.redeliver(consumer, positions, -1)
        await settle()
        assert [m.redelivery_count for m in connection.messages] == [0, 1]

    with_topic(scenario)
