"""Delayed messages on subscriptions: who waits, how exactly, and what happens over a change of consumers."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.broker.subscription.seek import clear_backlog
from geminga.runtime import SystemRng
from support.house.stepping_clock import let_timers_be_early
from support.house.weekly_sample import sampled
from support.worlds.subscriptions import Sub, settle, with_topic


async def publish_delayed(topic, *texts, delay_ms=None, **fields):
    if delay_ms is None:
        *texts, delay_ms = texts
    now = topic.services.runtime.clock.wall_ms()
    return await topic.publish(*texts, deliver_at_time=now + delay_ms, **fields)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
@pytest.mark.parametrize(("is_strict", "early_s", "late_s"), [(False, 1.0, 0.1), (True, 0.0, 0.6)])
def test_shared_types_wait_within_the_bounds(sub_type, is_strict, early_s, late_s):
    async def scenario(topic):
        connection = await topic.joined(sub_type)
        await publish_delayed(topic, "later", 5000, key="k")
        await topic.publish("now", key="j")
        assert connection.texts() == ["now"]
        await settle(5.0 - early_s - 0.01)
        assert connection.texts() == ["now"]
        await settle(early_s + late_s)
        assert connection.texts() == ["now", "later"]
        assert connection.messages[-1].redelivery_count == 0

    with_topic(scenario, is_delayed_delivery_deliver_at_time_strict=is_strict)


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("seed", sampled("delayed messages", range(10), 4))
def test_message_whose_time_comes_while_the_timer_is_handled_is_not_forgotten(seed, is_strict):
    """A timer may fire a little early: the message was not due when it was looked for, and was when the next timer was
    set, which was left out for a message that is due."""

    async def scenario(topic):
        let_timers_be_early(topic.services, SystemRng(seed))
        connection = await topic.joined()
        for number in range(10):
            await publish_delayed(topic, f"m{number}", 2000)
            await settle(4.0)
            assert connection.texts() == [f"m{index}" for index in range(number + 1)]

    with_topic(scenario, is_delayed_delivery_deliver_at_time_strict=is_strict)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover])
def test_exclusive_types_deliver_at_once(sub_type):
    async def scenario(topic):
        connection = await topic.joined(sub_type)
        await publish_delayed(topic, "later", 60_000)
        assert connection.texts() == ["later"]

    with_topic(scenario)


def test_delayed_delivery_switched_off_delivers_at_once():
    async def scenario(topic):
        connection = await topic.joined()
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
        connection = await topic.joined(permits=1)
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
        first = await topic.joined()
        await publish_delayed(topic, "later", 5000)
        first.drop()
        await settle(1)
        second = await topic.joined()
        assert second.texts() == []
        await settle(5)
        assert second.texts() == ["later"]
        assert first.texts() == []

    with_topic(scenario)


def test_skipped_delayed_message_never_comes():
    async def scenario(topic):
        connection = await topic.joined()
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


def test_ten_subscriptions_share_one_index():
    async def scenario(topic):
        connections = [topic.connect() for _ in range(10)]
        for i, connection in enumerate(connections):
            await topic.join(connection, [Sub.Shared, Sub.Key_Shared][i % 2], subscription=f"s{i}")
        for delay_ms in (9000, 3000, 6000):
            await publish_delayed(topic, f"{delay_ms}", delay_ms, key="k")
        assert len(topic.delays()) == 3
        assert [topic.subscriptions[f"s{i}"].dispatch.due.count for i in range(10)] == [3] * 10
        await settle(4)
        assert len(topic.delays()) == 2
        await settle(10)
        assert [connection.texts() for connection in connections] == [["3000", "6000", "9000"]] * 10
        assert len(topic.delays()) == 0

    with_topic(scenario)


def test_subscription_that_joins_later_is_given_what_waits_and_what_is_due():
    async def scenario(topic):
        first = await topic.joined(subscription="early")
        await publish_delayed(topic, "soon", 3000)
        await publish_delayed(topic, "later", 9000)
        await settle(5)
        second = await topic.joined(subscription="late")
        assert second.texts() == ["soon"]
        await settle(5)
        assert first.texts() == second.texts() == ["soon", "later"]

    with_topic(scenario)


def test_slow_subscription_keeps_only_what_it_was_not_given():
    async def scenario(topic):
        slow, fast = topic.connect(), topic.connect()
        await topic.join(slow, subscription="slow", permits=1)
        await topic.join(fast, subscription="fast")
        for i in range(5):
            await publish_delayed(topic, f"m{i}", 2000)
        await settle(5)
        assert slow.texts() == ["m0"]
        assert fast.texts() == [f"m{i}" for i in range(5)]
        handlers.handle_flow(slow, 1, 10)
        await settle()
        assert slow.texts() == fast.texts()
        assert len(topic.delays()) == 0

    with_topic(scenario)


@pytest.mark.parametrize("delay_ms", [1, 100, 511, 512, 513, 1000, 1499, 5000, 61_234])
@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_delayed_message_is_never_early_by_default_and_at_most_a_tick_late(sub_type, delay_ms):
    async def scenario(topic):
        wall_ms = topic.services.runtime.clock.wall_ms
        connection = await topic.joined(sub_type)
        for number in range(10):
            await settle(0.0377 * number)  # at any place of a bucket
            due_ms = wall_ms() + delay_ms
            await publish_delayed(topic, f"m{number}", delay_ms, key="k")
            await settle((due_ms - 1 - wall_ms()) / 1000)
            assert len(connection.messages) == number, f"{due_ms - wall_ms()} ms early"
            await settle(1.001)
            assert len(connection.messages) == number + 1

    with_topic(scenario)


def test_coming_at_their_time_costs_no_more_turns_than_coming_early():
    """Of the loop, over an hour with 600 messages: a timer that is set for a time at which nothing is due yet, and set
    again, would show here."""
    turns: dict[bool, int] = {}
    for is_strict in (False, True):

        async def scenario(topic, is_strict=is_strict):
            connection = await topic.joined()
            rng = SystemRng(7)
            for number in range(600):
                await publish_delayed(topic, f"m{number}", 1000 + rng.below(3_000_000))
            world = asyncio.get_running_loop()
            before = world.steps
            await settle(3600)
            turns[is_strict] = world.steps - before
            assert len(connection.messages) == 600

        with_topic(scenario, is_delayed_delivery_deliver_at_time_strict=is_strict)
    assert turns[True] <= turns[False] * 1.02, turns


@pytest.mark.parametrize(("is_strict", "buckets"), [(False, 0), (True, 1)])
def test_coarse_subscription_gets_its_messages_a_bucket_at_a_time(is_strict, buckets):
    async def scenario(topic):
        fine, coarse = topic.connect(), topic.connect()
        await topic.create_subscription("coarse")
        await topic.subscriptions["coarse"].set_properties({"delayedDeliveryTickTimeMillis": "60000"})
        await topic.join(fine, subscription="fine")
        await topic.join(coarse, subscription="coarse")
        now = topic.services.runtime.clock.wall_ms()
        bucket = (now // 32768 + 2) * 32768
        for i in range(3):
            await topic.publish(f"m{i}", deliver_at_time=bucket + 10_000 * i + 500)
        await settle((bucket - now) / 1000 + buckets * 32.768 - 0.05)
        assert coarse.texts() == []
        await settle(0.1)
        # Rounded to 2^15 ms, so all three come together: down, the last 20 s early; strict, up, the first 32 s late.
        assert coarse.texts() == ["m0", "m1", "m2"]
        assert len(fine.texts()) == (3 if is_strict else 1)
        await settle(30)
        assert fine.texts() == ["m0", "m1", "m2"]
        assert len(coarse.texts()) == 3

    with_topic(scenario, is_delayed_delivery_deliver_at_time_strict=is_strict)


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "99999999999"])
def test_tick_property_that_is_no_tick_is_passed_over(text):
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.subscriptions["sub"].set_properties({"delayedDeliveryTickTimeMillis": text})
        assert topic.subscriptions["sub"].delivery_tick_ms == 1000

    with_topic(scenario)


def test_consumers_that_come_back_do_not_read_what_waits():
    async def scenario(topic):
        first = await topic.joined()
        for i in range(3):
            await publish_delayed(topic, *[f"d{i}-{j}" for j in range(60)], delay_ms=60_000 + i)
            await topic.publish(f"now{i}")
        first.drop()
        cache = topic.cache
        seen = cache.hits + cache.misses
        second = await topic.joined()
        assert second.texts() == ["now0", "now1", "now2"]
        assert cache.hits + cache.misses - seen < 20
        await settle(61)
        assert len(second.texts()) == 183

    with_topic(scenario, entries_per_ledger=70)


def test_clock_set_forward_gives_what_is_due_by_it():
    async def scenario(topic):
        connection = await topic.joined()
        await publish_delayed(topic, "later", 3_600_000)
        topic.services.runtime.clock.jump(3_700_000)
        # Nothing wakes for a clock that was set; it is looked at every ten seconds.
        await settle(11)
        assert connection.texts() == ["later"]

    with_topic(scenario)


def test_clock_set_back_lets_new_messages_wait_by_it_and_repeats_nothing():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, subscription="a")
        await publish_delayed(topic, "old", 5000)
        await settle(6)
        topic.services.runtime.clock.jump(-3_600_000)
        await publish_delayed(topic, "new", 5000)
        await topic.join(second, subscription="b")
        await settle(1)
        assert first.texts() == ["old"]
        # For this one its time is still to come, by the clock there is.
        assert second.texts() == []
        await settle(5)
        assert first.texts() == ["old", "new"]
        assert second.texts() == ["new"]
        await settle(3_600)
        assert first.texts() == ["old", "new"]
        assert second.texts() == ["new", "old"]

    with_topic(scenario)


def test_what_every_subscription_skipped_leaves_the_index():
    async def scenario(topic):
        a, b = topic.connect(), topic.connect()
        await topic.join(a, subscription="a")
        await topic.join(b, subscription="b")
        for i in range(4):
            await publish_delayed(topic, f"m{i}", 60_000)
        for name, left in (("a", 4), ("b", 0)):
            await clear_backlog(topic.subscriptions[name])
            await settle()
            assert len(topic.delays()) == left
        await settle(70)
        assert a.texts() == b.texts() == []

    with_topic(scenario)
