"""Closing a ledger, and a writer that was fenced: what waits is completed or fails, and at which entry it ends."""

from __future__ import annotations

import asyncio

import pytest

from geminga.metadata import WriteFault
from geminga.model.errors import (
    DiskIOError,
    LedgerClosedError,
    LedgerFencedError,
)
from support.worlds.ledgers import (
    Appends,
    Cluster,
    appending,
    appends_error,
    create,
    error_classes,
    filled,
    payloads,
    run_cluster,
    turn,
)


def test_close_ends_when_what_it_waits_for_fails():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster)
        bookie = cluster.bookies["b0"]
        bookie.holds_replies = True
        bookie.add_error = DiskIOError("broken")
        appends.append(b"x")
        closing = asyncio.ensure_future(handle.close())
        await turn()
        bookie.release()
        await closing
        assert error_classes(appends.done) == [DiskIOError]
        assert (handle.is_closed, handle.metadata.last_entry_id) == (True, -1)

    run_cluster(main, bookies=1)


def test_fenced_writer_loses_everything_pending():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client, (3, 3, 2))
        appends = Appends(handle)
        await appends.append_and_wait(*payloads(0, 3))
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == 2
        appends.append(b"a")
        appends.append(b"b")
        assert error_classes(await appends.has(3)) == [None, LedgerFencedError, LedgerFencedError]

    run_cluster(main)


def test_writer_that_closes_after_a_recovery_that_agrees_is_fine():
    async def main(cluster: Cluster):
        handle = await filled(cluster, *payloads(0, 3))
        await cluster.client().open_ledger(handle.ledger_id)
        await handle.close()
        assert handle.is_closed

    run_cluster(main)


def test_close_waits_for_what_is_pending():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        appends = Appends(handle)
        bookie = cluster.bookies[handle.metadata.last_fragment.ensemble[0]]
        bookie.holds_replies = True
        appends.append(*payloads(0, 2))
        closing = asyncio.ensure_future(handle.close())
        await turn()
        assert isinstance(await appends_error(handle), LedgerClosedError)
        assert not closing.done()
        bookie.release()
        await closing
        assert appends.done == [(0, 2, None)]
        assert (handle.metadata.last_entry_id, handle.metadata.length_bytes) == (1, 18)
        await handle.close()
        assert await handle.read_entries(0, 1) == payloads(0, 2)

    run_cluster(main)


def test_a_close_that_is_cut_off_leaves_the_others_waiting():
    async def main(cluster: Cluster):
        handle, appends = await appending(cluster)
        bookie = cluster.bookies[handle.metadata.last_fragment.ensemble[0]]
        bookie.holds_replies = True
        appends.append(*payloads(0, 2))
        first, second = (asyncio.ensure_future(handle.close()) for _ in range(2))
        await turn()
        first.cancel()
        await turn()
        again = asyncio.ensure_future(handle.close())
        await turn()
        assert (first.cancelled(), second.done(), again.done()) == (True, False, False)
        bookie.release()
        await second
        await again
        assert (handle.is_closed, handle.metadata.last_entry_id) == (True, 1)

    run_cluster(main)


def test_empty_ledger_closes_at_minus_one():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await handle.close()
        reader = await client.open_ledger(handle.ledger_id)
        assert (reader.last_add_confirmed, reader.length_bytes) == (-1, 0)

    run_cluster(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_close_with_an_unknown_outcome_is_settled(fault):
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await Appends(handle).append_and_wait(b"x")
        cluster.stores[0].faults.next_writes.append(fault)
        await handle.close()
        assert handle.metadata.last_entry_id == 0

    run_cluster(main)
