"""Entry filters of subscriptions: what is sent, acknowledged, asked again, and what happens when filters fail."""

from __future__ import annotations

import pytest

from geminga.broker.filters.judging import DELIVER
from geminga.broker.filters.pool import FilterPool
from geminga.broker.filters.topic_filters import TopicFilters
from geminga.broker.subscription.acknowledgment import acknowledge
from geminga.entry_filters import ACCEPT, REJECT, RESCHEDULE, FilterVerdict
from geminga.managed_ledger.rules import cursor_format
from support.worlds.filter_processes import SimulatedProcesses
from support.worlds.subscriptions import Sub, settle, with_topic

ALL_TYPES = [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared]


def by_property(entry):
    return FilterVerdict[entry.properties.get("verdict", "ACCEPT")]


def with_filters(scenario, filters=None, **config):
    """Run ``scenario(topic, processes, pool)`` on a topic with the filter ``f``."""

    async def on_topic(topic):
        processes = SimulatedProcesses(filters or {"f": by_property})
        services = topic.services
        pool = FilterPool(services.config, processes, services.runtime.clock.monotonic, topic)
        topic.filters = TopicFilters(("f",), pool)
        await scenario(topic, processes, pool)
        await pool.close()
        assert processes.running == []

    with_topic(on_topic, **config)


async def publish(topic, *verdicts, key=None):
    """An entry for each verdict, whose text is its number and the verdict."""
    positions = []
    for verdict in verdicts:
        properties = [{"key": "verdict", "value": verdict.name}]
        positions += await topic.publish(f"{topic.sequence_id}{verdict.name[:3]}", key=key, properties=properties)
    return positions


@pytest.mark.parametrize("sub_type", ALL_TYPES)
def test_rejected_entries_are_acknowledged_and_others_are_sent_in_order(sub_type):
    async def scenario(topic, processes, pool):
        await publish(topic, ACCEPT, REJECT, REJECT, ACCEPT, REJECT, key="k")
        connection = await topic.joined(sub_type)
        assert connection.texts() == ["0ACC", "3ACC"]
        subscription = topic.subscriptions["sub"]
        assert subscription.cursor.backlog_count == 2
        found = subscription.filter
        assert (found.processed, found.accepted, found.rejected, found.rescheduled) == (5, 2, 3, 0)
        # What comes later is asked about too, and a read of which nothing is left does not end dispatch.
        await publish(topic, REJECT, REJECT, ACCEPT, key="k")
        await settle()
        assert connection.texts() == ["0ACC", "3ACC", "7ACC"]

    with_filters(scenario)


def test_entries_of_one_read_go_over_in_one_batch():
    async def scenario(topic, processes, pool):
        await publish(topic, *[ACCEPT] * 30)
        await topic.join(topic.connect(), Sub.Exclusive)
        assert processes.children[0].batches[0] == list(range(30))
        assert len(processes.children) == 1

    with_filters(scenario)


def test_markers_are_not_asked_about():
    async def scenario(topic, processes, pool):
        await topic.publish("marker", marker_type=10)
        connection = await topic.joined(Sub.Exclusive)
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        assert processes.children == [], "nothing is asked about markers alone"
        await topic.publish("marker", marker_type=10)
        await publish(topic, ACCEPT)
        assert [2] in processes.children[0].batches
        assert len(processes.children[0].batches) == 1
        assert len(connection.texts()) == 1
        assert topic.subscriptions["sub"].filter.processed == 1

    with_filters(scenario)


def test_a_batch_is_counted_in_messages():
    async def scenario(topic, processes, pool):
        await topic.publish("b", batch=8)
        await topic.join(topic.connect(), Sub.Shared)
        assert topic.subscriptions["sub"].filter.accepted == 8

    with_filters(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover])
def test_rescheduled_keeps_the_order_of_a_single_consumer(sub_type):
    async def scenario(topic, processes, pool):
        await publish(topic, ACCEPT, RESCHEDULE, ACCEPT, REJECT)
        connection = await topic.joined(sub_type)
        assert connection.texts() == ["0ACC"]
        await settle(0.9)
        assert connection.texts() == ["0ACC"]
        processes.filters["f"] = lambda entry: REJECT if "REJ" in str(entry.properties) else ACCEPT
        await settle(0.2)
        assert connection.texts() == ["0ACC", "1RES", "2ACC"]
        found = topic.subscriptions["sub"].filter
        assert (found.accepted, found.rejected, found.rescheduled) == (3, 1, 1)

    with_filters(scenario)


