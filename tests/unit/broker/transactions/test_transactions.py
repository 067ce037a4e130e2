"""Transactions through a broker: what readers see, what counts, and what is left after an unload or a kill."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.topic import transaction_buffer
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, both_ends, producing, publishing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker

NAME = TopicName.parse(TOPIC)
OTHER = "persistent://public/default/other"


def run(scenario: Callable[[BrokerWorld], Awaitable[None]], **settings) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True, **settings)


@pytest.mark.parametrize("sub_type", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
def test_readers_see_committed_messages_and_nothing_else(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await transacting(world), await transacting(world)
        await reader.client.subscribe(subType=sub_type)
        await writer.client.create_producer()
        await writer.client.create_producer(OTHER, 2)
        await reader.client.subscribe(OTHER, 2, subType=sub_type)
        await writer.publish(b"before")
        assert await reader.read() == [b"before"]
        assert not (await writer.connect()).HasField("error")
        one, two = await writer.begin(), await writer.begin()
        for txn_id in (one, two):
            assert not (await writer.add_partition(txn_id)).HasField("error")
        await writer.publish(b"1a", one)
        await writer.publish(b"plain")
        await writer.publish(b"2a", two)
        await writer.publish(b"1b", one)
        assert await reader.read() == []
        await writer.publish(b"elsewhere", producer_id=2)
        assert await reader.read() == [b"elsewhere"], "another topic is held back by nothing"
        await writer.finish(one, commit=True)
        assert await reader.read() == [b"1a", b"plain"]
        await writer.finish(two, commit=False)
        assert await reader.read() == [b"1b"]
        await writer.publish(b"after")
        assert await reader.read() == [b"after"]
        # Again is the same, the other way round is refused.
        await writer.finish(one, commit=True)
        assert (await writer.end(two, commit=True)).error == pb.InvalidTxnStatus
        answer = await writer.send(b"late", one)
        assert answer.send_error.error == pb.NotAllowedError
        assert "has been ended" in answer.send_error.message
        topic = await world.broker.registry.get(NAME, create=False)
        assert topic.ledger.extent.readable_position == topic.ledger.extent.last_confirmed_position

    run(scenario)


def test_an_unload_and_a_restart_in_the_middle_change_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        aborted, committed, open_one = [await writer.begin() for _ in range(3)]
        for txn_id in (aborted, committed, open_one):
            await writer.add_partition(txn_id)
        await writer.publish(b"no", aborted)
        await writer.publish(b"yes", committed)
        await writer.end(aborted, commit=False)
        await writer.publish(b"perhaps", open_one)
        await writer.end(committed, commit=True)
        await writer.publish(b"plain")
        for again in (world.broker.registry.unload(NAME), world.restart()):
            await again
            reader = await transacting(world)
            await reader.client.subscribe(subscription=f"sub-{id(again)}")
            assert await reader.read() == [b"yes"]
            reader.client.lose()
        writer = await transacting(world)
        await writer.finish(open_one, commit=True)
        reader = await transacting(world)
        await reader.client.subscribe(subscription="last")
        assert await reader.read() == [b"yes", b"perhaps", b"plain"]
        # A new transaction after the restart, with a number that was never given.
        assert (await writer.begin()).number > open_one.number

    run(scenario)


def test_a_time_out_frees_the_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await both_ends(world)
        txn_id = await writer.begin(timeout_ms=2_000)
        await writer.add_partition(txn_id)
        await writer.publish(b"held", txn_id)
        await writer.publish(b"plain")
        assert await reader.read() == []
        await wait_ms(2_000)
        assert await reader.read() == [b"plain"]
        assert (await writer.end(txn_id, commit=True)).error == pb.InvalidTxnStatus

    run(scenario)


@pytest.mark.parametrize("sub_type", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_acknowledgments_count_with_the_commit_and_come_again_with_the_abort(sub_type: int, is_restarted: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await transacting(world), await transacting(world)
        await reader.client.subscribe(subType=sub_type)
        await writer.client.create_producer()
        for payload in (b"a", b"b", b"c"):
            await writer.publish(payload)
        assert await reader.read() == [b"a", b"b", b"c"]
        one, two = await writer.begin(), await writer.begin()
        for txn_id in (one, two):
            assert not (await writer.add_subscription(txn_id)).HasField("error")
        topic = await world.broker.registry.get(NAME, create=False)
        ids = [
            pb.MessageIdData(ledgerId=topic.ledger.ledgers.first_position.ledger_id, entryId=entry)
            for entry in range(3)
        ]
        assert not (await reader.acknowledge([ids[0]], one)).HasField("error")
        assert not (await reader.acknowledge([ids[1]], two)).HasField("error")
        conflict = await reader.acknowledge([ids[1]], one)
        assert conflict.error == pb.TransactionConflict
        if is_restarted:
            await world.restart()
            writer, reader = await transacting(world), await transacting(world)
            await reader.client.subscribe(subType=sub_type)
            assert await reader.read() == [b"c"], "what is held is nobody's"
        await writer.finish(one, commit=True)
        await writer.finish(two, commit=False)
        came = await reader.read()
        assert came in ([b"b"], [b"b", b"c"]), came
        await world.broker.registry.unload(NAME)
        reader = await transacting(world)
        await reader.client.subscribe(subType=sub_type)
        assert await reader.read() == [b"b", b"c"]
        assert (await reader.acknowledge([ids[0]], await begun(writer))).error == pb.TransactionConflict

    run(scenario)


async def begun(writer: Transacting) -> TxnId:
    txn_id = await writer.begin()
    await writer.add_subscription(txn_id)
    return txn_id


def test_without_transactions_a_message_of_one_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        assert (await client.send(b"x", TxnId(0, 0))).type == Type.SEND_ERROR

    run_with_broker(scenario)


def test_a_coordinator_that_is_not_there_is_named() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        answer = await client.connect(7)
        assert answer.error == pb.TransactionCoordinatorNotFound
        assert "7" in answer.message
        assert (await client.end(TxnId(1, 55), commit=True)).error == pb.TransactionNotFound

    run(scenario)


def test_a_snapshot_is_taken_some_time_after_a_change_and_forgets_what_is_trimmed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, txn_id = await publishing(world, b"no")
        await writer.end(txn_id, commit=False)
        snapshots = world.broker.transactions.snapshots
        first = await snapshots.find(TOPIC)
        assert first is not None
        assert not first.aborts
        await wait_ms(1_100)
        saved = await snapshots.find(TOPIC)
        assert saved is not None
        assert [each for each, _ in saved.aborts] == [txn_id]
        topic = await world.broker.registry.get(NAME, create=False)
        await topic.ledger.trimmer.truncate()
        await writer.publish(b"another ledger")
        again = await writer.begin()
        await writer.add_partition(again)
        await writer.publish(b"no", again)
        await writer.end(again, commit=False)
        await wait_ms(1_100)
        saved = await snapshots.find(TOPIC)
        assert saved is not None
        assert [each for each, _ in saved.aborts] == [again]
        assert list(topic.transaction_buffer.state.aborted) == [again]

    run(scenario, transaction_buffer_snapshot_min_ms=1_000)


@pytest.mark.parametrize("first_commits", [True, False])
def test_what_is_open_on_a_topic_that_is_terminated_ends_all_the_same(first_commits: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await both_ends(world)
        one, two = await writer.begin(), await writer.begin()
        for txn_id in (one, two):
            await writer.add_partition(txn_id)
        for payload, txn_id in ((b"1a", one), (b"2a", two), (b"1b", one), (b"2b", two)):
            await writer.publish(payload, txn_id)
        await writer.publish(b"plain")
        await world.broker.registry.terminate(NAME)
        topic = await world.broker.registry.get(NAME, create=False)
        writer.ask_end(two, commit=not first_commits)
        assert await reader.read() == []
        writer.ask_end(one, commit=first_commits)
        seen = [b"1a", b"1b", b"plain"] if first_commits else [b"2a", b"2b", b"plain"]
        assert await reader.read() == seen
        await wait_ms(20_000)
        answers = [
            command.endTxnResponse for command, _ in writer.client.received if command.type == Type.END_TXN_RESPONSE
        ]
        assert {(each.txnid_least_bits, each.HasField("error")) for each in answers} == {(0, False), (1, False)}
        assert await world.broker.registry.get(NAME, create=False) is topic, "nobody was sent away"
        await world.broker.registry.unload(NAME)
        again = await transacting(world)
        await again.client.subscribe(subscription="other")
        assert await again.read() == seen, "a restart knows it too"

    run(scenario)


def test_entries_are_looked_at_for_hidden_ones_only_where_there_are_any() -> None:
    """A topic that once had a transaction costs its readers nothing for it, unless one was aborted."""

    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        topic = await world.broker.registry.get(NAME, create=False)
        for commit, is_hiding in ((True, False), (False, True)):
            txn_id = await writer.begin()
            await writer.add_partition(txn_id)
            await writer.publish(b"yes" if commit else b"no", txn_id)
            assert topic.hides == ()
            await writer.finish(txn_id, commit=commit)
            assert bool(topic.hides) is is_hiding
        await world.broker.registry.unload(NAME)
        topic = await world.broker.registry.get(NAME, create=False)
        assert len(topic.hides) == 1
        reader = await transacting(world)
        await reader.client.subscribe()
        assert await reader.read() == [b"yes"]

    run(scenario)


def test_entries_are_looked_at_no_more_once_the_aborted_ones_are_trimmed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        topic = await world.broker.registry.get(NAME, create=False)
        txn_id = await writer.begin()
        await writer.add_partition(txn_id)
        await writer.publish(b"no", txn_id)
        await writer.finish(txn_id, commit=False)
        buffer = topic.parts.find(transaction_buffer.TransactionBuffer)
        assert buffer is not None
        assert buffer._take_snapshot() is not None
        assert len(topic.hides) == 1
        await topic.ledger.roll()
        await writer.publish(b"yes")
        topic.ledger.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await topic.ledger.trimmer.trim()
        snapshot = buffer._take_snapshot()
        assert snapshot is not None
        assert (snapshot.aborts, topic.hides) == ((), ())

    run(scenario)


def test_a_log_of_several_reads_is_read_to_its_end_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_buffer, "RECOVERY_ENTRIES", 2)

    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        await writer.connect()
        for number in range(4):
            txn_id = await writer.begin()
            await writer.add_partition(txn_id)
            await writer.publish(b"%d" % number, txn_id)
            await writer.finish(txn_id, commit=number % 2 == 0)
        old, world.broker = world.broker, world._new_broker()
        await world.start()
        reader = await transacting(world)
        await reader.client.subscribe()
        assert await reader.read() == [b"0", b"2"]
        old.is_closing = True

    run(scenario)
