"""What the ledger client relies on in every bookie (``bookkeeper.ports``): adds, reads, fencing, LAC, restarts."""

from __future__ import annotations

import asyncio

import pytest

from geminga.model.errors import LedgerFencedError, NoSuchEntryError, NoSuchLedgerError, StorageError
from geminga.model.ledger import LacResult
from support.bookies import BookieCase, Calls, entries_of, sized_entries


@pytest.fixture(params=["memory", "local"])
def case(request):
    return BookieCase(request.param)


def test_added_entries_are_read_whole_in_the_order_asked_for(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 5)
        assert await bookie.add(3, 0, entries) is None
        assert await bookie.read(3, 4, 0, 2) == [entries[4], entries[0], entries[2]]

    case.run(main)


def test_absence_of_ledger_and_entry_are_told_apart(case):
    async def main(bookie: Calls, restart):
        [error] = await bookie.read(3, 0)
        assert isinstance(error, NoSuchLedgerError)
        assert isinstance(await bookie.lac(3), NoSuchLedgerError)
        await bookie.add(3, 0, entries_of(3, 0, 2))
        there, absent = await bookie.read(3, 1, 2)
        assert isinstance(there, bytes)
        assert isinstance(absent, NoSuchEntryError)

    case.run(main)


def test_adding_again_is_fine_and_gaps_are_allowed(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 8)
        assert await bookie.add(3, 0, entries[:3]) is None
        assert await bookie.add(3, 1, entries[1:3]) is None
        assert await bookie.add(3, 6, entries[6:]) is None
        assert await bookie.add(3, 4, entries[4:5]) is None
        results = await bookie.read(3, *range(8))
        assert [i for i, result in enumerate(results) if isinstance(result, NoSuchEntryError)] == [3, 5]
        assert [result for result in results if isinstance(result, bytes)] == [entries[i] for i in (0, 1, 2, 4, 6, 7)]

    case.run(main)


def test_last_entry_is_the_largest_not_the_latest(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 8)
        await bookie.add(3, 5, entries[5:7])
        await bookie.add(3, 0, entries[:2])
        assert await bookie.lac(3) == LacResult(6, entries[6], -1)

    case.run(main)


def test_fenced_ledger_refuses_adds_but_those_of_recovery(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 3)
        await bookie.add(3, 0, entries[:1])
        assert await bookie.fence(3) is None
        assert await bookie.fence(3) is None
        assert isinstance(await bookie.add(3, 1, entries[1:]), LedgerFencedError)
        assert isinstance((await bookie.read(3, 1))[0], NoSuchEntryError)
        assert await bookie.add(3, 1, entries[1:], recovery=True) is None
        assert await bookie.read(3, 0, 1, 2) == entries
        assert await bookie.add(4, 0, entries_of(4, 0, 1)) is None

    case.run(main)


def test_fence_of_a_ledger_never_heard_of_holds(case):
    async def main(bookie: Calls, restart):
        assert await bookie.fence(3) is None
        assert await bookie.lac(3) == LacResult(-1, None, -1)
        assert isinstance(await bookie.add(3, 0, entries_of(3, 0, 1)), LedgerFencedError)

    case.run(main)


def test_add_that_was_answered_before_the_fence_is_seen_by_the_lac_after_it(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 2)
        adding = asyncio.gather(*(bookie.add(3, i, entries[i : i + 1]) for i in range(2)))
        fencing = asyncio.ensure_future(bookie.fence(3))
        results = await adding
        await fencing
        lac = await bookie.lac(3)
        assert isinstance(lac, LacResult)
        acknowledged = [i for i, error in enumerate(results) if error is None]
        assert lac.last_entry_id >= max(acknowledged, default=-1)

    case.run(main)


def test_wrong_master_key_is_refused_and_is_no_absence(case):
    async def main(bookie: Calls, restart):
        await bookie.add(3, 0, entries_of(3, 0, 1))
        error = await bookie.add(3, 1, entries_of(3, 1, 1), key=b"another")
        assert isinstance(error, StorageError)
        assert not isinstance(error, (NoSuchEntryError, NoSuchLedgerError))

    case.run(main)


def test_acknowledged_entries_and_fences_survive_a_power_loss(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 20)
        assert await bookie.add(3, 0, entries) is None
        assert await bookie.fence(3) is None
        assert await bookie.fence(9) is None
        again = await restart()
        assert await again.read(3, *range(20)) == entries
        assert await again.lac(3) == LacResult(19, entries[19], -1)
        for ledger_id in (3, 9):
            assert isinstance(await again.add(ledger_id, 20, entries_of(ledger_id, 20, 1)), LedgerFencedError)
        assert await again.add(3, 20, entries_of(3, 20, 1), recovery=True) is None

    case.run(main)


def test_many_ledgers_at_once_do_not_mix(case):
    async def main(bookie: Calls, restart):
        adds = (bookie.add(ledger_id, i, entries_of(ledger_id, i, 1)) for i in range(5) for ledger_id in range(20))
        assert set(await asyncio.gather(*adds)) == {None}
        for ledger_id in range(20):
            assert await bookie.read(ledger_id, *range(5)) == [entries_of(ledger_id, i, 1)[0] for i in range(5)]

    case.run(main)


def test_limit_of_bytes_gives_the_first_entries_that_fit_and_always_one(case):
    async def main(bookie: Calls, restart):
        entries = sized_entries(3, [10, 5000, 20, 30, 9000, 10])
        sizes = [len(entry) for entry in entries]
        await bookie.add(3, 0, entries)
        # From memory, from the disk, and from what the disk brought before.
        for again in (bookie, await restart(), None):
            bookie = again or bookie
            for first in range(6):
                for limit in (0, sizes[0], sum(sizes[:2]), sum(sizes[:4]) - 1, sum(sizes[:4]), 1 << 30):
                    count = 1
                    while first + count < 6 and sum(sizes[first : first + count + 1]) <= limit:
                        count += 1
                    results = await bookie.read(3, *range(first, 6), bytes_max=limit)
                    assert results == entries[first : first + len(results)]
                    assert 1 <= len(results) <= count
                    if limit >= 1 << 30:
                        assert len(results) == count
        there, absent, _ = await bookie.read(3, 5, 6, 7, bytes_max=sizes[5])
        assert there == entries[5]
        assert isinstance(absent, NoSuchEntryError)

    case.run(main)