def test_rescheduled_lets_others_pass_on_shared():
    async def scenario(topic, processes, pool):
        await publish(topic, RESCHEDULE, ACCEPT)
        connection = await topic.joined(Sub.Shared)
        assert connection.texts() == ["1ACC"]
        await settle(1.1)
        assert topic.subscriptions["sub"].filter.rescheduled == 2
        processes.filters["f"] = lambda _: ACCEPT
        await settle(1)
        assert connection.texts() == ["1ACC", "0RES"]
        topic.subscriptions["sub"].dispatch.core.check_invariants()

    with_filters(scenario)


def test_rescheduled_holds_what_has_its_key_on_key_shared():
    async def scenario(topic, processes, pool):
        await publish(topic, RESCHEDULE, ACCEPT, key="a")
        await publish(topic, ACCEPT, key="b")
        connection = await topic.joined(Sub.Key_Shared)
        assert connection.texts() == ["2ACC"]
        core = topic.subscriptions["sub"].dispatch.core
        core.check_invariants()
        await publish(topic, ACCEPT, key="a")
        assert connection.texts() == ["2ACC"]
        assert topic.subscriptions["sub"].filter.rescheduled == 1
        processes.filters["f"] = lambda _: ACCEPT
        await settle(1.1)
        assert connection.texts() == ["2ACC", "0RES", "1ACC", "3ACC"]
        core.check_invariants()

    with_filters(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_rescheduled_waits_for_its_delivery_time_all_the_same(sub_type):
    async def scenario(topic, processes, pool):
        due_ms = topic.services.runtime.clock.wall_ms() + 5_000
        later = [{"key": "verdict", "value": "RESCHEDULE"}]
        await topic.publish("delayed", key="a", properties=later, deliver_at_time=due_ms)
        connection = await topic.joined(sub_type)
        processes.filters["f"] = lambda _: ACCEPT
        await settle(3)
        assert connection.texts() == []
        await settle(3)
        assert connection.texts() == ["delayed"]

    with_filters(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_rescheduled_is_sent_once_though_it_was_known_to_wait_before(sub_type):
    async def scenario(topic, processes, pool):
        due_ms = topic.services.runtime.clock.wall_ms() + 5_000
        await topic.publish("first", key="a")
        await topic.publish("delayed", key="b", properties=[{"key": "late", "value": "x"}], deliver_at_time=due_ms)
        consumer = await topic.join(topic.connect(), sub_type)
        await settle(0.1)
        consumer.close()
        await settle(4.4)
        processes.filters["f"] = lambda entry: RESCHEDULE if entry.properties else ACCEPT
        connection = await topic.joined(sub_type)
        core = topic.subscriptions["sub"].dispatch.core
        await settle(0.1)
        assert topic.subscriptions["sub"].filter.rescheduled == 1
        processes.filters["f"] = lambda _: ACCEPT
        await settle(0.7)
        assert connection.texts() == ["first"], "its time came, the filter is asked later"
        core.check_invariants()
        await settle(3)
        assert connection.texts() == ["first", "delayed"]
        core.check_invariants()

    with_filters(scenario)


def test_what_is_sent_again_is_asked_about_again():
    async def scenario(topic, processes, pool):
        await publish(topic, ACCEPT, ACCEPT)
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Shared)
        processes.filters["f"] = lambda _: REJECT
        await topic.join(second, Sub.Shared, consumer_id=2, name="c2")
        first.drop()
        await settle()
        assert second.texts() == []
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        topic.subscriptions["sub"].dispatch.core.check_invariants()

    with_filters(scenario)


@pytest.mark.parametrize("sub_type", ALL_TYPES)
@pytest.mark.parametrize("how", ["stalled", "deadly", "raises", "absent", "strange"])
def test_dispatch_waits_while_filters_fail_and_goes_on_when_they_answer(sub_type, how):
    async def scenario(topic, processes, pool):
        def fails(entry):
            raise ValueError("no")

        if how in ("stalled", "deadly"):
            getattr(processes, how).add("f")
        elif how == "absent":
            processes.filters.clear()
        else:
            processes.filters["f"] = fails if how == "raises" else lambda _: "ACCEPT"
        await publish(topic, ACCEPT, REJECT)
        connection = await topic.joined(sub_type)
        await settle(1.5)
        subscription = topic.subscriptions["sub"]
        told = {
            "stalled": "they took longer than 1000 ms for a batch",
            "deadly": "their process was ended by SIGKILL",
            "raises": "f of entry 0 of its batch: ValueError: no",
            "absent": "f: it is not found",
            "strange": "f of entry 0 of its batch: it answered 'ACCEPT', not ACCEPT, REJECT or RESCHEDULE",
        }[how]
        assert str(subscription.filter.error) == told
        assert connection.texts() == []
        assert subscription.cursor.backlog_count == 2
        assert subscription.dispatch.read_error is None
        processes.stalled.clear()
        processes.deadly.clear()
        processes.filters["f"] = by_property
        await settle(600)
        assert connection.texts() == ["0ACC"]
        assert subscription.filter.error is None
        assert subscription.cursor.backlog_count == 1

    with_filters(scenario)


def test_delivery_unfiltered_is_counted_where_it_is_chosen():
    async def scenario(topic, processes, pool):
        processes.stalled.add("f")
        await publish(topic, ACCEPT, REJECT)
        connection = await topic.joined(Sub.Exclusive)
        await settle(1.5)
        assert len(connection.texts()) == 2
        found = topic.subscriptions["sub"].filter
        assert (found.unfiltered, found.processed) == (2, 0)
        assert found.error is not None

    with_filters(scenario, entry_filter_failure=DELIVER)


def test_dispatch_goes_on_at_once_when_the_filters_that_fail_are_removed():
    async def scenario(topic, processes, pool):
        processes.stalled.add("f")
        await publish(topic, ACCEPT, REJECT)
        connection = await topic.joined(Sub.Shared)
        await settle(1.5)
        assert connection.texts() == []
        topic.filters = None
        topic.subscriptions["sub"].dispatch.follow_filters()
        await settle()
        assert connection.texts() == ["0ACC", "1REJ"]

    with_filters(scenario)


@pytest.mark.parametrize("sub_type", ALL_TYPES)
def test_nobody_waits_for_a_filter_when_the_consumer_leaves(sub_type):
    async def scenario(topic, processes, pool):
        processes.stalled.add("f")
        await publish(topic, ACCEPT)
        connection = await topic.joined(sub_type)
        subscription = topic.subscriptions["sub"]
        connection.drop()
        await settle()
        await subscription.fence()
        subscription.unfence()
        processes.stalled.clear()
        again = await topic.joined(sub_type)
        await settle(3)
        assert again.texts() == ["0ACC"]

    with_filters(scenario)


def test_an_acknowledgment_while_filters_are_asked_is_kept():
    async def scenario(topic, processes, pool):
        positions = await publish(topic, ACCEPT, ACCEPT)
        connection = topic.connect()
        consumer = await topic.join(connection, Sub.Shared)
        assert len(connection.texts()) == 2
        subscription = topic.subscriptions["sub"]
        processes.delay_s = 0.5
        subscription.dispatch.redeliver(consumer, None, 0)
        await settle()
        ids = [(*positions[0], None)]
        acknowledge(subscription, consumer, ids, is_cumulative=False, done=None)
        await settle(1)
        assert connection.texts() == ["0ACC", "1ACC", "1ACC"]
        subscription.dispatch.core.check_invariants()

    with_filters(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared])
