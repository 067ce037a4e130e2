"""Topics that take no transactions, named as participants: nobody is left there who could hear of an end."""

from __future__ import annotations

import pytest

from geminga.broker.registry import new_shadows
from geminga.model.topic_name import SHADOW_SOURCE, TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from support.clusters.transacting import Transacting, producing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.other_cluster import join, replicate

BASE = "persistent://public/default/"
SHADOW, OWN, WHOLE = BASE + "shadow", BASE + "__change_events", BASE + "whole"
#: A log of the acknowledgments in transactions, and one of a coordinator.
LOGS = (f"{TOPIC}-sub__transaction_pending_ack", "persistent://pulsar/system/__transaction_log_0")


async def prepared(world: BrokerWorld) -> Transacting:
    broker = world.broker
    client = await producing(world)
    await new_shadows.create(
        broker.registry, broker.resources, broker.ledgers, TopicName.parse(SHADOW), {SHADOW_SOURCE: TOPIC}
    )
    await broker.partitions.create(TopicName.parse(WHOLE), 2)
    await broker.registry.get(TopicName.parse(OWN), create=True, is_for_client=False)
    return client


async def end(world: BrokerWorld, client: Transacting, txn_id: TxnId, *, commit: bool) -> None:
    """It is over soon, whether the client is told so or not."""
    client.ask_end(txn_id, commit=commit)
    await wait_ms(60_000)
    assert txn_id.number not in world.broker.use_transactions().coordinators.open[0].state.open


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("name", [SHADOW, OWN, WHOLE, f"{WHOLE}-partition-7", f"{BASE}nowhere", *LOGS])
def test_a_transaction_that_names_one_ends_all_the_same(name: str, commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await prepared(world)
        txn_id = await client.begin()
        for topic in (name, TOPIC):
            assert not (await client.add_partition(txn_id, topic)).HasField("error")
        await end(world, client, txn_id, commit=commit)

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("name", [SHADOW, OWN, WHOLE, f"{BASE}nowhere", *LOGS])
def test_a_transaction_that_acknowledges_at_one_ends_all_the_same(name: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await prepared(world)
        txn_id = await client.begin()
        assert not (await client.add_subscription(txn_id, name)).HasField("error")
        await end(world, client, txn_id, commit=True)

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_names_a_reader_ends_while_that_reads(commit: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await prepared(world)
        await client.client.subscribe(subscription="reader", durable=False)
        txn_id = await client.begin()
        assert not (await client.add_subscription(txn_id, subscription="reader")).HasField("error")
        await client.finish(txn_id, commit=commit)
        assert "reader" in world.topic.subscriptions

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_a_transaction_ends_in_a_namespace_that_left_the_cluster_meanwhile() -> None:
    async def scenario(world: BrokerWorld) -> None:
        join(world)
        client = await producing(world)
        await client.client.subscribe()
        await client.publish(b"before")
        await wait_ms(100)
        txn_id = await client.begin()
        await client.add_partition(txn_id)
        await client.add_subscription(txn_id)
        await client.publish(b"in it", txn_id)
        ((message_id, _),) = client.messages()
        assert not (await client.acknowledge([message_id], txn_id)).HasField("error")
        await replicate(world, "west")
        await world.broker.registry.unload(TopicName.parse(TOPIC))
        world.broker.transactions.own_snapshots.forget("public/default")  # as another broker
        await world.broker.registry.unload(TopicName.parse(f"{BASE}__transaction_buffer_snapshot"))
        other = await transacting(world)
        await end(world, other, txn_id, commit=True)
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=False, is_for_client=False)
        assert topic.ledger.extent.readable_position == topic.ledger.extent.last_confirmed_position
        assert topic.subscriptions["sub"].cursor.backlog_count == 2  # the message and the marker

    run_with_broker(scenario, transaction_coordinator_enabled=True)
