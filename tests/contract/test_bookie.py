"""What the ledger client relies on in every bookie (``model.bookie_port``): adds, reads, fencing, LAC, restarts."""

from __future__ import annotations

import asyncio

import pytest

from geminga.model.bookie_port import ID_MAX, BookieInfo, LacResult
from geminga.model.errors import (
    CorruptionError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    WrongMasterKeyError,
)
from geminga.wire.bookkeeper.digest import DigestType, digest_for, encode_entries
from support.worlds.bookies import BookieCase, Calls, entries_of, sized_entries


@pytest.fixture(params=["memory", "local", "spread", "remote", "old", "unix"])
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
        assert await bookie.lac(3) == LacResult(6, entries[6], None)

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
        assert await bookie.lac(3) == LacResult(-1, None, None)
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


def test_fence_that_tells_the_end_fences_and_tells_the_last_entry(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 2)
        await bookie.add(3, 0, entries)
        # The second one finds it fenced.
        for _ in range(2):
            assert await bookie.fence_and_lac(3) == LacResult(1, entries[1], None)
        assert isinstance(await bookie.add(3, 2, entries_of(3, 2, 1)), LedgerFencedError)
        assert await bookie.fence_and_lac(9) == LacResult(-1, None, None)
        assert isinstance(await bookie.add(9, 0, entries_of(9, 0, 1)), LedgerFencedError)
        assert isinstance(await bookie.fence_and_lac(3, key=b"another"), WrongMasterKeyError)
        again = await restart()
        for ledger_id in (3, 9):
            assert isinstance(await again.add(ledger_id, 2, entries_of(ledger_id, 2, 1)), LedgerFencedError)
        assert await again.fence_and_lac(3) == LacResult(1, entries[1], None)

    case.run(main)


def test_wrong_master_key_is_refused_and_is_no_absence(case):
    async def main(bookie: Calls, restart):
        await bookie.add(3, 0, entries_of(3, 0, 1))
        assert isinstance(await bookie.add(3, 1, entries_of(3, 1, 1), key=b"another"), WrongMasterKeyError)
        assert isinstance(await bookie.fence(3, key=b"another"), WrongMasterKeyError)

    case.run(main)


def test_acknowledged_entries_and_fences_survive_a_power_loss(case):
    async def main(bookie: Calls, restart):
        entries = entries_of(3, 0, 20)
        assert await bookie.add(3, 0, entries) is None
        assert await bookie.fence(3) is None
        assert await bookie.fence(9) is None
        again = await restart()
        assert await again.read(3, *range(20)) == entries
        assert await again.lac(3) == LacResult(19, entries[19], None)
        for ledger_id in (3, 9):
            assert isinstance(await again.add(ledger_id, 20, entries_of(ledger_id, 20, 1)), LedgerFencedError)
        assert await again.add(3, 20, entries_of(3, 20, 1), recovery=True) is None

    case.run(main)


def test_large_entries_are_those_that_were_added_wherever_they_are_read_from(case):
    async def main(bookie: Calls, restart):
        entries = [entry + bytes(40_000) for entry in entries_of(3, 0, 4)]
        assert await bookie.add(3, 0, entries) is None
        again = await restart()
        for _ in range(2):
            assert await again.read(3, 0, 1, 2, 3) == entries
            assert await again.lac(3) == LacResult(3, entries[3], None)

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


def entries_at(ledger_id: int, *entry_ids: int) -> list[bytes]:
    """Whole entries with these ids."""
    return [entries_of(ledger_id, entry_id, 1)[0] for entry_id in entry_ids]


def test_entries_with_gaps_and_in_any_order_are_answered_each_and_read_back(case):
    async def main(bookie: Calls, restart):
        # Every other entry, as where E > Qw; then the ones between, backwards; then some of both again.
        assert await bookie.add_each(3, (0, 2, 4, 6), entries_at(3, 0, 2, 4, 6)) == dict.fromkeys((0, 2, 4, 6))
        assert await bookie.listed(3) == [range(i, i + 1) for i in (0, 2, 4, 6)]
        assert await bookie.add_each(3, [5, 3], entries_at(3, 5, 3)) == {5: None, 3: None}
        assert await bookie.add_each(3, (6, 8, 0), entries_at(3, 6, 8, 0)) == dict.fromkeys((6, 8, 0))
        for again in (bookie, await restart()):
            there = (0, 2, 3, 4, 5, 6, 8)
            assert await again.read(3, *there) == entries_at(3, *there)
            absent = await again.read(3, 1, 7, 9)
            assert [type(error) for error in absent] == [NoSuchEntryError] * 3
            assert await again.listed(3) == [range(1), range(2, 7), range(8, 9)]
            lac = await again.lac(3)
            assert isinstance(lac, LacResult)
            assert lac.last_entry_id == 8

    case.run(main)


