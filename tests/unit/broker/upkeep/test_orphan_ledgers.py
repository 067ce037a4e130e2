"""Ledgers that a crash left behind go; those of other installations, of before, and those that a list names stay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga.bookkeeper import BookKeeper, Installation, LocalBookiePool
from geminga.bookkeeper.installation import INSTALLATION_PATH, META_INSTALLATION
from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.broker.resources.configuration_paths import ConfigurationPaths
from geminga.broker.schema import store as schema_store
from geminga.broker.topic import delayed_snapshots
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.upkeep.orphan_ledgers import OrphanLedgers
from geminga.managed_ledger.shared.metadata_io import ledger_path as list_path
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import CorruptionError, StorageError
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata
from geminga.wire.bookkeeper.ledger_path import ledger_path
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.ledger_world import unlisted
from support.worlds.metadata_behind import MetadataBehind
from support.worlds.policy_levels import seconds

HOUR_S = 3600.0
#: What Pulsar writes at the ledger of a topic.
OF_PULSAR = {
    "application": b"pulsar",
    "component": b"managed-ledger",
    "pulsar/managed-ledger": b"public/default/persistent/of-the-other-cluster",
}
ONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


async def published(world: BrokerWorld) -> PersistentTopic:
    client = await world.publisher()
    await client.publish(0)
    topic = world.broker.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    return topic


def orphans_of(world: BrokerWorld, **changes) -> OrphanLedgers:
    """One whose looks the test makes; the broker's own are stopped."""
    world.broker.ledger_upkeep.close()
    return OrphanLedgers(world.runtime, world.metadata, world.ledgers.bookkeeper, **{"at_once_max": 100, **changes})


async def orphan(world: BrokerWorld) -> int:
    """A ledger as a crash leaves it between its creation and the list."""
    return (await unlisted((await published(world)).ledger)).ledger_id


def test_ledgers_of_another_cluster_on_the_same_bookkeeper_are_never_deleted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        # The other cluster's lists are in another store: to us its ledgers are in no list.
        theirs = MemoryMetadataStore(world.runtime)
        other = BookKeeper(
            world.runtime,
            world.metadata,
            LocalBookiePool({"bookie": world.bookie}),
            installation=Installation(theirs, world.runtime.rng),
        )
        made = (await other.create_ledger(**ONE, custom_metadata=OF_PULSAR)).ledger_id
        # An Apache broker names no installation.
        ensemble = LedgerFragment(0, ("bookie",))
        apache = LedgerMetadata(1, 1, 1, (ensemble,), custom_metadata=OF_PULSAR, creation_token=1)
        assert await LedgerStore(world.metadata).create(900, apache)
        await seconds(2 * HOUR_S)
        await world.restart()
        await seconds(72 * HOUR_S)
        assert await world.metadata.exists(ledger_path(made))
        assert await world.metadata.exists(ledger_path(900))

    run_with_broker(scenario, delete_inactive_topics=False)


def test_every_ledger_that_is_made_names_the_installation() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await published(world)
        node = await world.metadata.get(INSTALLATION_PATH)
        assert node is not None
        assert len(node.value) == 32
        for ledger_id in await world.ledgers.bookkeeper.ledger_ids():
            custom = (await world.ledgers.bookkeeper.read_ledger(ledger_id)).metadata.custom_metadata
            assert custom[META_INSTALLATION] == node.value
            assert custom["application"] == b"pulsar"
        before = node.value
        await world.restart()
        assert await world.ledgers.bookkeeper.installation.id() == before

    run_with_broker(scenario, delete_inactive_topics=False)


def test_an_orphan_goes_after_two_looks_an_hour_apart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        made = await orphan(world)
        orphans = orphans_of(world)
        await seconds(5 * HOUR_S)
        assert not await orphans.look()
        assert orphans.last.waiting == [made]
        await seconds(HOUR_S - 1)
        assert not await orphans.look()
        await seconds(2)
        assert await orphans.look() == [made]
        assert orphans.metrics()["geminga_orphan_ledgers_deleted_total"] == 1
        assert not await world.metadata.exists(ledger_path(made))

    run_with_broker(scenario, delete_inactive_topics=False)


def test_an_orphan_that_is_listed_between_two_looks_stays() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await published(world)
        handle = await unlisted(topic.ledger)
        orphans = orphans_of(world)
        await seconds(5 * HOUR_S)
        assert not await orphans.look()
        assert orphans.last.waiting == [handle.ledger_id]
        await world.metadata.put(
            f"{delayed_snapshots.ROOT}/public/default/persistent/late",
            delayed_snapshots.SnapshotNode(handle.ledger_id, -1).encode(),
            expected_version=None,
        )
        await seconds(2 * HOUR_S)
        assert not await orphans.look()
        assert not orphans.last.waiting
        assert await world.metadata.exists(ledger_path(handle.ledger_id))

    run_with_broker(scenario, delete_inactive_topics=False)


def test_a_ledger_whose_writer_is_at_work_between_two_looks_stays() -> None:
    async def scenario(world: BrokerWorld) -> None:
        made = await orphan(world)
        orphans = orphans_of(world)
        await seconds(5 * HOUR_S)
        assert not await orphans.look()
        await world.ledgers.bookkeeper.open_ledger(made)
        await seconds(2 * HOUR_S)
        assert not await orphans.look()
        await seconds(2 * HOUR_S)
        assert await orphans.look() == [made]

    run_with_broker(scenario, delete_inactive_topics=False)


