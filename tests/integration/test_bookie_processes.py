"""Bookies as processes and a ledger client over the network: one is killed with kill -9 while a ledger is written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.core.addresses import parse_bookie_list
from geminga.bookkeeper.remote import ListedBookie, RemoteBookiePool
from geminga.metadata import MemoryMetadataStore
from geminga.runtime import Runtime, real_runtime
from support.house.real_runtimes import close_runtime
from support.processes.bookie_process import BookieProcess
from support.worlds.ledgers import Appends, payloads

pytestmark = pytest.mark.integration

#: Entries of an append, and appends before and after the kill.
BATCH = 5
BEFORE, AFTER = 60, 120
QUORUMS = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2}
TIMEOUT_S = 60


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[list[BookieProcess]]:
    """Three, and one more: a write quorum of two that lost a bookie needs another one."""
    processes = [BookieProcess(tmp_path / f"b{number}") for number in range(4)]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            if process.is_running:
                process.kill()


async def listed_pool(runtime: Runtime, bookies: list[BookieProcess]) -> RemoteBookiePool:
    pool = RemoteBookiePool(runtime)
    addresses = parse_bookie_list(",".join(process.bookie_id for process in bookies))
    pool.set_listed({bookie_id: ListedBookie(address) for bookie_id, address in addresses.items()})
    return pool


async def append_many(appends: Appends, first: int, count: int) -> None:
    """``count`` appends, half of them under way at a time."""
    for at in range(first, first + count):
        appends.append(*payloads(at * BATCH, BATCH))
        await appends.has(max(0, at - count // 2))


def test_writer_goes_on_when_a_bookie_is_killed_and_every_acknowledged_entry_is_read(
    bookies: list[BookieProcess],
) -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: os._exit(9))
        metadata = MemoryMetadataStore(runtime)
        pool = await listed_pool(runtime, bookies)
        client = BookKeeper(runtime, metadata, pool)
        handle = await client.create_ledger(**QUORUMS)
        appends = Appends(handle)
        await append_many(appends, 0, BEFORE)
        before = handle.metadata.fragments[-1].ensemble
        victim = next(process for process in bookies if process.bookie_id == before[1])
        appends.append(*payloads(BEFORE * BATCH, BATCH))
        victim.kill()
        await append_many(appends, BEFORE + 1, AFTER - 1)
        await appends.has(BEFORE + AFTER)
        assert [error for _, _, error in appends.done] == [None] * (BEFORE + AFTER)
        after = handle.metadata.fragments[-1]
        assert victim.bookie_id not in after.ensemble
        assert 0 < after.first_entry_id <= BEFORE * BATCH + BATCH
        assert victim.bookie_id not in pool.available()
        await all_there(handle)

        # Another client ends the ledger of a writer that never closed it, with the victim still away.
        other = BookKeeper(runtime, metadata, pool)
        await all_there(await other.open_ledger(handle.ledger_id))
        # Back again it is used again, with what it had.
        victim.start()
        while victim.bookie_id not in pool.available():
            await asyncio.wait_for(came(pool), TIMEOUT_S)
        for process in bookies:
            if process.bookie_id == before[0]:
                process.kill()
        await all_there(await other.open_ledger(handle.ledger_id))
        new = await other.create_ledger(**QUORUMS)
        assert victim.bookie_id in new.metadata.fragments[0].ensemble
        assert await Appends(new).append_and_wait(b"x") is None
        await pool.close()
        await close_runtime(runtime)

    async def bounded() -> None:
        await asyncio.wait_for(main(), 2 * TIMEOUT_S)

    asyncio.run(bounded())


async def came(pool: RemoteBookiePool) -> None:
    """Until a bookie of the pool comes or goes."""
    heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    pool.watch(lambda *_: None if heard.done() else heard.set_result(None))
    await heard


async def all_there(handle: LedgerHandle) -> None:
    """Every entry that was acknowledged is read, with the bytes that were written."""
    last = (BEFORE + AFTER) * BATCH - 1
    assert handle.last_add_confirmed == last
    found: list[bytes] = []
    while len(found) <= last:
        found += await handle.read_entries(len(found), last)
    assert found == payloads(0, last + 1)