def test_entry_that_comes_again_with_other_bytes_is_answered_and_one_of_both_is_read(case):
    async def main(bookie: Calls, restart):
        first, other = entries_at(3, 5)[0], encode_entries(3, 5, 2, 99, [b"other"])[0]
        assert await bookie.add_each(3, (5,), [first]) == {5: None}
        assert await bookie.add_each(3, (5,), [other], recovery=True) == {5: None}
        assert await bookie.add_each(3, (7, 5, 7), [*entries_at(3, 7, 5), entries_at(3, 7)[0]]) == {7: None, 5: None}
        for again in (bookie, await restart()):
            [found] = await again.read(3, 5)
            assert found in (first, other)
            assert await again.read(3, 7) == entries_at(3, 7)

    case.run(main)


def test_fence_refuses_entries_with_gaps_as_it_refuses_others(case):
    async def main(bookie: Calls, restart):
        assert await bookie.add_each(3, (0, 3), entries_at(3, 0, 3)) == {0: None, 3: None}
        assert await bookie.fence(3) is None
        refused = await bookie.add_each(3, (1, 5), entries_at(3, 1, 5))
        assert {entry_id: type(error) for entry_id, error in refused.items()} == dict.fromkeys(
            (1, 5), LedgerFencedError
        )
        assert await bookie.listed(3) == [range(1), range(3, 4)]
        assert await bookie.add_each(3, (1, 5), entries_at(3, 1, 5), recovery=True) == {1: None, 5: None}
        assert await bookie.listed(3) == [range(2), range(3, 4), range(5, 6)]

    case.run(main)


@pytest.mark.parametrize(
    "entry_ids", [(-1,), range(-1, 1), (4, -7), (1 << 63,), range(1 << 63, (1 << 63) + 1), (), (1, 2)]
)
def test_ids_that_no_entry_can_have_are_refused_and_leave_no_trace(case, entry_ids):
    async def main(bookie: Calls, restart):
        entries = [b"x" * 40] * (1 if len(entry_ids) == 1 or entry_ids in ((), (1, 2)) else 2)
        if len(entry_ids) == len(entries):
            answers = await bookie.add_each(3, entry_ids, entries)
            assert [type(error) for error in answers.values()] == [StorageError] * len(entry_ids)
        else:
            refused = []
            bookie.bookie.add_entries(
                3, entry_ids, entries, master_key=b"", recovery=False, done=lambda _, error: refused.append(error)
            )
        assert isinstance(await bookie.lac(3), NoSuchLedgerError)
        assert isinstance(await bookie.listed(3), NoSuchLedgerError)

    case.run(main)


@pytest.mark.parametrize("ledger_id", [-1, -(1 << 63), 1 << 63, 1 << 80])
def test_ledgers_that_can_not_be_are_refused_by_every_call(case, ledger_id):
    async def main(bookie: Calls, restart):
        assert isinstance(await bookie.add(ledger_id, 0, [b"x" * 40]), StorageError)
        assert isinstance(await bookie.fence(ledger_id), StorageError)
        assert isinstance(await bookie.lac(ledger_id), StorageError)
        assert isinstance(await bookie.listed(ledger_id), StorageError)
        assert isinstance((await bookie.read(ledger_id, 0))[0], StorageError)
        assert await bookie.add(3, 0, entries_of(3, 0, 1)) is None

    case.run(main)


def test_greatest_ids_are_as_good_as_others(case):
    async def main(bookie: Calls, restart):
        top = ID_MAX
        entries = [encode_entries(top, i, -1, 0, [b"x"])[0] for i in (0, top - 1, top)]
        assert await bookie.add_each(top, (0, top - 1, top), entries) == dict.fromkeys((0, top - 1, top))
        for again in (bookie, await restart()):
            assert await again.read(top, 0, top - 1, top) == entries
            assert await again.listed(top) == [range(1), range(top - 1, top + 1)]
            assert await again.lac(top) == LacResult(top, entries[2], None)
            assert isinstance((await again.read(top, top - 2))[0], NoSuchEntryError)
            assert isinstance((await again.read(top, -5))[0], NoSuchEntryError)

    case.run(main)


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_announced_lac_is_kept_while_it_is_the_newest(case, digest_type):
    digest = digest_for(digest_type, b"secret")

    async def main(bookie: Calls, restart):
        await bookie.add(3, 0, entries_of(3, 0, 4))
        assert await bookie.announce(3, digest.encode_lac(3, 2)) is None
        assert await bookie.announce(3, digest.encode_lac(3, 1)) is None
        lac = await bookie.lac(3)
        assert isinstance(lac, LacResult)
        assert lac.explicit_lac is not None
        assert digest.announced_lac(3, lac.explicit_lac) == 2
        assert isinstance(digest.announced_lac(4, lac.explicit_lac), CorruptionError)
        assert (await restart()) is not None

    case.run(main)