class ListedMeanwhile(MemoryMetadataStore):
    """A store in which something happens just before the lists are read for the last time."""

    walks = 0
    meanwhile: Callable[[], Awaitable[None]]

    async def children(self, path: str) -> list[str]:
        if path == "/managed-ledgers":
            self.walks += 1
            if self.walks == 3:
                await self.meanwhile()
        return await super().children(path)


def test_a_ledger_that_is_listed_at_the_last_moment_stays_and_keeps_what_was_acknowledged() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await published(world)
        handle = await unlisted(topic.ledger)
        acknowledged = asyncio.get_running_loop().create_future()
        handle.append([b"acknowledged"], lambda first, count, error: acknowledged.set_result(error))
        assert await acknowledged is None
        store = ListedMeanwhile(world.runtime, world.metadata._server)

        async def list_it() -> None:
            node = delayed_snapshots.SnapshotNode(handle.ledger_id, -1).encode()
            await store.put(f"{delayed_snapshots.ROOT}/t/n/persistent/late", node, expected_version=None)

        store.meanwhile = list_it
        world.broker.ledger_upkeep.close()
        orphans = OrphanLedgers(world.runtime, store, world.ledgers.bookkeeper, at_once_max=100)
        await seconds(2 * HOUR_S)
        await orphans.look()
        await seconds(2 * HOUR_S)
        assert not await orphans.look()
        assert store.walks == 3
        again = await world.ledgers.bookkeeper.open_ledger(handle.ledger_id)
        assert list(await again.read_entries(0, 0)) == [b"acknowledged"]
        # Sealed before the lists were read for the last time: nothing more was acknowledged.
        refused = asyncio.get_running_loop().create_future()
        handle.append([b"too late"], lambda first, count, error: refused.set_result(error))
        assert isinstance(await refused, StorageError)

    run_with_broker(scenario, delete_inactive_topics=False)


def test_a_ledger_that_a_server_which_lags_behind_does_not_know_to_be_listed_stays() -> None:
    """The lists may lie in another store than the ledgers: that these are written makes no server of those newer."""

    async def scenario(world: BrokerWorld) -> None:
        made = await orphan(world)
        lists = MetadataBehind(world.runtime, world.metadata.server)
        world.broker.ledger_upkeep.close()
        orphans = OrphanLedgers(world.runtime, lists, world.ledgers.bookkeeper, at_once_max=100)
        await seconds(2 * HOUR_S)
        await orphans.look()
        await seconds(2 * HOUR_S)
        before = await lists.children(delayed_snapshots.ROOT)
        node = delayed_snapshots.SnapshotNode(made, -1).encode()
        await world.metadata.put(f"{delayed_snapshots.ROOT}/t/n/persistent/late", node, expected_version=None)
        lists.children_before[delayed_snapshots.ROOT] = before
        assert not await orphans.look()
        assert await world.metadata.exists(ledger_path(made))

    run_with_broker(scenario, delete_inactive_topics=False)


def test_an_orphan_goes_while_what_clusters_share_is_away() -> None:
    async def scenario(world: BrokerWorld) -> None:
        made = await orphan(world)
        shared = MemoryMetadataStore(world.runtime)
        await shared.close()
        lists = DividedMetadataStore(world.metadata, shared, ConfigurationPaths())
        world.broker.ledger_upkeep.close()
        orphans = OrphanLedgers(world.runtime, lists, world.ledgers.bookkeeper, at_once_max=100)
        await seconds(2 * HOUR_S)
        await orphans.look()
        await seconds(2 * HOUR_S)
        assert await orphans.look() == [made]

    run_with_broker(scenario, delete_inactive_topics=False)


@pytest.mark.parametrize(
    "path",
    [
        list_path("public/default/persistent/damaged"),
        f"{list_path('public/default/persistent/other')}/damaged-cursor",
        f"{list_path('tenant/cluster/namespace/persistent/of-old')}",
        schema_store.path_of("public/default/damaged"),
        f"{delayed_snapshots.ROOT}/public/default/persistent/damaged",
    ],
)
def test_a_list_that_can_not_be_decoded_ends_the_look(path: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        made = await orphan(world)
        orphans = orphans_of(world)
        await seconds(2 * HOUR_S)
        assert not await orphans.look()
        await seconds(2 * HOUR_S)
        await world.metadata.put(path, b"\xff\xff damaged", expected_version=None)
        with pytest.raises(CorruptionError):
            await orphans.look()
        assert await world.metadata.exists(ledger_path(made))
        await world.metadata.delete(path)
        assert await orphans.look() == [made]

    run_with_broker(scenario, delete_inactive_topics=False)


def test_more_orphans_at_once_than_a_crash_leaves_are_kept_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await published(world)
        made = [(await unlisted(topic.ledger)).ledger_id for _ in range(5)]
        orphans = orphans_of(world, at_once_max=4)
        for _ in range(4):
            await seconds(2 * HOUR_S)
            assert not await orphans.look()
        assert [ledger.ledger_id for ledger in orphans.last.held] == made
        assert orphans.metrics()["geminga_orphan_ledgers_held"] == 5
        told = [record for record in caplog.records if "gemingaOrphanLedgersDeletedAtOnceMax" in record.getMessage()]
        assert len(told) == 1
        other = orphans_of(world, at_once_max=5)
        await other.look()
        await seconds(2 * HOUR_S)
        assert await other.look() == made

    run_with_broker(scenario, delete_inactive_topics=False)
