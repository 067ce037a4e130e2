"""A ledger whose end can not be told is closed where it can be read, as an operator says, and never otherwise."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import BookKeeperConfig, LocalBookiePool
from geminga.bookkeeper.client import BookKeeper
from geminga.bookkeeper.giving_up import GivenUpEnd
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import (
    DiskIOError,
    LedgerFencedError,
    NoSuchLedgerError,
    PreconditionFailedError,
    StorageError,
    UnknownEntryError,
)
from support.clusters.bookie_node import BookieNode, run_bookie
from support.worlds.ledgers import Appends, Cluster, appending, create, filled, payloads, run_cluster, turn


async def refused(client: BookKeeper, ledger_id: int, **options: bool) -> str:
    with pytest.raises(PreconditionFailedError) as caught:
        await client.give_up_end(ledger_id, **options)
    return str(caught.value)


async def told_of(client: BookKeeper, ledger_id: int) -> GivenUpEnd:
    return await client.give_up_end(ledger_id, is_dry=True)


#: Of windows of three entries: the damage is in the first one that is looked at, over two, over all of the ledger.
@pytest.mark.parametrize("damaged_from", [9, 8, 5, 0])
def test_newest_entries_that_are_damaged_are_given_up_and_those_before_stay(damaged_from: int) -> None:
    async def main(cluster: Cluster) -> None:
        handle, appends = await appending(cluster)
        for i in range(10):
            await appends.append_and_wait(*payloads(i, 1))
        for entry_id in range(damaged_from, 10):
            cluster.bookies["b0"].corrupt(handle.ledger_id, entry_id)
        client = cluster.client(config=BookKeeperConfig(recovery_read_batch_size=3))
        with pytest.raises(UnknownEntryError):
            await client.open_ledger(handle.ledger_id)
        told = await told_of(client, handle.ledger_id)
        with pytest.raises(UnknownEntryError):
            await client.open_ledger(handle.ledger_id)
        end = await client.give_up_end(handle.ledger_id)
        assert end == told
        assert (end.last_entry_id, end.newest_entry_id, end.doubts) == (damaged_from - 1, 9, ())
        assert "CRC32C" in end.error
        reader = await client.open_ledger(handle.ledger_id)
        assert (reader.last_add_confirmed, reader.length_bytes) == (
            damaged_from - 1,
            sum(map(len, payloads(0, damaged_from))),
        )
        if damaged_from:
            assert await reader.read_entries(0, damaged_from - 1) == payloads(0, damaged_from)
        assert isinstance(await appends.append_and_wait(b"late"), LedgerFencedError)
        assert "is closed" in await refused(client, handle.ledger_id)

    run_cluster(main, bookies=1)


def test_ledger_that_can_be_recovered_is_and_nothing_is_given_up() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await filled(cluster, *payloads(0, 5), quorums=(3, 3, 2))
        await turn()
        cluster.bookies["b0"].corrupt(handle.ledger_id, 4)
        client = cluster.client()
        assert "could be recovered, all of it" in await refused(client, handle.ledger_id, is_forced=True)
        assert (await client.open_ledger(handle.ledger_id)).last_add_confirmed == 4
        with pytest.raises(NoSuchLedgerError):
            await client.give_up_end(handle.ledger_id + 1)

    run_cluster(main)


@pytest.mark.parametrize("how", ["is down", "can not read"])
def test_what_is_only_out_of_reach_is_given_up_by_force_alone(how: str) -> None:
    async def main(cluster: Cluster) -> None:
        handle = await filled(cluster, *payloads(0, 5), quorums=(3, 3, 2))
        await turn()
        away, damaged, whole = handle.metadata.last_fragment.ensemble
        if how == "is down":
            for name in (away, damaged):
                cluster.bookies[name].fail(DiskIOError(how))
        else:
            for name in (away, damaged, whole):
                cluster.bookies[name].corrupt(handle.ledger_id, 4)
            cluster.bookies[away].read_error = DiskIOError(how)
        client = cluster.client()
        assert "out of reach, which may pass" in await refused(client, handle.ledger_id)
        assert any(f"bookie {away}: {how}" in doubt for doubt in (await told_of(client, handle.ledger_id)).doubts)
        end = await client.give_up_end(handle.ledger_id, is_forced=True)
        # Whoever answers is believed of what it has, and what it does not have is lost by force.
        assert end.last_entry_id == (4 if how == "is down" else 3)
        reader = await client.open_ledger(handle.ledger_id)
        assert await reader.read_entries(0, end.last_entry_id) == payloads(0, end.last_entry_id + 1)

    run_cluster(main)


def test_what_a_bookie_that_lost_a_part_of_its_journal_can_give_stays() -> None:
    """It tells neither its end nor what it has."""

    async def main(case: BookieNode) -> None:
        store = MemoryMetadataStore(case.node.runtime, MemoryMetadata())

        def client() -> BookKeeper:
            config = BookKeeperConfig(recovery_read_batch_size=2)
            return BookKeeper(case.node.runtime, store, LocalBookiePool({"b": case.bookie}), config)

        handle = await create(client())
        appends = Appends(handle)
        ends = []
        for i in range(10):
            await appends.append_and_wait(*payloads(i, 1))
            (_, end), *_ = case.bookie.journal.durable_files()
            ends.append(end)
        case.ledgers.live = {handle.ledger_id}
        await case.kill()
        # Groups of entries 2 to 6, the first of which says nothing of the last one.
        (path,) = case.files(".journal")
        for end in ends[1:6]:
            case.flip(path, end + 45)
        await case.open(accept_damaged_journal=True)
        with pytest.raises(UnknownEntryError):
            await client().open_ledger(handle.ledger_id)
        assert "out of reach" in await refused(client(), handle.ledger_id)
        end = await client().give_up_end(handle.ledger_id, is_forced=True)
        assert (end.last_entry_id, "limbo" in end.doubts[0]) == (9, True)
        reader = await client().open_ledger(handle.ledger_id)
        assert await reader.read_entries(7, 9) == payloads(7, 3)
        with pytest.raises(StorageError):
            await reader.read_entries(2, 2)

    run_bookie(main)


def test_who_can_not_be_fenced_says_all_the_same_what_it_had() -> None:
    """A bookie on the network is fenced by a read of its last entry, which may be what is damaged."""

    async def main(cluster: Cluster) -> None:
        handle = await filled(cluster, *payloads(0, 10))
        bookie = cluster.bookies["b0"]
        for entry_id in range(4, 10):
            bookie.corrupt(handle.ledger_id, entry_id)
        bookie.fence_error = DiskIOError("damaged")
        end = await cluster.client().give_up_end(handle.ledger_id, is_forced=True)
        assert (end.last_entry_id, end.newest_entry_id) == (3, 9)

    run_cluster(main, bookies=1)


def test_last_entries_that_stay_are_on_all_bookies_that_are_to_have_them() -> None:
    async def main(cluster: Cluster) -> None:
        handle, appends = await appending(cluster, (3, 3, 2))
        for i in range(4):
            await appends.append_and_wait(*payloads(i, 1))
            await turn()
        ensemble = handle.metadata.last_fragment.ensemble
        for name in ensemble:
            cluster.bookies[name].corrupt(handle.ledger_id, 3)
        for name in ensemble[1:]:
            cluster.bookies[name].forget_entry(handle.ledger_id, 2)
        end = await cluster.client().give_up_end(handle.ledger_id)
        assert (end.last_entry_id, end.doubts) == (2, ())
        assert len({cluster.bookies[name].entry(handle.ledger_id, 2) for name in ensemble}) == 1

    run_cluster(main)


def test_end_is_never_before_the_last_fragment() -> None:
    """That is there since all before it was acknowledged: what can not be read of that is told to readers."""

    async def main(cluster: Cluster) -> None:
        handle, appends = await appending(cluster)
        await appends.append_and_wait(*payloads(0, 3))
        (first,) = handle.metadata.last_fragment.ensemble
        cluster.bookies[first].add_error = DiskIOError("broken")
        assert await appends.append_and_wait(*payloads(3, 2)) is None
        assert [fragment.first_entry_id for fragment in handle.metadata.fragments] == [0, 3]
        (second,) = handle.metadata.last_fragment.ensemble
        for name, entry_ids in [(first, [2]), (second, [3, 4])]:
            for entry_id in entry_ids:
                cluster.bookies[name].corrupt(handle.ledger_id, entry_id)
        client = cluster.client()
        end = await client.give_up_end(handle.ledger_id)
        assert (end.last_entry_id, end.newest_entry_id) == (2, 4)
        assert end.length_bytes == sum(map(len, payloads(0, 2)))
        reader = await client.open_ledger(handle.ledger_id)
        assert await reader.read_entries(0, 1) == payloads(0, 2)
        with pytest.raises(StorageError):
            await reader.read_entries(2, 2)

    run_cluster(main, bookies=2)


def test_writer_does_not_close_a_ledger_whose_end_is_looked_for() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await filled(cluster, *payloads(0, 3))
        cluster.bookies["b0"].corrupt(handle.ledger_id, 2)
        found = await cluster.client().give_up_end(handle.ledger_id, is_dry=True)
        assert (found.last_entry_id, found.newest_entry_id) == (1, 2)
        # Its writer has acknowledged the entry that is going to be given up.
        with pytest.raises(LedgerFencedError, match="IN_RECOVERY"):
            await handle.close()

    run_cluster(main, bookies=1)


def test_two_at_once_give_up_the_same() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await filled(cluster, *payloads(0, 3))
        cluster.bookies["b0"].corrupt(handle.ledger_id, 2)
        both = [cluster.client().give_up_end(handle.ledger_id) for _ in range(2)]
        ends = await asyncio.gather(*both, return_exceptions=True)
        told = {end.last_entry_id for end in ends if not isinstance(end, BaseException)}
        assert told == {1}
        assert all(isinstance(end, PreconditionFailedError) for end in ends if isinstance(end, BaseException))
        assert (await cluster.client().open_ledger(handle.ledger_id)).last_add_confirmed == 1

    run_cluster(main, bookies=1)
