"""What the settings of subscriptions become for those who obey them."""

from __future__ import annotations

from geminga.broker.subscription.config import SubscriptionConfig


def test_dispatchers_get_the_limits_that_are_set() -> None:
    config = SubscriptionConfig(
        dispatcher_max_read_batch_size=1,
        dispatcher_max_round_robin_batch_size=2,
        key_shared_look_ahead_per_consumer=3,
        key_shared_look_ahead_per_subscription=4,
    )
    limits = config.dispatch_limits(5)
    assert (limits.read_entries_max, limits.round_robin_messages) == (1, 2)
    assert (limits.look_ahead_per_consumer, limits.look_ahead_per_subscription) == (3, 4)
    assert limits.unacked_max == 5


def test_unacknowledged_messages_are_limited_for_consumer_and_subscription_and_on_wish_for_the_broker() -> None:
    config = SubscriptionConfig(max_unacked_messages_per_consumer=1, max_unacked_messages_per_subscription=2)
    assert tuple(config.unacked_limits) == (1, 2)
    assert config.new_unacked_budget() is None
    budget = SubscriptionConfig(max_unacked_messages_per_broker=100).new_unacked_budget()
    assert budget is not None
    assert budget.share == 16
    without_share = SubscriptionConfig(
        max_unacked_messages_per_broker=100, max_unacked_messages_per_subscription_on_broker_blocked=0
    )
    assert without_share.new_unacked_budget() is None
