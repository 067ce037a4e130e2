"""Limits of unacknowledged messages on real subscriptions: they stop dispatch, let it go on, may change meanwhile."""

from __future__ import annotations

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.broker.subscription import seek
from geminga.broker.subscription.limits import UnackedLimits
from support.worlds.subscriptions import Sub, acknowledge, settle, with_topic

TEXTS = [f"m{i}" for i in range(12)]
both_types = pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])


def limit(topic, per_consumer: int, per_subscription: int) -> None:
    """As the topic does when its policies change."""
    topic.unacked_limits = UnackedLimits(per_consumer, per_subscription)
    for subscription in topic.subscriptions.values():
        subscription.apply_unacked_limits()


@both_types
def test_subscription_stands_still_at_its_limit_until_half_is_acknowledged(sub_type):
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, sub_type, name="a")
        await topic.join(second, sub_type, name="b")
        positions = [p for text in TEXTS for p in await topic.publish(text, key=text)]
        dispatch = topic.subscriptions["sub"].dispatch
        assert dispatch.core.unacked_count == 6
        assert dispatch.core.is_blocked
        acknowledge(first, positions[:2])
        await settle()
        assert len(first.messages + second.messages) == 6
        acknowledge(second, positions[2:3])
        await settle()
        assert len(first.messages + second.messages) == 9

    with_topic(scenario, max_unacked_messages_per_subscription=6)


@both_types
def test_consumer_that_leaves_makes_room_for_the_others(sub_type):
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, sub_type, name="a", permits=5)
        await topic.publish(*TEXTS, key="k")
        assert first.texts() == TEXTS[:5]
        await topic.join(second, sub_type, name="b")
        assert second.texts() == []
        first.drop()
        await settle()
        assert second.texts() == TEXTS[:5]
        assert topic.subscriptions["sub"].dispatch.core.is_blocked

    with_topic(scenario, max_unacked_messages_per_subscription=5)


def test_what_is_given_back_comes_again_within_the_limit():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection)
        await topic.publish(*TEXTS)
        assert connection.texts() == TEXTS[:4]
        topic.subscriptions["sub"].dispatch.redeliver(consumer, None, -1)
        await settle()
        assert connection.texts() == TEXTS[:4] * 2
        assert consumer.unacked_count == 4

    with_topic(scenario, max_unacked_messages_per_consumer=4)


def test_batch_may_pass_the_limit_and_its_parts_count_when_acknowledged():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection)
        positions = await topic.publish("b0", "b1", "b2", batch=4)
        assert connection.texts() == ["b0", "b1"]
        assert consumer.unacked_count == 8
        acknowledge(connection, positions[:1], ack_set=[0b1100])
        acknowledge(connection, positions[1:2], ack_set=[0b1110])
        await settle()
        assert (consumer.unacked_count, consumer.was_blocked) == (5, True)
        acknowledge(connection, positions[:1], ack_set=[0b0011])
        await settle()
        assert connection.texts() == ["b0", "b1", "b2"]
        assert consumer.unacked_count == 7

    with_topic(scenario, max_unacked_messages_per_consumer=6)


def test_skipping_what_is_held_sets_free():
    async def scenario(topic):
        connection = await topic.joined()
        await topic.publish(*TEXTS)
        assert connection.texts() == TEXTS[:4]
        await seek.skip(topic.subscriptions["sub"], 3)
        await settle()
        assert connection.texts() == TEXTS[:7]

    with_topic(scenario, max_unacked_messages_per_subscription=4)


@both_types
@pytest.mark.parametrize("index", [0, 1])
def test_changed_limit_holds_at_once(sub_type, index):
    """Raised: who stands still goes on. Lowered: no more comes until half of it is left. 0: no limit."""

    def both(value: int) -> tuple[int, int]:
        return (value, 0) if index == 0 else (0, value)

    async def scenario(topic):
        connection = await topic.joined(sub_type)
        limit(topic, *both(4))
        positions = await topic.publish(*TEXTS, key="k")
        assert connection.texts() == TEXTS[:4]
        limit(topic, *both(6))
        await settle()
        assert connection.texts() == TEXTS[:6]
        limit(topic, *both(2))
        acknowledge(connection, positions[:4])
        await settle()
        assert connection.texts() == TEXTS[:6]
        acknowledge(connection, positions[4:5])
        await settle()
        assert connection.texts() == TEXTS[:7]
        limit(topic, *both(0))
        await settle()
        assert connection.texts() == TEXTS

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover])
def test_types_that_acknowledge_in_order_have_no_limit(sub_type):
    async def scenario(topic):
        connection = await topic.joined(sub_type)
        await topic.publish(*TEXTS)
        limit(topic, 2, 2)
        await settle()
        assert connection.texts() == TEXTS

    with_topic(scenario, max_unacked_messages_per_consumer=1, max_unacked_messages_per_subscription=1)


