"""What the broker does with a subscription whose acknowledgments are not in memory."""

from __future__ import annotations

import pytest

from geminga.broker.subscription import seek
from geminga.broker.subscription.stats import backlog_bytes, unacknowledged_bytes
from geminga.managed_ledger.rules import cursor_format
from support.worlds.subscriptions import Sub, settle, with_topic


@pytest.fixture(autouse=True)
def _few_inline_ranges(monkeypatch):
    monkeypatch.setattr(cursor_format, "INLINE_RANGES_MAX", 1)


async def alternating(topic):
    """Thirty messages in six ledgers, every second acknowledged, nothing of that in memory."""
    await topic.join(topic.connect(), Sub.Shared, permits=1)
    subscription = topic.subscriptions["sub"]
    positions = await topic.publish(*(str(i) for i in range(30)))
    subscription.cursor.acknowledge(positions[1::2])
    await settle(0.1)
    assert len(subscription.cursor.state.acked.away_ids) >= 5
    return subscription, positions


def run(scenario) -> None:
    with_topic(scenario, entries_per_ledger=5, mark_delete_rate=1000, cursor_memory_bytes=0)


def test_expiry_counts_what_was_not_acknowledged():
    async def scenario(topic):
        subscription, positions = await alternating(topic)
        assert seek.expire_up_to(subscription, positions[17])
        await settle(0.1)
        assert subscription.entries_expired == 9
        assert subscription.cursor.mark_delete_position == positions[17]
        assert subscription.cursor.backlog_count == 6

    run(scenario)


def test_peek_passes_over_what_is_acknowledged():
    async def scenario(topic):
        subscription, positions = await alternating(topic)
        entry, count = await seek.peek(subscription, 8)
        assert (entry.position, count) == (positions[14], 8)

    run(scenario)


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_the_backlog_in_bytes_is_without_what_is_acknowledged_one_by_one(memory_bytes):
    async def scenario(topic):
        await topic.join(topic.connect(), Sub.Shared, permits=1)
        subscription = topic.subscriptions["sub"]
        positions = await topic.publish(*(["same"] * 20))
        whole = backlog_bytes(subscription)
        assert whole == unacknowledged_bytes(subscription) == subscription.topic.ledger.ledgers.size_bytes
        subscription.cursor.acknowledge(positions[1::2])
        await settle(0.1)
        assert bool(subscription.cursor.state.acked.away_ids) is not bool(memory_bytes)
        assert backlog_bytes(subscription) == whole, "it is kept"
        assert unacknowledged_bytes(subscription) == whole // 2
        subscription.cursor.acknowledge(positions[0:6:2])
        await settle(0.1)
        assert subscription.cursor.mark_delete_position == positions[5]
        assert unacknowledged_bytes(subscription) == whole * 7 // 20

    with_topic(scenario, entries_per_ledger=5, mark_delete_rate=1000, cursor_memory_bytes=memory_bytes)