def test_what_is_acknowledged_may_lie_on_disk_only_once_the_filters_answer(sub_type, monkeypatch):
    """While they were asked nothing was read, so that nothing kept it in memory."""
    monkeypatch.setattr(cursor_format, "INLINE_RANGES_MAX", 1)

    async def scenario(topic, processes, pool):
        subscription = await topic.create_subscription("sub")
        positions = await publish(topic, *[ACCEPT] * 20)
        subscription.cursor.acknowledge(positions[1::2])
        await settle(0.1)
        assert len(subscription.cursor.state.acked.away_ids) >= 3
        connection = topic.connect()
        consumer = await topic.join(connection, sub_type)
        await settle(0.1)
        assert connection.texts() == [f"{number}ACC" for number in range(0, 20, 2)]
        # ... and of what is sent again, which is read by position.
        subscription.dispatch.redeliver(consumer, [positions[4], positions[8]] if sub_type == Sub.Shared else None, 0)
        await settle(0.1)
        again = [4, 8] if sub_type == Sub.Shared else range(0, 20, 2)
        assert connection.texts()[10:] == [f"{number}ACC" for number in again]
        assert not connection.is_closed

    with_filters(scenario, entries_per_ledger=5, mark_delete_rate=1000, cursor_memory_bytes=0)