def test_replay_comes_before_what_is_new_and_in_the_order_of_the_log():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, permits=6)
        positions = await topic.publish(*TEXTS)
        dispatch = topic.subscriptions["sub"].dispatch
        dispatch.redeliver(consumer, [positions[4]], -1)
        dispatch.redeliver(consumer, [positions[1], positions[5]], -1)
        dispatch.redeliver(consumer, [positions[0]], -1)
        handlers.handle_flow(connection, 1, 100)
        await settle()
        assert connection.texts() == [*TEXTS[:6], "m0", "m1", "m4", "m5", *TEXTS[6:]]

    with_topic(scenario)


def test_replay_of_each_key_is_in_order_on_key_shared():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, Sub.Key_Shared, permits=6)
        positions = [p for text in TEXTS for p in await topic.publish(text, key=f"k{int(text[1:]) % 2}")]
        dispatch = topic.subscriptions["sub"].dispatch
        for index in (5, 2, 4, 1, 0, 3):
            dispatch.redeliver(consumer, [positions[index]], -1)
        handlers.handle_flow(connection, 1, 100)
        await settle()
        again = connection.texts()[6:]
        assert again[:6] == TEXTS[:6]
        for key in range(2):
            assert [t for t in again if int(t[1:]) % 2 == key] == TEXTS[key::2]

    with_topic(scenario)


def test_limit_of_the_broker_holds_the_greedy_subscription_and_lets_the_small_one_go_on():
    async def scenario(topic):
        greedy, small = topic.connect(), topic.connect()
        await topic.join(greedy, subscription="greedy")
        await topic.join(small, subscription="small", permits=1)
        positions = await topic.publish(*TEXTS)
        assert greedy.texts() == TEXTS[:10]
        handlers.handle_flow(small, 1, 1)
        await settle()
        assert small.texts() == TEXTS[:2]
        acknowledge(greedy, positions[:7])
        await settle()
        assert greedy.texts() == TEXTS[:10]  # five are half of the limit, not less
        acknowledge(greedy, positions[7:8])
        await settle()
        assert greedy.texts() == TEXTS
        assert topic.services.unacked_budget.total == 6

    with_topic(
        scenario,
        max_unacked_messages_per_broker=10,
        max_unacked_messages_per_subscription_on_broker_blocked=0.3,
    )


def test_held_subscription_goes_on_when_another_one_makes_room():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, subscription="first", permits=6)
        await topic.join(second, subscription="second", permits=6)
        await topic.publish(*TEXTS)
        assert topic.services.unacked_budget.is_short
        handlers.handle_flow(first, 1, 100)
        await settle()
        assert first.texts() == TEXTS[:6]
        second.drop()
        await settle()
        assert first.texts() == TEXTS[:6]  # six are half of the limit, not less
        topic.subscriptions["first"].dispatch.redeliver(first.consumers[1], None, -1)
        await settle()
        assert first.texts() == [*TEXTS[:6], *TEXTS]

    with_topic(
        scenario,
        max_unacked_messages_per_broker=12,
        max_unacked_messages_per_subscription_on_broker_blocked=0.1,
    )


def test_small_again_a_held_subscription_goes_on_while_the_broker_is_still_short():
    async def scenario(topic):
        greedy, stuck = topic.connect(), topic.connect()
        await topic.join(stuck, subscription="stuck", permits=10)
        await topic.join(greedy, subscription="greedy", permits=4)
        positions = await topic.publish(*TEXTS)
        handlers.handle_flow(greedy, 1, 100)
        await settle()
        assert greedy.texts() == TEXTS[:4]
        acknowledge(greedy, positions[:2])
        await settle()
        assert greedy.texts() == TEXTS[:4]
        acknowledge(greedy, positions[2:3])
        await settle()
        assert topic.services.unacked_budget.is_short
        assert greedy.texts() == TEXTS[:7]  # one of before and three more: the first that is over the share is the last

    with_topic(
        scenario,
        max_unacked_messages_per_broker=12,
        max_unacked_messages_per_subscription_on_broker_blocked=0.3,
    )
