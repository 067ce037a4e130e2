"""Pending-ack logs: under Pulsar's names, hidden from lists, gone with their subscription."""

from __future__ import annotations

import pytest

from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.ports import GOING_LOGS_PROPERTY
from geminga.broker.transactions.pending_ack_logs import LedgerPendingAckLogs, delete_left, log_name
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.model.errors import DiskIOError, LedgerClosedError, LedgerFencedError, NoSuchLedgerError
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


@pytest.mark.parametrize("noted", ["", "[", "[" * 100_000, "7", '{"a": 1}', '[1, null, ["u"]]'])
def test_a_note_of_deletions_that_is_none_holds_no_topic_up(noted: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(NAME, create=True)
        await topic.ledger.stored.add_properties({GOING_LOGS_PROPERTY: noted})
        await world.broker.registry.unload(NAME)
        assert (await world.broker.registry.get(NAME, create=False)).subscriptions == {}

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize(
    ("error", "left"),
    [(None, {}), (DiskIOError("away"), {GOING_LOGS_PROPERTY: '["gone"]'}), (NoSuchLedgerError(7), {})],
)
def test_a_log_that_can_not_be_deleted_now_stays_noted_and_one_that_is_lost_does_not(error, left) -> None:
    """The topic is served meanwhile; a subscription of a noted name that is there keeps its log."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(NAME, create=True)
        asked: list[str] = []

        class Ledgers:
            async def delete(self, name: str) -> None:
                asked.append(name)
                if error is not None:
                    raise error

        logs = LedgerPendingAckLogs(Ledgers())
        for name in ("gone", "there"):
            await logs.note_deletion(name, topic.ledger)
        assert topic.ledger.stored.properties == {GOING_LOGS_PROPERTY: '["gone","there"]'}
        await delete_left(logs, NAME, {"there"}, topic.ledger)
        assert asked == [log_name(NAME, "gone")]
        assert topic.ledger.stored.properties == left

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("error", [LedgerFencedError("another's"), LedgerClosedError("closed")])
def test_a_topic_that_is_anothers_is_not_served(error) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(NAME, create=True)

        class Ledgers:
            async def delete(self, name: str) -> None:
                raise error

        logs = LedgerPendingAckLogs(Ledgers())
        await logs.note_deletion("gone", topic.ledger)
        with pytest.raises(type(error)):
            await delete_left(logs, NAME, set(), topic.ledger)

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_a_broker_that_lost_the_topic_deletes_no_log() -> None:
    """A subscription of that name, and its log, may be its next owner's by now."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(NAME, create=True)
        logs = world.broker.transactions.pending_ack_logs
        await logs.note_deletion("gone", topic.ledger)
        await (await logs.open(NAME, "gone", topic, topic.ledger)).close()
        others = ManagedLedgerFactory(world.runtime, world.metadata, world.ledgers.bookkeeper, world.ledger_config)
        taken = await others.open(NAME.managed_ledger_name)
        await taken.stored.set_properties({"owner": "another"})
        with pytest.raises(LedgerFencedError):
            await delete_left(logs, NAME, set(), topic.ledger)
        assert await logs.exists(NAME, "gone")
        await others.close()

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
