"""Creating and deleting ledgers, and the list for the bookies' garbage collection."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import BookKeeperConfig, MetadataLiveLedgers
from geminga.bookkeeper.installation import META_INSTALLATION
from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.bookkeeper.recovery import readmit_on_bookies
from geminga.metadata import MetadataFaults, WriteFault
from geminga.model.errors import (
    DiskFullError,
    LedgerFencedError,
    MetadataError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from geminga.wire.bookkeeper.digest import DigestType
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata, LedgerState
from geminga.wire.bookkeeper.ledger_path import ledger_path
from support.worlds.ledgers import Appends, Cluster, appending, create, run_cluster


def test_created_ledger_has_the_metadata_that_was_asked_for():
    async def main(cluster: Cluster):
        config = BookKeeperConfig(digest_type="MAC", password="pw")
        client = cluster.client(config=config)
        handle = await client.create_ledger(
            ensemble_size=3, write_quorum=2, ack_quorum=1, custom_metadata={"application": b"pulsar"}
        )
        stored = await LedgerStore(cluster.stores[0]).read(handle.ledger_id)
        metadata = stored.metadata
        assert metadata == handle.metadata
        assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 1)
        assert (metadata.state, metadata.digest_type, metadata.password) == (LedgerState.OPEN, DigestType.HMAC, b"pw")
        installation = await client.installation.id()
        assert dict(metadata.custom_metadata) == {"application": b"pulsar", META_INSTALLATION: installation}
        assert metadata.created_ms == cluster.runtime.clock.wall_ms()
        assert sorted(metadata.last_fragment.ensemble) == ["b0", "b1", "b2"]
        assert await Appends(handle).append_and_wait(b"x") is None
        assert await handle.read_entries(0, 0) == [b"x"]

    run_cluster(main)


def test_too_few_bookies_is_said_before_anything_is_written():
    async def main(cluster: Cluster):
        client = cluster.client()
        cluster.bookies["b1"].is_writable = False
        with pytest.raises(NotEnoughBookiesError, match="need 3"):
            await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        assert await cluster.stores[0].children("/") == []

    run_cluster(main)


def test_concurrent_creations_over_clients_get_different_ids():
    async def main(cluster: Cluster):
        def client():
            faults = MetadataFaults(unknown_before_percent=15, unknown_after_percent=15, delay_ms_max=3)
            return cluster.client(faults=faults)

        clients = [client() for _ in range(4)]
        handles = await asyncio.gather(*(create(clients[i % 4]) for i in range(24)))
        assert len({handle.ledger_id for handle in handles}) == 24

    run_cluster(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
@pytest.mark.parametrize("step", [0, 1])
def test_unknown_outcome_of_a_creation_is_settled(fault, step):
    """Step 0 is the counter of ids, step 1 the ledger's node."""

    async def main(cluster: Cluster):
        client = cluster.client()
        cluster.stores[0].faults.next_writes.extend([WriteFault.NONE] * step + [fault])
        handle = await create(client)
        await Appends(handle).append_and_wait(b"x")
        await handle.close()
        live = await MetadataLiveLedgers(cluster.stores[0]).live_ledger_ids()
        assert live == {handle.ledger_id}
        asked = [handle.ledger_id, handle.ledger_id + 1, 1 << 40]
        assert await MetadataLiveLedgers(cluster.stores[0]).existing(asked) == live

    run_cluster(main)


def test_id_that_another_took_is_left_to_it():
    async def main(cluster: Cluster):
        client = cluster.client()
        theirs = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("b0",)),), creation_token=5)
        assert await LedgerStore(cluster.stores[0]).create(0, theirs) is not None
        assert (await create(client)).ledger_id == 1
        assert (await LedgerStore(cluster.stores[0]).read(0)).metadata == theirs

    run_cluster(main)


def test_creation_without_an_answer_does_not_take_what_another_created():
    async def main(cluster: Cluster):
        cluster.client()
        store = LedgerStore(cluster.stores[0])
        ours, theirs = (LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("b0",)),), creation_token=t) for t in (4, 5))
        await store.create(0, theirs)
        cluster.stores[0].faults.next_writes.append(WriteFault.UNKNOWN_BEFORE)
        assert await store.create(0, ours) is None

    run_cluster(main)


