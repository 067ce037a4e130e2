"""What the broker does with a subscription whose acknowledgments are not in memory."""

from __future__ import annotations

import pytest

from geminga.broker.subscription import seek
from geminga.broker.subscription.stats import backlog_bytes, unacknowledged_bytes
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.rules import cursor_format
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.subscriptions import Sub, settle, with_topic

NOTHING_IN_MEMORY = ManagedLedgerConfig(
    max_entries_per_ledger=4, min_rollover_minutes=0, cursor_memory_mb=0, mark_delete_rate_limit=1000
)


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


async def half_acknowledged(world: BrokerWorld) -> tuple[Transacting, TxnId, list[pb.MessageIdData]]:
    """Of sixteen messages in ledgers of four every second one is acknowledged, and two more in a transaction."""
    client = await transacting(world)
    await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
    await client.client.create_producer()
    for number in range(16):
        await client.publish(b"%d" % number)
    await wait_ms(50)
    ids = [message_id for message_id, _ in client.messages()]
    assert not (await client.acknowledge(ids[1::2])).HasField("error")
    txn_id = await client.begin()
    await client.add_subscription(txn_id)
    assert not (await client.acknowledge([ids[4], ids[8]], txn_id)).HasField("error")
    await wait_ms(2000)
    return client, txn_id, ids


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_while_the_acknowledgments_around_its_own_are_on_disk_only(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, txn_id, ids = await half_acknowledged(world)
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        cursor = topic.subscriptions["sub"].cursor
        assert len(cursor.state.acked.away_ids) >= 3
        await client.finish(txn_id, commit=commit)
        await wait_ms(2000)
        assert await world.broker.registry.get(TopicName.parse(TOPIC), create=False) is topic, "it did not break"
        assert cursor.backlog_count == (6 if commit else 8)
        again = [(each.ledgerId, each.entryId) for each, _ in client.messages()]
        assert again == ([] if commit else [(ids[i].ledgerId, ids[i].entryId) for i in (4, 8)])

    run_with_broker(scenario, ledger_config=NOTHING_IN_MEMORY, transaction_coordinator_enabled=True)
