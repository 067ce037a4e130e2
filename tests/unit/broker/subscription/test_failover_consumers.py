"""Failover: who is active, what it is told and when, and with which message who takes over begins."""

from __future__ import annotations

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.broker.subscription.consumer import FIRST_ACTIVE_CHANGE_S
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.subscriptions import Sub, acknowledge, redeliver, settle, with_topic

TEXTS = [f"m{i}" for i in range(10)]


def active_changes(connection):
    return [c.active_consumer_change.is_active for c in connection.of_type(pb.BaseCommand.ACTIVE_CONSUMER_CHANGE)]


def test_failover_standby_takes_over_unacknowledged():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        a = await topic.join(first, Sub.Failover, name="a", priority_level=0)
        await topic.join(second, Sub.Failover, name="b", priority_level=1)
        positions = await topic.publish(*TEXTS[:3])
        acknowledge(first, positions[:1])
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
        connection = await topic.joined(Sub.Failover, permits=0)
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
        connection = await topic.joined(Sub.Failover)
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


def test_failover_better_priority_takes_over_after_the_delay():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Failover, name="a", priority_level=1)
        await settle(1.1)
        positions = await topic.publish("m0", "m1")
        await topic.join(second, Sub.Failover, name="b", priority_level=0)
        acknowledge(first, positions[:1])
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


def test_redelivery_asked_for_by_a_standby_consumer_counts_once_it_is_active():
    """Its client drops messages of older epochs: they must not come with the epoch of its SUBSCRIBE."""

    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        a = await topic.join(first, Sub.Failover, name="a", priority_level=0, consumer_epoch=0)
        await topic.join(second, Sub.Failover, name="b", priority_level=1, consumer_epoch=0)
        await topic.publish(*TEXTS[:2])
        redeliver(second, epoch=3)
        redeliver(second, epoch=2)
        await settle()
        assert second.texts() == []
        a.close()
        await settle()
        assert second.texts() == [*TEXTS[:2]]
        assert [m.epoch for m in second.messages] == [3, 3]

    with_topic(scenario)
