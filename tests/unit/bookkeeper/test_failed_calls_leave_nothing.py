"""What a failed call held is gone with its error: no cycle of traceback, frame and future waits for the collector."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper.ledger_ids import LedgerIds
from geminga.model.errors import DiskIOError, NoSuchEntryError, SessionExpiredError, StorageError
from geminga.runtime import answer_of, next_turn
from support.house.uncollected import uncollected
from support.worlds.ledgers import Cluster, create, filled, payloads, run_cluster, turn


async def opening(cluster: Cluster, ledger_id: int) -> None:
    with pytest.raises(StorageError):
        await cluster.client().open_ledger(ledger_id)


@pytest.mark.parametrize("bookies_away", ["no-lac", "no-entry"])
def test_recovery_that_can_not_tell_the_end_leaves_nothing(bookies_away) -> None:
    async def main(cluster: Cluster) -> None:
        handle = await filled(cluster, *payloads(0, 7), quorums=(3, 3, 2))
        await turn()
        for name in ("b0", "b1"):
            bookie = cluster.bookies[name]
            bookie.read_error = DiskIOError("eio")
            if bookies_away == "no-lac":
                bookie.fence_error = DiskIOError("eio")
        await opening(cluster, handle.ledger_id)
        with uncollected() as found:
            for _ in range(3):
                await opening(cluster, handle.ledger_id)
            await turn()
        assert found == []

    run_cluster(main)


def test_failed_ids_and_reads_leave_nothing() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await filled(cluster, *payloads(0, 2), quorums=(3, 3, 2))
        ids, store = LedgerIds(cluster.store()), cluster.stores[-1]
        await ids.next_id()
        store.expire_session(outage_ms=50)

        async def asked() -> None:
            with pytest.raises(SessionExpiredError):
                await ids.next_id()

        async def read() -> None:
            with pytest.raises(NoSuchEntryError):
                await handle.read_entries(5, 7)

        with uncollected() as found:
            await asyncio.gather(*(asked() for _ in range(5)))
            await asyncio.gather(*(read() for _ in range(5)))
            await next_turn()
        assert found == []

    run_cluster(main)


def depth(error: BaseException) -> int:
    found, entry = 0, error.__traceback__
    while entry is not None:
        found, entry = found + 1, entry.tb_next
    return found


def test_error_of_a_dead_handle_does_not_grow_by_who_is_told_of_it() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await create(cluster.client(), (3, 3, 2))
        await cluster.client().open_ledger(handle.ledger_id)
        depths = []
        for _ in range(5):
            with pytest.raises(StorageError) as raised:
                await answer_of(lambda done: handle.append([b"x"], lambda _first, _count, error: done(error)))
            depths.append(depth(raised.value))
        assert len(set(depths[1:])) == 1, depths

    run_cluster(main)
