"""Appending and reading a ledger: order, quorums, last add confirmed, damaged replicas."""

from __future__ import annotations

import asyncio

import pytest

from geminga.model.errors import (
    CorruptionError,
    DiskIOError,
    InvariantError,
    LedgerClosedError,
    NoSuchEntryError,
)
from geminga.wire.bookkeeper.digest import read_header
from support.worlds.ledgers import (
    Appends,
    Cluster,
    appending,
    appends_error,
    create,
    filled,
    payloads,
    run_cluster,
    turn,
)

QUORUMS = [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (3, 2, 1), (3, 3, 3)]


@pytest.mark.parametrize("quorums", QUORUMS)
def test_appended_entries_are_completed_in_order_and_read_back(quorums):
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, quorums)
        assert handle.last_add_confirmed == -1
        assert [appends.append(*payloads(0, 3)), appends.append(*payloads(3, 1)), appends.append(*payloads(4, 6))] == [
            0,
            3,
            4,
        ]
        assert handle.last_add_pushed == 9
        assert await appends.has(3) == [(0, 3, None), (3, 1, None), (4, 6, None)]
        assert handle.last_add_confirmed == 9
        assert await handle.read_entries(0, 9) == payloads(0, 10)
        assert await handle.read_entries(4, 4) == payloads(4, 1)
        assert handle.length_bytes == sum(map(len, payloads(0, 10)))

    run_cluster(main)


@pytest.mark.parametrize("quorums", QUORUMS)
def test_each_entry_lies_on_its_write_set_only(quorums):
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 12), quorums=quorums)
        ensemble = handle.metadata.last_fragment.ensemble
        await turn()
        for entry_id in range(12):
            holders = {name for name, b in cluster.bookies.items() if b.entry(handle.ledger_id, entry_id) is not None}
            assert holders == {ensemble[(entry_id + i) % quorums[0]] for i in range(quorums[1])}

    run_cluster(main)


@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 3, 2)])
def test_nothing_past_the_last_add_confirmed_is_readable(quorums):
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, quorums)
        await appends.append_and_wait(*payloads(0, 2))
        for bookie in cluster.bookies.values():
            bookie.holds_replies = True
        appends.append(*payloads(2, 1))
        for first, last in ((2, 2), (0, 2), (-1, 0), (1, 0)):
            with pytest.raises(NoSuchEntryError):
                await handle.read_entries(first, last)
        for bookie in cluster.bookies.values():
            bookie.release()
        await appends.has(2)
        assert await handle.read_entries(2, 2) == payloads(2, 1)

    run_cluster(main)


def test_header_carries_the_last_add_confirmed_and_the_length():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster)
        await appends.append_and_wait(b"12345", b"678")
        await appends.append_and_wait(b"9")
        [bookie] = [b for b in cluster.bookies.values() if b.ledger_ids()]
        headers = [read_header(bookie.entry(handle.ledger_id, entry_id)) for entry_id in range(3)]
        assert [tuple(header)[1:] for header in headers] == [(0, -1, 5), (1, -1, 8), (2, 1, 9)]

    run_cluster(main)


def test_completion_waits_for_the_ack_quorum():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster, (3, 3, 2))
        slow = [cluster.bookies[name] for name in handle.metadata.last_fragment.ensemble[:2]]
        for bookie in slow:
            bookie.holds_replies = True
        appends.append(b"x")
        await turn(2)
        assert appends.done == []
        slow[0].release()
        assert appends.done == [(0, 1, None)]
        slow[1].release()
        assert appends.done == [(0, 1, None)]

    run_cluster(main)


def test_bookies_that_answer_within_the_call_are_fine():
    async def main(cluster: Cluster):
        for bookie in cluster.bookies.values():
            bookie._replies_at_once = True
        for quorums in QUORUMS:
            _, appends = await appending(cluster, quorums)
            appends.append(*payloads(0, 4))
            assert appends.done == [(0, 4, None)]

    run_cluster(main)


def test_done_that_appends_again_keeps_the_order():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        order = []
        finished = asyncio.get_running_loop().create_future()

        def done(first, count, error):
            order.append(first)
            if len(order) < 50:
                handle.append([b"x"], done)
            elif not finished.done():
                finished.set_result(None)

        handle.append([b"x"], done)
        handle.append([b"x"], done)
        await finished
        assert order == sorted(order)

    run_cluster(main)


def test_append_without_entries_is_a_bug_of_the_caller():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        with pytest.raises(InvariantError):
            Appends(handle).append()

    run_cluster(main)


def test_damaged_copy_is_not_served_and_the_next_replica_is_read():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 4), quorums=(3, 3, 2))
        await turn()
        for name, entry_id in zip(sorted(cluster.bookies), range(3), strict=True):
            cluster.bookies[name].corrupt(handle.ledger_id, entry_id)
        cluster.bookies["b0"].read_error = DiskIOError("unreadable")
        assert await handle.read_entries(0, 3) == payloads(0, 4)
        cluster.bookies["b0"].corrupt(handle.ledger_id, 1)
        cluster.bookies["b2"].corrupt(handle.ledger_id, 1)
        with pytest.raises(CorruptionError):
            await handle.read_entries(0, 3)

    run_cluster(main)


def test_striped_reads_ask_the_other_replica():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 9), quorums=(3, 2, 2))
        cluster.bookies["b1"].read_error = DiskIOError("unreadable")
        assert await handle.read_entries(0, 8) == payloads(0, 9)
        cluster.bookies["b2"].read_error = DiskIOError("unreadable")
        with pytest.raises(DiskIOError):
            await handle.read_entries(0, 8)

    run_cluster(main)


def test_damage_on_the_only_bookie_is_an_error():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 2))
        cluster.bookies["b0"].corrupt(handle.ledger_id, 1)
        with pytest.raises(CorruptionError, match="entry 1"):
            await handle.read_entries(0, 1)
        assert await handle.read_entries(0, 0) == payloads(0, 1)

    run_cluster(main, bookies=1)


def test_reader_can_not_append():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await handle.close()
        reader = await client.open_ledger(handle.ledger_id)
        assert isinstance(await appends_error(reader), LedgerClosedError)

    run_cluster(main)


@pytest.mark.parametrize("quorums", [(1, 1, 1), (2, 2, 2)])
def test_batch_is_confirmed_when_every_entry_of_it_is_answered(quorums):
    async def main(cluster: Cluster):
        size, write, ack = quorums
        client = cluster.client()
        handle = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        appends = Appends(handle)
        bookies = [cluster.bookies[name] for name in handle.metadata.last_fragment.ensemble]
        for bookie in bookies:
            bookie.answers_in_groups_of = 2
            bookie.holds_replies = True
        appends.append(*payloads(0, 5))
        for _ in range(2):  # of three groups
            for bookie in bookies:
                bookie._held.pop(0)()
            assert (appends.done, handle.last_add_confirmed) == ([], -1)
        for bookie in bookies:
            bookie.release()
        assert (appends.done, handle.last_add_confirmed) == ([(0, 5, None)], 4)

    run_cluster(main, bookies=2)
