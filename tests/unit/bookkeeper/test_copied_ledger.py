"""Ledgers that are copied while their writers go on: nothing acknowledged lies behind the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.bookkeeper import BookKeeper, BookKeeperConfig, LedgerHandle
from geminga.model.errors import DiskIOError, NoSuchLedgerError, UnknownEntryError
from support.worlds.ledgers import Appends, Cluster, payloads, run_cluster, turn


async def create(client: BookKeeper, write: int = 3, ack: int = 2) -> LedgerHandle:
    return await client.create_ledger(ensemble_size=3, write_quorum=write, ack_quorum=ack)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("write", [2, 3])
def test_end_is_the_last_that_was_acknowledged_and_the_writer_goes_on(batch_size: int, write: int) -> None:
    async def main(cluster: Cluster) -> None:
        handle = await create(cluster.client(), write)
        appends = Appends(handle)
        client = cluster.client(config=BookKeeperConfig(recovery_read_batch_size=batch_size))
        assert (await client.copied_ledger(handle.ledger_id)).last_add_confirmed == -1
        assert await appends.append_and_wait(*payloads(0, 7)) is None
        # No later entry says that these are confirmed: their own headers and the bookies are all there is.
        copied = await client.copied_ledger(handle.ledger_id)
        assert (copied.last_add_confirmed, copied.is_closed) == (6, False)
        assert await copied.read_entries(0, 6) == payloads(0, 7)
        assert await appends.append_and_wait(*payloads(7, 1)) is None, "nothing was fenced"
        await handle.close()
        assert (await client.copied_ledger(handle.ledger_id)).last_add_confirmed == 7

    run_cluster(main)


def test_one_bookie_may_be_away_and_two_may_not() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await create(cluster.client())
        assert await Appends(handle).append_and_wait(*payloads(0, 5)) is None
        await turn()
        first, second, _ = handle.metadata.last_fragment.ensemble
        for name in (first, second):
            for switch in ("read_error", "fence_error"):
                setattr(cluster.bookies[name], switch, DiskIOError("away"))
            if name == first:
                assert (await cluster.client().copied_ledger(handle.ledger_id)).last_add_confirmed == 4
        with pytest.raises(UnknownEntryError):
            await cluster.client().copied_ledger(handle.ledger_id)

    run_cluster(main)


def test_ledger_that_changes_its_bookies_while_it_is_looked_at_is_looked_at_again() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await create(cluster.client())
        appends = Appends(handle)
        assert await appends.append_and_wait(*payloads(0, 3)) is None
        client = cluster.client()
        ledgers = client._env.ledgers
        client._env.ledgers = Late(ledgers.read, lambda: break_and_go_on(cluster, handle, appends))
        copied = await client.copied_ledger(handle.ledger_id)
        # What was acknowledged before the last look is there, though it lies on other bookies than were asked first.
        assert copied.last_add_confirmed == 4
        assert len(copied.metadata.fragments) == 2

    run_cluster(main, bookies=5)


class Late:
    """Reads of a ledger's metadata, before the second of which something happens."""

    def __init__(self, read: Callable[[int], Awaitable[object]], happen: Callable[[], Awaitable[None]]) -> None:
        self._read = read
        self._happen = happen
        self._reads = 0

    async def read(self, ledger_id: int) -> object:
        self._reads += 1
        if self._reads == 2:
            await self._happen()
        return await self._read(ledger_id)


async def break_and_go_on(cluster: Cluster, handle: LedgerHandle, appends: Appends) -> None:
    for name in handle.metadata.last_fragment.ensemble[:2]:
        cluster.bookies[name].add_error = DiskIOError("broken")
    assert await appends.append_and_wait(*payloads(3, 2)) is None


def test_ledger_that_is_gone_is_no_such_ledger() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        with pytest.raises(NoSuchLedgerError):
            await client.copied_ledger(4711)

    run_cluster(main)
