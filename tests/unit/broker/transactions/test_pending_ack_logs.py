"""Pending-ack logs: under Pulsar's names, hidden from lists, gone with their subscription."""

from __future__ import annotations

from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.transactions.pending_ack_logs import log_name
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import producing
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.policy_levels import set_namespace

NAME = TopicName.parse(TOPIC)


def test_names_are_pulsars() -> None:
    assert log_name(NAME, "sub") == "public/default/persistent/topic-sub__transaction_pending_ack"
    assert log_name(NAME, "a/b") == "public/default/persistent/topic-a%2Fb__transaction_pending_ack"


def test_a_log_comes_with_the_first_acknowledgment_and_goes_with_its_subscription() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.client.subscribe()
        logs = world.broker.transactions.pending_ack_logs
        await client.publish(b"a")
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        assert not await logs.exists(NAME, "sub")
        topic = await world.broker.registry.get(NAME, create=False)
        first = topic.ledger.ledgers.first_position
        message_id = pb.MessageIdData(ledgerId=first.ledger_id, entryId=first.entry_id)
        assert not (await client.acknowledge([message_id], txn_id)).HasField("error")
        assert await logs.exists(NAME, "sub")
        assert await world.broker.registry.list("public/default") == [TOPIC]
        await topic.delete_subscription("sub", force=True)
        assert not await logs.exists(NAME, "sub")
        assert not (await client.end(txn_id, commit=True)).HasField("error"), "nobody is left who could hear"

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_a_deleted_topic_leaves_no_log() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.client.subscribe()
        await client.publish(b"a")
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        await client.add_partition(txn_id)
        await client.publish(b"b", txn_id)
        topic = await world.broker.registry.get(NAME, create=False)
        first = topic.ledger.ledgers.first_position
        await client.acknowledge([pb.MessageIdData(ledgerId=first.ledger_id, entryId=first.entry_id)], txn_id)
        await world.broker.registry.delete(NAME, force=True)
        assert not await world.broker.transactions.pending_ack_logs.exists(NAME, "sub")
        assert await world.broker.transactions.snapshots.find(TOPIC) is None
        await client.finish(txn_id, commit=True)

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_a_log_has_as_many_copies_as_its_topic_and_follows_when_that_changes() -> None:
    wide = {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "bookkeeperAckQuorum": 2,
        "managedLedgerMaxMarkDeleteRate": 0.5,
    }

    async def scenario(world: BrokerWorld) -> None:
        log = log_name(NAME, "sub")

        async def copies() -> int:
            ledger = world.ledgers.get(log)
            assert ledger is not None
            last = await world.ledgers.bookkeeper.read_ledger(ledger.ledgers.last.ledger_id)
            return last.metadata.write_quorum

        client = await producing(world)
        await client.client.subscribe()
        await set_namespace(world, "persistence", wide)
        topic = await world.broker.registry.get(NAME, create=False)
        assert isinstance(topic, PersistentTopic)
        for expected in (3, 1):
            await client.publish(b"a")
            txn_id = await client.begin()
            await client.add_subscription(txn_id)
            last = topic.ledger.extent.last_confirmed_position
            message_id = pb.MessageIdData(ledgerId=last.ledger_id, entryId=last.entry_id)
            assert not (await client.acknowledge([message_id], txn_id)).HasField("error")
            assert await copies() == expected
            await set_namespace(world, "persistence", None)
            ledger = world.ledgers.get(log)
            assert ledger is not None
            await ledger.roll()

    run_with_broker(scenario, bookies=3, transaction_coordinator_enabled=True)
