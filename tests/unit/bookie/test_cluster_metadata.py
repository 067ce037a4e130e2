"""BookKeeper's part of a cluster's metadata, made where there is nothing and removed where nobody is up."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookie import cluster_metadata
from geminga.bookie.cluster_metadata import StoredCluster, format_cluster, init_new_cluster, look
from geminga.bookie.registration import cluster_id
from geminga.bookkeeper.ledger_ids import LedgerIds
from geminga.metadata import MetadataFaults
from geminga.model.errors import DataDirectoryError
from support.worlds.ledgers import Cluster, run_cluster


def test_a_new_cluster_is_made_once() -> None:
    async def main(cluster: Cluster) -> None:
        store = cluster.store()
        assert await look(store, 0) == StoredCluster(0, 0, (), is_there=False)
        drawn = await init_new_cluster(store, cluster.runtime)
        assert await cluster_id(store, cluster.runtime) == drawn
        assert await store.children("/ledgers") == ["INSTANCEID", "LAYOUT", "available"]
        assert await store.children("/ledgers/available") == ["readonly"]
        with pytest.raises(DataDirectoryError, match="/ledgers is there already, with INSTANCEID, LAYOUT, available"):
            await init_new_cluster(store, cluster.runtime)
        assert (await look(store, 3)) == StoredCluster(3, 0, (), is_there=True)

    run_cluster(main)


async def fill(cluster: Cluster) -> int:
    """A cluster with ledgers and cookies; the greatest id that it gave out."""
    store = cluster.store()
    await init_new_cluster(store, cluster.runtime)
    client = cluster.client()
    for _ in range(5):
        handle = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    await store.put("/ledgers/cookies/b:1", b"5\n", expected_version=None)
    await store.put("/ledgers/underreplication/ledgers/0/0/0/1/urL1", b"", expected_version=None)
    await store.put("/managed-ledgers/a", b"", expected_version=None)
    return handle.ledger_id


@pytest.mark.parametrize("faults", [None, MetadataFaults(unknown_before_percent=20, unknown_after_percent=20)])
def test_a_formatted_cluster_is_new_but_for_its_ids(faults: MetadataFaults | None) -> None:
    async def main(cluster: Cluster) -> None:
        newest = await fill(cluster)
        store = cluster.stores[0]
        before = await cluster_id(store, cluster.runtime)
        after = await format_cluster(cluster.store(faults), cluster.runtime)
        assert before != after == await cluster_id(store, cluster.runtime)
        assert await store.children("/ledgers") == ["INSTANCEID", "LAYOUT", "available", "idgen"]
        assert await store.exists("/managed-ledgers/a")
        assert await LedgerIds(store).next_id() > newest

    run_cluster(main)


def test_a_cluster_is_formatted_in_windows_to_the_last_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metadata, "_AT_ONCE_MAX", 2)

    async def main(cluster: Cluster) -> None:
        await fill(cluster)
        store = cluster.stores[0]
        assert len(await store.children("/ledgers/00/0000")) == 5
        await format_cluster(store, cluster.runtime)
        assert await store.children("/ledgers") == ["INSTANCEID", "LAYOUT", "available", "idgen"]

    run_cluster(main)


@pytest.mark.parametrize("place", ["/ledgers/available", "/ledgers/available/readonly"])
def test_nothing_is_removed_while_a_bookie_is_up(place: str) -> None:
    async def main(cluster: Cluster) -> None:
        await fill(cluster)
        store = cluster.stores[0]
        await store.put(f"{place}/b:1", b"", expected_version=None, ephemeral=True)
        before = await store.children("/ledgers")
        with pytest.raises(DataDirectoryError, match=r"bookies are up, and would go on .*: b:1. Stop them"):
            await format_cluster(cluster.store(), cluster.runtime)
        assert await store.children("/ledgers") == before
        assert await store.children("/ledgers/00/0000") != []

    run_cluster(main)


def test_cut_off_it_fits_no_bookie_and_is_made_good_by_the_next() -> None:
    async def main(cluster: Cluster) -> None:
        await fill(cluster)
        store = cluster.stores[0]
        has_lost_its_id = asyncio.Event()
        store.watch_node("/ledgers/INSTANCEID", lambda _: has_lost_its_id.set())
        slow = asyncio.ensure_future(format_cluster(cluster.store(MetadataFaults(delay_ms_max=20)), cluster.runtime))
        await has_lost_its_id.wait()
        slow.cancel()
        assert await store.exists("/ledgers/cookies/b:1")
        # No id is drawn beside the cookies of another.
        assert await cluster_id(store, cluster.runtime) == ""
        await format_cluster(store, cluster.runtime)
        assert await cluster_id(store, cluster.runtime) != ""

    run_cluster(main)
