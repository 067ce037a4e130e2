"""Snapshots of transactions that are lost, or out of reach: the log is read instead, or waited for."""

from __future__ import annotations

import pytest

from geminga.broker.topic.buffer_snapshot import find_snapshot, remove_snapshot
from geminga.broker.topic.ports import TRANSACTIONS_PROPERTY
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.metadata import cas
from geminga.model.errors import DiskIOError, StorageError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.clusters.transacting import Transacting
from support.worlds.hole_world import BOOKIE_LEDGERS, Ground, HoleBroker, run_lives

OTHER = "persistent://public/default/other"
NEW = "persistent://public/default/new"
SNAPSHOTS = ledger_path("public/default/persistent/__transaction_buffer_snapshot")


async def commit_one(world: HoleBroker, topic: str) -> None:
    client = await world.client()
    transacting = Transacting(client)
    await transacting.connect()
    await client.create_producer(topic)
    txn_id = await transacting.begin()
    await transacting.add_partition(txn_id, topic)
    await transacting.publish(b"t", txn_id)
    await transacting.finish(txn_id, commit=True)


def test_lost_snapshots_cost_a_reading_of_the_log_and_no_topic() -> None:
    async def first(world: HoleBroker) -> None:
        await commit_one(world, OTHER)
        await cas.update(world.metadata, SNAPSHOTS, lambda _: b"\xff damaged")

    async def second(world: HoleBroker) -> None:
        topic = await world.topic()
        snapshots = topic.services.snapshots
        found = await find_snapshot(snapshots, topic)
        assert (found.position, found.aborts) == (EARLIEST, ())
        # Nothing else says that its log is to be read once snapshots are there again.
        assert TRANSACTIONS_PROPERTY not in topic.ledger.stored.properties
        await commit_one(world, str(topic.name))
        assert topic.ledger.stored.properties[TRANSACTIONS_PROPERTY] == "true"
        await remove_snapshot(snapshots, topic)

    run_lives(first, second, ledger_config=BOOKIE_LEDGERS, transaction_coordinator_enabled=True)


def test_snapshots_out_of_reach_are_waited_for() -> None:
    ground = Ground()

    async def first(world: HoleBroker) -> None:
        await commit_one(world, OTHER)
        await world.topic()

    async def second(world: HoleBroker) -> None:
        ground.bookies["bookie-1"].read_error = DiskIOError("Input/output error")
        with pytest.raises(StorageError):
            await world.topic()
        # One that is made now had none: it needs no snapshot.
        await world.broker.registry.get(TopicName.parse(NEW), create=True)
        ground.bookies["bookie-1"].read_error = None
        topic = await world.topic()
        assert await find_snapshot(topic.services.snapshots, topic) is None
        assert TopicName.parse(OTHER) not in world.broker.topics

    run_lives(first, second, ground=ground, ledger_config=BOOKIE_LEDGERS, transaction_coordinator_enabled=True)
