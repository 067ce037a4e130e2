"""Snapshots of transaction buffers: kept through restarts, written again when most are superseded, never in the way."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.system_topics import table
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.transactions.snapshot_records import (
    SNAPSHOT_SCHEMA,
    decode_snapshot,
    encode_snapshot,
    parse_schema,
)
from geminga.managed_ledger import AppendResult
from geminga.model.errors import CorruptionError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TRANSACTION_SNAPSHOTS, TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import next_turn, spawn, wait_ms
from geminga.transaction.ports import BufferSnapshot
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.clusters.transacting import producing
from support.house.turn_probe import other_turns
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

NAME = TopicName.parse(f"persistent://public/default/{TRANSACTION_SNAPSHOTS}")
ONE, TWO = "persistent://public/default/one", "persistent://public/default/two"
SNAPSHOT = BufferSnapshot(Position(3, 4), ((TxnId(1, 2), Position(3, 9)), (TxnId(0, 1 << 40), Position(5, 0))))


def test_a_snapshot_comes_back_from_its_bytes_and_damage_is_told() -> None:
    schema = parse_schema(SNAPSHOT_SCHEMA)
    data = encode_snapshot(ONE, SNAPSHOT)
    assert decode_snapshot(data, schema) == (ONE, SNAPSHOT)
    assert decode_snapshot(encode_snapshot(ONE, BufferSnapshot(EARLIEST)), schema) == (ONE, BufferSnapshot(EARLIEST))
    for cut in range(len(data)):
        with pytest.raises(CorruptionError):
            decode_snapshot(data[:cut], schema)
    with pytest.raises(CorruptionError):
        parse_schema(b"{}")


def test_snapshots_outlive_a_restart_and_the_newest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SUPERSEDED_MAX", 5)

    async def scenario(world: BrokerWorld) -> None:
        snapshots = world.broker.transactions.snapshots
        assert await snapshots.find(ONE) is None
        assert not await world.broker.registry.exists(NAME), "asking makes nothing"
        await snapshots.put(TWO, SNAPSHOT)
        for number in range(40):
            await snapshots.put(ONE, BufferSnapshot(Position(number, 0)))
        topic = await world.broker.registry.get(NAME, create=False)
        assert isinstance(topic, PersistentTopic)
        (cursor,) = topic.ledger.cursors.values()
        assert cursor.backlog_count < 15, "what is superseded goes"
        await world.restart()
        snapshots = world.broker.transactions.snapshots
        assert await snapshots.find(ONE) == BufferSnapshot(Position(39, 0))
        assert await snapshots.find(TWO) == SNAPSHOT
        await snapshots.remove(ONE)
        await snapshots.remove(ONE)
        await world.restart()
        assert await world.broker.transactions.snapshots.find(ONE) is None
        assert await world.broker.registry.list("public/default") == []

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("after", range(1, 60, 2))
def test_whoever_is_cut_off_while_the_topic_is_opened_leaves_it_for_the_next(after: int) -> None:
    """The topic was there already and its cursor was not: an error of ours for each one that came later."""

    async def scenario(world: BrokerWorld) -> None:
        snapshots = world.broker.transactions.snapshots
        assert await snapshots.find(ONE) is None
        first = spawn(snapshots.put(TWO, SNAPSHOT), name="put")
        for _ in range(after):
            await next_turn()
        first.cancel()
        await asyncio.wait([first])
        await snapshots.put(ONE, SNAPSHOT)
        assert await snapshots.find(ONE) == SNAPSHOT
        await world.restart()
        assert await world.broker.transactions.snapshots.find(ONE) == SNAPSHOT

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_one_that_can_not_be_read_means_that_its_topic_is_read_as_a_whole() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.transactions.snapshots.put(TWO, SNAPSHOT)
        topic = await world.broker.registry.get(NAME, create=False)
        assert isinstance(topic, PersistentTopic)
        results: list[AppendResult] = []
        metadata = pb.MessageMetadata(producer_name="x", sequence_id=1, publish_time=1, partition_key=ONE)
        topic.ledger.append([encode_entry(metadata, b"nonsense"), b"no entry at all"], results.append)
        await topic.ledger.roll()
        assert results[0].error is None
        await world.restart()
        snapshots = world.broker.transactions.snapshots
        assert await snapshots.find(ONE) == BufferSnapshot(EARLIEST)
        assert await snapshots.find(TWO) == SNAPSHOT

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("how", ["close", "taken"])
def test_who_closes_or_gives_up_its_topics_saves_where_they_stand(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        for commit in (True, False):
            txn_id = await writer.begin()
            await writer.add_partition(txn_id)
            await writer.publish(b"x", txn_id)
            await writer.end(txn_id, commit=commit)
        end = (
            await world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        ).ledger.extent.last_confirmed_position
        if how == "close":
            await world.broker.close()
        else:
            await world.broker.registry.taken(lambda _name: True)
        await world.restart()
        saved = await world.broker.transactions.snapshots.find(TOPIC)
        assert saved == BufferSnapshot(end, ((txn_id, end),))

    run_with_broker(scenario, transaction_coordinator_enabled=True)
    assert "were not saved" not in caplog.text


def many(count: int) -> BufferSnapshot:
    return BufferSnapshot(
        Position(7, 7), tuple((TxnId(each % 15 + 1, each), Position(5, each)) for each in range(count))
    )


def test_a_snapshot_of_very_many_is_written_and_read_in_turns_and_soon_superseded_ones_are_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "SUPERSEDED_BYTES_MAX", 1 << 20)

    async def scenario(world: BrokerWorld) -> None:
        snapshots = world.broker.transactions.snapshots
        with other_turns() as turns:
            await snapshots.put(ONE, many(50_000))
        assert turns.count > 40
        with other_turns() as turns:
            assert await snapshots.find(ONE) == many(50_000)
        assert turns.count > 40
        for number in range(20):
            await snapshots.put(ONE, many(10_000 + number))
        (cursor,) = (await world.broker.registry.get(NAME, create=False)).ledger.cursors.values()
        assert cursor.backlog_count < 20, "by their bytes, long before there are very many of them"
        await world.restart()
        assert await world.broker.transactions.snapshots.find(ONE) == many(10_019)

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.long
def test_a_million_aborted_transactions_outlive_a_restart_though_no_message_may_be_so_large() -> None:
    async def scenario(world: BrokerWorld) -> None:
        snapshots = world.broker.transactions.snapshots
        await snapshots.put(TWO, SNAPSHOT)
        await snapshots.put(ONE, many(1_000_000))
        await world.restart()
        assert await world.broker.transactions.snapshots.find(ONE) == many(1_000_000)
        assert await world.broker.transactions.snapshots.find(TWO) == SNAPSHOT
        stored = (await world.broker.registry.get(NAME, create=False)).ledger.ledgers.size_bytes
        assert stored > 5 << 20

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_snapshots_of_a_topic_with_very_many_aborted_transactions_are_rare() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)

        async def abort() -> None:
            txn_id = await client.begin()
            await client.add_partition(txn_id)
            await client.publish(b"x", txn_id)
            await client.end(txn_id, commit=False)

        await abort()
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        for txn_id, marker in many(300_000).aborts:
            topic.transaction_buffer.state.restored(txn_id, marker)
        for _ in range(25):
            await abort()
            await wait_ms(1_000)
        stored = (
            await world.broker.registry.get(NAME, create=False)
        ).ledger.extent.last_confirmed_position.entry_id + 1
        assert stored <= 2, "one when it began, and by then one of what changed; each is of 3 MB"

    run_with_broker(scenario, transaction_coordinator_enabled=True)
