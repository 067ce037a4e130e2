from __future__ import annotations

import errno

import pytest

from geminga.bookie import ledger_storage
from geminga.bookie.limits import INDEX_RUNS_MAX
from geminga.model.errors import DiskFullError, InvariantError
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie


def test_mark_never_goes_back():
    async def main(case: BookieNode) -> None:
        await case.add_flushed(1, 0, 3)
        storage = case.bookie.storage
        with pytest.raises(InvariantError, match="the mark would go back"):
            await storage.write_checkpoint([], mark=(storage.checkpoint.mark_sequence - 1, 9))

    run_bookie(main)


def test_index_runs_are_merged_and_their_files_removed():
    async def main(case: BookieNode) -> None:
        for i in range(3 * INDEX_RUNS_MAX):
            await case.add(i % 3, i // 3, entries_of(i % 3, i // 3, 1))
            await case.bookie.flush()
        storage = case.bookie.storage
        assert len(storage.index.runs) <= INDEX_RUNS_MAX
        assert len(case.files(".index")) == len(storage.index.runs)
        assert case.bookie.stats.merges > 0
        await case.reopen()
        for ledger_id in range(3):
            assert await case.read(ledger_id, *range(8)) == entries_of(ledger_id, 0, 8)

    run_bookie(main)


def test_flush_whose_checkpoint_finds_no_room_leaves_no_index_run_behind():
    async def main(case: BookieNode) -> None:
        await case.add_flushed(1, 0, 3)
        await case.add(1, 3, entries_of(1, 3, 3))
        before = case.files(".index")
        fault = case.disk.inject("write", "*/checkpoint.tmp", error=errno.ENOSPC, times=None)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                await case.bookie.flush()
            assert case.files(".index") == before
        fault.remove()
        await case.bookie.flush()
        assert len(case.files(".index")) == len(case.bookie.storage.index.runs) == 2
        await case.reopen()
        assert await case.read(1, *range(6)) == entries_of(1, 0, 6)

    run_bookie(main)


def test_merge_whose_checkpoint_finds_no_room_leaves_no_index_run_behind():
    async def main(case: BookieNode) -> None:
        for i in range(INDEX_RUNS_MAX + 3):
            await case.add(1, i, entries_of(1, i, 1))
            if i >= INDEX_RUNS_MAX:
                # The flush has its checkpoint, the merge behind it has not.
                case.disk.inject("write", "*/checkpoint.tmp", error=errno.ENOSPC, after=1)
            await case.bookie.flush()
        runs = case.bookie.storage.index.runs
        assert len(case.files(".index")) == len(runs) == INDEX_RUNS_MAX + 3
        await case.reopen()
        assert await case.read(1, *range(9)) == entries_of(1, 0, 9)

    run_bookie(main)


def test_entries_of_one_flush_are_sorted_by_ledger_and_entry():
    async def main(case: BookieNode) -> None:
        for ledger_id in (5, 2, 9):
            await case.add(ledger_id, 1, entries_of(ledger_id, 1, 1))
            await case.add(ledger_id, 0, entries_of(ledger_id, 0, 1))
        await case.bookie.flush()
        index = case.bookie.storage.index
        rows = [index.find(ledger_id, 0) for ledger_id in (2, 5, 9)]
        locations = [row.location for row in rows if row is not None]
        assert len(locations) == 3
        assert locations == sorted(locations)
        assert [row.entry_count for row in rows if row is not None] == [2, 2, 2]

    run_bookie(main)


def test_a_ledger_of_several_chunks_is_written_whole(monkeypatch):
    monkeypatch.setattr(ledger_storage, "CHUNK_BYTES_MAX", 250)

    async def main(case: BookieNode) -> None:
        await case.add(1, 0, entries_of(1, 0, 9, size=100))
        await case.bookie.flush()
        await case.reopen()
        assert await case.read(1, *range(9)) == entries_of(1, 0, 9, size=100)

    run_bookie(main)


def test_logs_roll_at_their_size_limit():
    async def main(case: BookieNode) -> None:
        for first in range(0, 100, 10):
            await case.add(1, first, entries_of(1, first, 10, size=100))
            await case.bookie.flush()
        sizes = case.bookie.storage.logs.sizes
        assert len(sizes) >= 3
        assert all(size <= 4096 + 1200 for size in sizes.values())

    run_bookie(main)


def test_flush_of_nothing_writes_nothing():
    async def main(case: BookieNode) -> None:
        steps = case.disk.steps
        await case.bookie.flush()
        assert case.disk.steps == steps

    run_bookie(main)