def test_announced_lac_of_a_ledger_without_entries_a_fenced_one_and_a_strange_one(case):
    digest = digest_for(DigestType.CRC32C, b"")

    async def main(bookie: Calls, restart):
        assert await bookie.announce(5, digest.encode_lac(5, 7)) is None
        assert await bookie.lac(5) == LacResult(-1, None, digest.encode_lac(5, 7))
        await bookie.fence(5)
        assert await bookie.announce(5, digest.encode_lac(5, 8)) is None
        assert await bookie.lac(5) == LacResult(-1, None, digest.encode_lac(5, 8))
        for strange in (b"", b"x" * 15, digest.encode_lac(6, 9), digest.encode_lac(5, -2)):
            assert isinstance(await bookie.announce(5, strange), StorageError)
        assert isinstance(await bookie.announce(5, digest.encode_lac(5, 9), key=b"another"), StorageError)
        assert await bookie.lac(5) == LacResult(-1, None, digest.encode_lac(5, 8))

    case.run(main)


def test_list_of_entries_is_whole_over_memory_and_disk(case):
    async def main(bookie: Calls, restart):
        assert isinstance(await bookie.listed(3), NoSuchLedgerError)
        await bookie.add(3, 10, entries_of(3, 10, 5))
        again = await restart()
        await again.add(3, 13, entries_of(3, 13, 4))
        await again.add_each(3, (0, 20), entries_at(3, 0, 20))
        assert await again.listed(3) == [range(1), range(10, 17), range(20, 21)]
        await again.fence(9)
        assert await again.listed(9) == []

    case.run(main)


def test_room_is_told(case):
    async def main(bookie: Calls, restart):
        info = await bookie.info()
        assert isinstance(info, BookieInfo)
        assert 0 < info.free_bytes <= info.total_bytes
        if info.added_bytes is None:
            return  # it does not tell what was written, as other makes do not
        entries = entries_of(1, 0, 3)
        await bookie.add(1, 0, entries)
        more = await bookie.info()
        assert isinstance(more, BookieInfo)
        assert more.added_bytes == info.added_bytes + sum(map(len, entries))

    case.run(main)


@pytest.fixture(params=["memory", "local"])
def near(request):
    """Bookies that can be asked to take a deleted ledger again: BookKeeper's protocol has no such call."""
    return BookieCase(request.param)


def test_deleted_ledger_takes_nothing_until_it_is_readmitted_and_is_empty_and_fenced_then(near):
    async def main(bookie: Calls, restart):
        near.listed.live = {3, 4}
        entries = entries_of(3, 0, 6)
        assert await bookie.add(3, 0, entries) is None
        assert await bookie.add(4, 0, entries_of(4, 0, 2)) is None
        near.listed.live = {4}
        await near.collect()
        assert isinstance(await bookie.add(3, 0, entries[:1], recovery=True), NoSuchLedgerError)
        assert isinstance(await bookie.fence(3), NoSuchLedgerError)
        refused = await bookie.readmit(3)
        assert isinstance(refused, StorageError)
        assert not isinstance(refused, NoSuchLedgerError | LedgerFencedError)
        assert isinstance(await bookie.add(3, 0, entries[:1], recovery=True), NoSuchLedgerError), "nothing changed"
        near.listed.live = {3, 4}
        assert isinstance(await bookie.fence(3), NoSuchLedgerError), "listed again is not enough"
        assert await bookie.readmit(3) is None
        for _ in range(2):
            assert await bookie.lac(3) == LacResult(-1, None, None)
            assert await bookie.listed(3) == []
            assert all(isinstance(one, NoSuchEntryError) for one in await bookie.read(3, 0, 5))
            assert isinstance(await bookie.add(3, 0, entries[:1]), LedgerFencedError)
            bookie = await restart()
        assert await bookie.add(3, 0, entries[:3], recovery=True) is None
        assert await bookie.readmit(3) is None, "again: no entry goes"
        bookie = await restart()
        assert await bookie.read(3, 0, 1, 2) == entries[:3]
        assert await bookie.listed(3) == [range(3)]
        assert await bookie.listed(4) == [range(2)]
        near.listed.live = {4}
        await near.collect()
        assert isinstance(await bookie.add(3, 0, entries[:1], recovery=True), NoSuchLedgerError), "deleted once more"

    near.run(main)


def test_readmission_of_a_ledger_that_is_not_deleted_fences_it_and_another_key_is_refused(case):
    async def main(bookie: Calls, restart):
        case.listed.live = {3, 5}
        entries = entries_of(3, 0, 2)
        await bookie.add(3, 0, entries)
        assert isinstance(await bookie.readmit(3, key=b"another"), StorageError)
        assert await bookie.readmit(3) is None
        assert await bookie.readmit(5) is None
        assert await bookie.read(3, 0, 1) == entries
        for ledger_id in (3, 5):
            assert isinstance(await bookie.add(ledger_id, 2, entries_of(ledger_id, 2, 1)), LedgerFencedError)
        assert isinstance(await bookie.readmit(-1), StorageError)
        assert isinstance(await bookie.readmit(ID_MAX + 1), StorageError)

    case.run(main)