# ---- deletion


def test_deleted_ledger_is_gone_and_deleting_twice_is_fine():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await client.delete_ledger(handle.ledger_id)
        await client.delete_ledger(handle.ledger_id)
        with pytest.raises(NoSuchLedgerError):
            await client.open_ledger(handle.ledger_id)

    run_cluster(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_unknown_outcome_of_a_deletion_is_settled(fault):
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        cluster.stores[0].faults.next_writes.append(fault)
        await client.delete_ledger(handle.ledger_id)
        assert not await cluster.stores[0].exists(ledger_path(handle.ledger_id))

    run_cluster(main)


def test_writer_of_a_deleted_ledger_can_not_close_it_back_into_being():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await cluster.client().delete_ledger(handle.ledger_id)
        with pytest.raises(NoSuchLedgerError):
            await handle.close()
        assert not await cluster.stores[0].exists(ledger_path(handle.ledger_id))

    run_cluster(main)


# ---- clusters that keep their ledgers elsewhere


@pytest.mark.parametrize("name", ["LongHierarchicalLedgerManagerFactory", "FlatLedgerManagerFactory"])
def test_a_ledger_that_lies_elsewhere_by_the_clusters_layout_is_not_taken_for_deleted(name: str):
    async def main(cluster: Cluster):
        client = cluster.client()
        layout = f"2\norg.apache.bookkeeper.meta.{name}:1".encode()
        await cluster.stores[0].put("/ledgers/LAYOUT", layout, expected_version=None)
        await cluster.stores[0].put("/ledgers/000/0000/0000/0000/L0001", b"theirs", expected_version=None)
        for call in (create(client), client.open_ledger(1), client.read_ledger(1), client.delete_ledger(1)):
            with pytest.raises(MetadataError, match=name):
                await call
        assert not await cluster.stores[0].exists("/ledgers/00")

    run_cluster(main)


@pytest.mark.parametrize("name", ["HierarchicalLedgerManagerFactory", "LegacyHierarchicalLedgerManagerFactory"])
def test_in_a_cluster_of_the_known_layout_a_ledger_that_is_not_there_does_not_exist(name: str):
    async def main(cluster: Cluster):
        client = cluster.client()
        layout = f"2\norg.apache.bookkeeper.meta.{name}:1".encode()
        await cluster.stores[0].put("/ledgers/LAYOUT", layout, expected_version=None)
        with pytest.raises(NoSuchLedgerError):
            await client.open_ledger(1)
        assert (await create(client)).ledger_id == 0

    run_cluster(main)


# ---- the list of live ledgers


def test_live_ledgers_are_those_with_metadata_in_both_layouts():
    async def main(cluster: Cluster):
        client = cluster.client()
        store = cluster.stores[0]
        ids = {(await create(client)).ledger_id for _ in range(3)}
        for ledger_id in (10_000, 1 << 31, 1 << 62):
            metadata = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("b0",)),), creation_token=1)
            await LedgerStore(store).create(ledger_id, metadata)
            ids.add(ledger_id)
        await store.put("/ledgers/available/b0", b"", expected_version=None)
        await store.put("/ledgers/00/0000/other", b"", expected_version=None)
        assert await MetadataLiveLedgers(store).live_ledger_ids() == ids

    run_cluster(main)


def test_live_ledgers_are_unknown_while_the_metadata_is():
    async def main(cluster: Cluster):
        client = cluster.client()
        await create(client)
        store = cluster.stores[0]
        store.expire_session(outage_ms=50)
        assert await MetadataLiveLedgers(store).live_ledger_ids() is None

    run_cluster(main)


