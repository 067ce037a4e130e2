"""Snapshots of the delayed index: what a restart finds without reading the backlog, and what damage costs."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import MetadataLiveLedgers
from geminga.broker.core.delayed import snapshot as delayed_snapshot
from geminga.broker.subscription.subscription import TICK_PROPERTY
from geminga.broker.topic import delayed_snapshots
from geminga.broker.topic.delayed_snapshots import ROOT, SAVE_INTERVAL_S, SnapshotNode
from geminga.broker.topic.delays import DelayedDelivery, delays_stats
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import CorruptionError, DiskFullError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.worlds.broker_world import ENDPOINTS, TOPIC, BrokerWorld, Client, run_with_broker
from support.worlds.policy_levels import set_topic
from support.worlds.subscriptions import settle

NAME = TopicName.parse(TOPIC)
PATH = f"{ROOT}/{NAME.managed_ledger_name}"
LEDGER = f"/managed-ledgers/{NAME.managed_ledger_name}"
COUNT = 2000


async def publish_delayed(world: BrokerWorld, count: int, delay_ms: int) -> None:
    client = await world.publisher()
    deliver_at = world.runtime.clock.wall_ms() + delay_ms
    for i in range(count):
        client.send_message(i, f"m{i}".encode(), metadata={"deliver_at_time": deliver_at})
    for _ in range(count):
        await client.receipt()
    client.lose()
    await settle()


async def shared(world: BrokerWorld) -> Client:
    client = await world.subscriber(subType=pb.CommandSubscribe.Shared, permits=10_000)
    await settle(0.1)
    return client


def texts(client: Client) -> list[str]:
    messages = [payload for command, payload in client.received if command.type == pb.BaseCommand.MESSAGE]
    return [payload[split_entry(payload)[1] :].decode() for payload in messages]


async def reads_of(world: BrokerWorld) -> int:
    await world.broker.registry.get(NAME, create=False)
    cache = world.ledgers.cache
    return cache.hits + cache.misses


@pytest.mark.parametrize("how", ["close", "time", "many"])
def test_restart_finds_what_waits_without_reading_it(how):
    async def scenario(world: BrokerWorld):
        await shared(world)
        await publish_delayed(world, COUNT, 600_000)
        if how == "time":
            await settle(SAVE_INTERVAL_S + 1)
        if how == "close":
            await world.restart()
        else:
            # As after a crash: the old broker writes nothing at its end.
            old, world.broker = world.broker, world._new_broker()
            topic = await old.registry.get(NAME, create=False)
            await topic.ledger.close()
            await world.broker.start(ENDPOINTS)
        before = await reads_of(world)
        client = await shared(world)
        topic = await world.broker.registry.get(NAME, create=False)
        assert len(topic.delays()) == COUNT
        assert await reads_of(world) - before < 50
        assert texts(client) == []
        await settle(601)
        assert texts(client) == [f"m{i}" for i in range(COUNT)]

    run_with_broker(
        scenario,
        keep_alive_interval_s=100_000,
        delayed_delivery_min_index_count_per_bucket=1000 if how == "many" else 50_000,
    )


def test_a_snapshot_of_several_records_is_read_to_its_end(monkeypatch):
    monkeypatch.setattr(delayed_snapshots, "READ_RECORDS", 2)
    monkeypatch.setattr(delayed_snapshot, "RECORD_BYTES_MAX", 1)  # a record for each slot

    async def scenario(world: BrokerWorld):
        await shared(world)
        for number in range(7):
            await publish_delayed(world, 300, 3_600_000 * (1 + number))
        await world.restart()
        before = await reads_of(world)
        await shared(world)
        topic = await world.broker.registry.get(NAME, create=False)
        assert len(topic.delays()) == 7 * 300
        assert await reads_of(world) - before < 50

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_that_is_written_anew_leaves_no_ledger_behind():
    async def scenario(world: BrokerWorld):
        async def ledger_of_the_snapshot() -> int:
            await shared(world)
            await publish_delayed(world, COUNT, 600_000)
            await settle(SAVE_INTERVAL_S + 1)
            return SnapshotNode.decode((await world.metadata.get(PATH)).value).ledger_id

        first = await ledger_of_the_snapshot()
        await world.restart()
        second = await ledger_of_the_snapshot()
        live = await MetadataLiveLedgers(world.metadata).live_ledger_ids()
        assert first != second
        assert live & {first, second} == {second}

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_of_the_broker_that_has_the_topic_now_is_not_written_over():
    async def scenario(world: BrokerWorld):
        await shared(world)
        theirs = SnapshotNode(999, -1).encode()
        await world.metadata.put(PATH, theirs, expected_version=MUST_NOT_EXIST)
        await publish_delayed(world, COUNT, 600_000)
        before = await MetadataLiveLedgers(world.metadata).live_ledger_ids()
        await settle(SAVE_INTERVAL_S + 1)
        assert (await world.metadata.get(PATH)).value == theirs
        assert await MetadataLiveLedgers(world.metadata).live_ledger_ids() == before

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_that_could_not_be_added_to_is_written_anew():
    async def scenario(world: BrokerWorld):
        await shared(world)
        found = []
        for is_failing in (False, True, False):
            await publish_delayed(world, COUNT, 600_000)
            world.bookie.add_error = DiskFullError("full") if is_failing else None
            await settle(SAVE_INTERVAL_S + 1)
            world.bookie.add_error = None
            found.append(SnapshotNode.decode((await world.metadata.get(PATH)).value).ledger_id)
        assert found[0] == found[1] != found[2]

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_that_failed_is_written_though_nothing_else_waits_and_no_try_leaves_a_ledger():
    async def scenario(world: BrokerWorld):
        await shared(world)
        await publish_delayed(world, COUNT, 600_000)
        before = await MetadataLiveLedgers(world.metadata).live_ledger_ids()
        world.bookie.add_error = DiskFullError("full")
        await settle(3 * SAVE_INTERVAL_S + 1)
        tried = await MetadataLiveLedgers(world.metadata).live_ledger_ids() - before
        world.bookie.add_error = None
        await settle(SAVE_INTERVAL_S + 1)
        node = SnapshotNode.decode((await world.metadata.get(PATH)).value)
        assert node.ledger_id != node.next_id == -1
        assert len(tried) == 1
        assert max(before) + 1 not in tried
        assert await MetadataLiveLedgers(world.metadata).live_ledger_ids() - before == {node.ledger_id}
        # It is tried until it is there, and not again.
        await settle(3 * SAVE_INTERVAL_S)
        assert SnapshotNode.decode((await world.metadata.get(PATH)).value) == node

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_of_a_topic_where_nothing_waits_any_more_is_removed():
    async def scenario(world: BrokerWorld):
        await shared(world)
        await publish_delayed(world, COUNT, 60_000)
        await settle(SAVE_INTERVAL_S + 1)
        assert await world.metadata.get(PATH) is not None
        await settle(40)
        await world.restart()
        await world.broker.registry.get(NAME, create=False)
        await world.restart()
        assert await world.metadata.get(PATH) is None

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_what_was_new_when_a_finer_subscription_came_is_saved_all_the_same():
    async def scenario(world: BrokerWorld):
        await shared(world)
        await publish_delayed(world, COUNT, 600_000)
        tick = pb.KeyValue(key=TICK_PROPERTY, value="10")
        client = await world.client()
        await client.subscribe(
            subscription="finer", subType=pb.CommandSubscribe.Shared, permits=10_000, subscription_properties=[tick]
        )
        await settle(SAVE_INTERVAL_S + 1)
        await world.restart()
        before = await reads_of(world)
        await shared(world)
        topic = await world.broker.registry.get(NAME, create=False)
        assert len(topic.delays()) == COUNT
        assert await reads_of(world) - before < 50

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_few_waiting_messages_are_read_again_rather_than_saved():
    async def scenario(world: BrokerWorld):
        await shared(world)
        await publish_delayed(world, 10, 60_000)
        await settle(SAVE_INTERVAL_S + 1)
        await world.restart()
        assert await world.metadata.get(PATH) is None
        client = await shared(world)
        await settle(61)
        assert len(texts(client)) == 10

    run_with_broker(scenario, keep_alive_interval_s=100_000)


@pytest.mark.parametrize("value", [b"", b"x", b"77 -1", b"1 2 3"])
def test_snapshot_that_can_not_be_read_costs_reading_and_nothing_else(value):
    async def scenario(world: BrokerWorld):
        await world.metadata.put(PATH, value, expected_version=MUST_NOT_EXIST)
        client = await shared(world)
        await publish_delayed(world, 20, 5000)
        await settle(1)
        assert texts(client) == []
        await settle(5)
        assert len(texts(client)) == 20

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_goes_with_its_topic():
    async def scenario(world: BrokerWorld):
        client = await shared(world)
        await publish_delayed(world, COUNT, 600_000)
        await settle(SAVE_INTERVAL_S + 1)
        node = SnapshotNode.decode((await world.metadata.get(PATH)).value)
        stats = delays_stats(await world.broker.registry.get(NAME, create=False))
        assert (stats["entries"], stats["notSaved"], stats["bucketMs"], stats["readers"]) == (COUNT, 0, 512, 1)
        assert stats["snapshotLedgerId"] == node.ledger_id >= 0
        assert 0 < stats["memoryBytes"] < 100_000
        client.lose()
        await settle()
        await world.broker.registry.delete(NAME, force=True)
        assert await world.metadata.get(PATH) is None

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_node_of_a_snapshot_is_two_numbers():
    assert SnapshotNode.decode(SnapshotNode(7, -1).encode()) == SnapshotNode(7, -1)
    with pytest.raises(CorruptionError):
        SnapshotNode.decode(b"7")


async def is_delaying(world: BrokerWorld, is_active: bool) -> None:
    await set_topic(world, "delayedDeliveryEnabled", is_active)
    await settle()


async def with_a_snapshot_while_messages_do_not_wait(world: BrokerWorld) -> int:
    """The snapshot's ledger."""
    client = await shared(world)
    await publish_delayed(world, COUNT, 600_000)
    await settle(SAVE_INTERVAL_S + 1)
    client.lose()
    await settle()
    await is_delaying(world, False)
    await world.restart()
    topic = await world.broker.registry.get(NAME, create=False)
    assert topic.delays() is None
    return SnapshotNode.decode((await world.metadata.get(PATH)).value).ledger_id


