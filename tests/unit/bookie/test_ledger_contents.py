from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.bookie.ledger_contents import LAC_BYTES_MAX, joined_runs
from geminga.model.bookie_port import Availability, BookieInfo, LacResult
from geminga.model.errors import NoSuchLedgerError, StorageError, UnknownEntryError
from geminga.wire.bookkeeper.digest import DigestType, digest_for
from support.clusters.bookie_node import KEY, BookieNode, entries_of, run_bookie
from support.worlds.bookies import Calls

DIGEST = digest_for(DigestType.CRC32C, b"")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6))))
def test_joined_runs_are_the_same_numbers_without_two_that_touch(drawn):
    runs = sorted((range(start, start + count) for start, count in drawn), key=lambda run: (run.start, run.stop))
    joined = joined_runs(runs)
    assert [number for run in joined for number in run] == sorted({number for run in runs for number in run})
    assert all(before.stop < after.start for before, after in pairwise(joined))


def test_what_is_in_memory_and_what_was_flushed_is_listed_together():
    async def main(case: BookieNode) -> None:
        calls = Calls(case.bookie)
        await calls.add_each(1, (0, 2, 3), [b"a", b"b", b"c"], key=KEY)
        await case.bookie.flush()
        await calls.add_each(1, (1, 9), [b"d", b"e"], key=KEY)
        assert await calls.listed(1) == [range(4), range(9, 10)]
        await case.bookie.flush()
        assert await calls.listed(1) == [range(4), range(9, 10)]
        assert await case.read(1, 0, 1, 2, 3, 9) == [b"a", b"d", b"b", b"c", b"e"]

    run_bookie(main)


def test_limbo_has_no_list_that_could_be_trusted():
    async def main(case: BookieNode) -> None:
        await case.add(1, 0, entries_of(1, 0, 2))
        case.bookie.storage.states.limbo.add(1)
        case.bookie.storage.states.limbo.add(2)
        for ledger_id in (1, 2):
            assert isinstance(await Calls(case.bookie).listed(ledger_id), UnknownEntryError)
            assert isinstance(await case.lac(ledger_id), UnknownEntryError)
        assert isinstance(await Calls(case.bookie).listed(3), NoSuchLedgerError)
        for impossible in (-1, 1 << 64):
            assert isinstance(await Calls(case.bookie).listed(impossible), NoSuchLedgerError)
            assert isinstance(await case.fence(impossible), StorageError)

    run_bookie(main)


def test_announced_lacs_are_forgotten_with_their_ledgers():
    async def main(case: BookieNode) -> None:
        calls = Calls(case.bookie)
        for ledger_id in range(5):
            assert await calls.announce(ledger_id, DIGEST.encode_lac(ledger_id, 3), key=KEY) is None
        case.ledgers.live, case.ledgers.next_id = {4}, 5
        case.bookie.storage.states.delete(range(4))
        assert isinstance(await case.lac(1), NoSuchLedgerError)
        assert await calls.announce(4, DIGEST.encode_lac(4, 5), key=KEY) is None
        assert await case.lac(4) == LacResult(-1, None, DIGEST.encode_lac(4, 5))
        assert len(case.bookie._contents._announced) == 1
        assert isinstance(await calls.announce(1, DIGEST.encode_lac(1, 9), key=KEY), NoSuchLedgerError)

    run_bookie(main)


def test_announcement_that_is_too_long_is_refused():
    async def main(case: BookieNode) -> None:
        long = DIGEST.encode_lac(1, 1).ljust(LAC_BYTES_MAX + 1, b"\0")
        assert isinstance(await Calls(case.bookie).announce(1, long), StorageError)
        assert isinstance(await Calls(case.bookie).announce(1, DIGEST.encode_lac(1, 1), key=b"k" * 300), StorageError)
        assert isinstance(await case.lac(1), NoSuchLedgerError)

    run_bookie(main)


def test_room_of_the_ledger_directory_is_told_():
    async def main(case: BookieNode) -> None:
        case.disk.capacity_bytes = case.disk.used_bytes() + 1000
        info = await Calls(case.bookie).info()
        assert isinstance(info, BookieInfo)
        assert info.total_bytes == case.disk.capacity_bytes
        assert 0 < info.free_bytes <= 1000

    run_bookie(main)


def test_watchers_hear_of_a_full_disk_of_its_end_and_of_a_stop():
    async def main(case: BookieNode) -> None:
        heard: list[Availability] = []
        case.bookie.watch(heard.append)
        case.disk.capacity_bytes = int(case.disk.used_bytes() / 0.995)
        await case.world.sleep(1)
        assert (heard, case.bookie.availability) == ([Availability.READ_ONLY], Availability.READ_ONLY)
        case.disk.capacity_bytes = 1 << 30
        await case.world.sleep(1)
        assert heard == [Availability.READ_ONLY, Availability.WRITABLE]
        await case.bookie.close()
        assert heard == [Availability.READ_ONLY, Availability.WRITABLE, Availability.DOWN]

    run_bookie(main)


@pytest.mark.parametrize("lengths", [[1, 1, 1], [40, 0, 300]])
def test_striped_entries_are_found_after_a_restart_whatever_the_checkpoint_knew(lengths):
    async def main(case: BookieNode) -> None:
        calls = Calls(case.bookie)
        entries = {entry_id: b"%d" % entry_id * lengths[entry_id % 3] for entry_id in range(0, 200, 2)}
        await calls.add_each(1, list(entries)[:60], list(entries.values())[:60], key=KEY)
        await case.bookie.flush()
        await calls.add_each(1, list(entries)[50:], list(entries.values())[50:], key=KEY)
        await case.reopen()
        assert await case.read(1, *entries) == list(entries.values())
        assert await Calls(case.bookie).listed(1) == [range(entry_id, entry_id + 1) for entry_id in entries]

    run_bookie(main)