@pytest.mark.parametrize(
    ("layout", "is_known"),
    [
        (b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1", True),
        (b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1", True),
        (b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", False),
    ],
)
def test_a_layout_that_is_not_understood_is_not_an_empty_list(layout: bytes, is_known: bool):
    async def main(cluster: Cluster):
        await create(cluster.client())
        store = cluster.stores[0]
        await store.put("/ledgers/LAYOUT", layout, expected_version=None)
        assert (await MetadataLiveLedgers(store).live_ledger_ids() is not None) == is_known

    run_cluster(main)


def test_no_ledgers_is_an_empty_set_not_unknown():
    async def main(cluster: Cluster):
        cluster.client()
        assert await MetadataLiveLedgers(cluster.stores[0]).live_ledger_ids() == set()

    run_cluster(main)


def test_writer_of_a_deleted_ledger_gets_no_more_acknowledgments():
    async def main(cluster):
        client = cluster.client()
        handle = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        appends = Appends(handle)
        assert await appends.append_and_wait(b"before") is None
        # From another process, which does not know the writer.
        await cluster.client().delete_ledger(handle.ledger_id)
        assert isinstance(await appends.append_and_wait(b"after"), LedgerFencedError)

    run_cluster(main)


@pytest.mark.parametrize(("quorums", "hanging"), [((2, 2, 2), 1), ((3, 3, 2), 1), ((3, 2, 2), 1), ((3, 3, 3), 2)])
def test_deletion_waits_for_no_bookie_that_hangs_once_nothing_can_be_acknowledged_any_more(quorums, hanging):
    async def main(cluster):
        handle, appends = await appending(cluster, quorums)
        assert await appends.append_and_wait(b"before") is None
        ensemble = handle.metadata.last_fragment.ensemble
        for name in ensemble[:hanging]:
            cluster.bookies[name].holds_replies = True
        async with asyncio.timeout(1):
            await cluster.client().delete_ledger(handle.ledger_id)
        for name in ensemble[:hanging]:
            cluster.bookies[name].release()
        assert isinstance(await appends.append_and_wait(b"after"), LedgerFencedError)

    run_cluster(main)


def test_ledger_that_is_made_anew_waits_for_no_bookie_that_is_to_have_nothing_of_it():
    async def main(cluster):
        client = cluster.client()
        handle = await create(client, (2, 2, 2))
        await client.delete_ledger(handle.ledger_id)
        metadata = handle.metadata
        spare, *_ = {*cluster.bookies} - {*metadata.last_fragment.ensemble}
        cluster.bookies[spare].holds_replies = True

        async def readmitted() -> None:
            async with asyncio.timeout(1):
                await readmit_on_bookies(client._env, handle.ledger_id, metadata, sorted(cluster.bookies))

        await readmitted()
        # It was asked all the same, and may answer later.
        assert cluster.bookies[spare].is_fenced(handle.ledger_id)
        cluster.bookies[spare].release()
        needed = metadata.last_fragment.ensemble[1]
        cluster.bookies[needed].holds_replies = True
        with pytest.raises(TimeoutError):
            await readmitted()
        cluster.bookies[needed].fence_error = DiskFullError("full")
        cluster.bookies[needed].holds_replies = False
        with pytest.raises(DiskFullError):
            await readmitted()

    run_cluster(main)


@pytest.mark.parametrize(("quorums", "hanging"), [((3, 3, 2), 2), ((2, 2, 1), 1), ((5, 3, 2), 2)])
def test_deletion_waits_for_bookies_that_could_still_acknowledge_an_entry(quorums, hanging):
    async def main(cluster):
        handle = await create(cluster.client(), quorums)
        for name in handle.metadata.last_fragment.ensemble[:hanging]:
            cluster.bookies[name].holds_replies = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await cluster.client().delete_ledger(handle.ledger_id)
        assert await cluster.stores[0].exists(ledger_path(handle.ledger_id))

    run_cluster(main, bookies=5)


def test_ledger_is_deleted_although_no_bookie_can_be_fenced():
    async def main(cluster):
        client = cluster.client()
        handle = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        for bookie in cluster.bookies.values():
            bookie.fence_error = DiskFullError("full")
        await client.delete_ledger(handle.ledger_id)
        with pytest.raises(NoSuchLedgerError):
            await client.open_ledger(handle.ledger_id)

    run_cluster(main)