def test_snapshot_goes_with_a_topic_whose_messages_do_not_wait_any_more():
    async def scenario(world: BrokerWorld):
        ledger_id = await with_a_snapshot_while_messages_do_not_wait(world)
        await world.broker.registry.delete(NAME, force=True)
        assert await world.metadata.get(PATH) is None
        assert ledger_id not in await MetadataLiveLedgers(world.metadata).live_ledger_ids()

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_is_written_again_when_messages_wait_again():
    async def scenario(world: BrokerWorld):
        before = await with_a_snapshot_while_messages_do_not_wait(world)
        await is_delaying(world, True)
        await shared(world)
        await publish_delayed(world, COUNT, 900_000)
        await settle(SAVE_INTERVAL_S + 1)
        after = SnapshotNode.decode((await world.metadata.get(PATH)).value).ledger_id
        live = await MetadataLiveLedgers(world.metadata).live_ledger_ids()
        assert live & {before, after} == {after} != {before}

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_of_a_topic_without_subscriptions_is_read_for_the_first_who_subscribe():
    async def scenario(world: BrokerWorld):
        client = await shared(world)
        await publish_delayed(world, COUNT, 600_000)
        await settle(SAVE_INTERVAL_S + 1)
        client.lose()
        await world.restart()
        # As where the broker died, and the subscription was deleted by another one.
        await world.metadata.delete(f"{LEDGER}/sub")
        topic = await world.broker.registry.get(NAME, create=False)
        assert (delays_stats(topic), len(topic.subscriptions)) == ({}, 0)
        part = topic.parts.find(DelayedDelivery)
        called_off = asyncio.ensure_future(part.ready())
        await next_turn()
        called_off.cancel()

        async def waiting() -> int:
            await part.ready()
            return part.stats()["entries"]

        assert await asyncio.gather(waiting(), waiting()) == [COUNT, COUNT]
        client = await world.subscriber(subscription="other", subType=pb.CommandSubscribe.Shared)
        stats = delays_stats(topic)
        assert (stats["entries"], stats["readers"]) == (COUNT, 1)

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_snapshot_goes_with_a_topic_that_nobody_subscribed_to():
    async def scenario(world: BrokerWorld):
        quorums = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        ledger = await world.ledgers.bookkeeper.create_ledger(**quorums)
        await world.metadata.put(PATH, SnapshotNode(ledger.ledger_id, -1).encode(), expected_version=MUST_NOT_EXIST)
        await world.publisher()
        await world.broker.registry.delete(NAME, force=True)
        assert await world.metadata.get(PATH) is None
        assert ledger.ledger_id not in await MetadataLiveLedgers(world.metadata).live_ledger_ids()

    run_with_broker(scenario, keep_alive_interval_s=100_000)


@pytest.mark.parametrize("value", [b"", b"x", b"1 2 3"])
def test_snapshot_whose_node_says_nothing_intelligible_is_replaced_and_goes_with_its_topic(value):
    async def scenario(world: BrokerWorld):
        await world.metadata.put(PATH, value, expected_version=MUST_NOT_EXIST)
        client = await shared(world)
        await publish_delayed(world, COUNT, 600_000)
        await settle(SAVE_INTERVAL_S + 1)
        assert SnapshotNode.decode((await world.metadata.get(PATH)).value).ledger_id >= 0
        client.lose()
        await settle()
        await world.broker.registry.delete(NAME, force=True)
        assert await world.metadata.get(PATH) is None

    run_with_broker(scenario, keep_alive_interval_s=100_000)
