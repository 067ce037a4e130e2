from __future__ import annotations

import asyncio
import errno

import pytest

from geminga.bookie import garbage_collection
from geminga.bookie.questions import CLOSE_ASK_S
from geminga.model.errors import DiskFullError, DiskIOError, NoSuchLedgerError
from support.clusters.bookie_node import BookieNode, Ledgers, entries_of, run_bookie
from support.house.python_calls import counted_calls


def place_of_first_entry(case: BookieNode) -> tuple[str, int]:
    """The log that has entry 0 of ledger 1, and where it begins there."""
    row = case.bookie.storage.index.find(1, 0)
    assert row is not None
    return case.bookie.storage.logs.path(row.location >> 40), row.location & 0xFFFFFF


async def fill(case: BookieNode, ledger_ids: range) -> None:
    """Each ledger 1,000 bytes, a flush each: about four ledgers to a log."""
    for ledger_id in ledger_ids:
        assert await case.add(ledger_id, 0, entries_of(ledger_id, 0, 10, size=100)) is None
        await case.bookie.flush()


def test_unknown_live_ledgers_delete_nothing():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 9))
        result = await case.bookie.collect_garbage()
        assert result.deleted_ledgers == result.removed_logs == 0
        assert await case.read(1, 0) == entries_of(1, 0, 1, size=100)

    run_bookie(main)


def test_logs_of_deleted_ledgers_go_and_late_writers_fail():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 13))
        logs = len(case.files(".log"))
        case.ledgers.live = {11, 12}
        result = await case.bookie.collect_garbage(compact_below=0.0)
        assert result.deleted_ledgers == 10
        assert result.removed_logs == logs - len(case.files(".log")) > 0
        stats = case.bookie.stats
        assert stats.reclaimed_by_deletion_bytes > 1000 * result.removed_logs
        assert stats.reclaimed_by_compaction_bytes == 0
        for _ in range(2):
            assert isinstance((await case.read(1, 0))[0], NoSuchLedgerError)
            assert isinstance(await case.add(1, 10, [b"late"]), NoSuchLedgerError)
            assert isinstance(await case.fence(1), NoSuchLedgerError)
            assert await case.read(12, 9) == entries_of(12, 9, 1, size=100)
            await case.reopen()

    run_bookie(main)


def test_compaction_keeps_live_entries_and_frees_the_rest():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 21))
        case.ledgers.live = {1, 5, 10, 15, 20}
        used = case.disk.used_bytes()
        logs = sum(case.bookie.storage.logs.sizes.values())
        result = await case.bookie.collect_garbage(compact_below=0.9)
        assert result.compacted_logs >= 3
        assert result.copied_bytes > 0
        stats = case.bookie.stats
        given_back = stats.reclaimed_by_compaction_bytes + stats.reclaimed_by_deletion_bytes
        # But for the header of the log that takes what was moved.
        assert 8_000 < logs - sum(case.bookie.storage.logs.sizes.values()) <= given_back
        assert stats.reclaimed_by_compaction_bytes > 0
        assert case.disk.used_bytes() < used - 8_000
        for _ in range(2):
            for ledger_id in sorted(case.ledgers.live):
                assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)
            await case.reopen()

    run_bookie(main)


def test_reads_go_on_while_logs_are_compacted():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 21))
        case.ledgers.live = set(range(1, 21, 3))

        async def read_all() -> None:
            for _ in range(20):
                for ledger_id in range(1, 21, 3):
                    assert await case.read(ledger_id, 3) == entries_of(ledger_id, 3, 1, size=100)

        await asyncio.gather(read_all(), case.bookie.collect_garbage(compact_below=0.95), read_all())

    run_bookie(main)


def test_log_with_a_damaged_chunk_is_kept():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 9))
        case.ledgers.live = {1, 8}
        log, offset = place_of_first_entry(case)
        case.flip(log, offset + 50)
        result = await case.bookie.collect_garbage(compact_below=0.9)
        assert result.compacted_logs == 0
        assert log in case.disk.paths()
        tried = case.bookie.storage.logs.next_log_id
        assert (await case.bookie.collect_garbage(compact_below=0.9)).copied_bytes == 0
        assert case.bookie.storage.logs.next_log_id == tried, "copied again in vain"

    run_bookie(main)


def test_log_that_can_not_be_read_is_kept_and_the_others_are_compacted():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 21))
        case.ledgers.live = {1, 5, 10, 15, 20}
        log, _ = place_of_first_entry(case)
        case.disk.inject("read", log, times=None)
        result = await case.bookie.collect_garbage(compact_below=0.9)
        assert result.compacted_logs >= 2
        assert log in case.disk.paths()
        assert case.bookie.is_writable
        assert await case.add(20, 10, [b"next"]) is None
        for ledger_id in (5, 10, 15, 20):
            assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)

    run_bookie(main)


def test_log_that_could_not_be_read_for_a_moment_is_compacted_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(garbage_collection, "UNREAD_LOG_RETRY_S", 60.0)

    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 9))
        case.ledgers.live = {1, 8}
        log, _ = place_of_first_entry(case)
        fault = case.disk.inject("read", log, times=None)
        await case.bookie.collect_garbage(compact_below=0.9)
        fault.remove()
        await case.bookie.collect_garbage(compact_below=0.9)
        assert log in case.disk.paths(), "it is left alone for a while"
        await case.world.sleep(60)
        assert (await case.bookie.collect_garbage(compact_below=0.9)).compacted_logs == 1
        assert log not in case.disk.paths()
        assert await case.read(1, *range(10)) == entries_of(1, 0, 10, size=100)

    run_bookie(main)


def test_logs_that_nobody_needs_go_also_where_there_is_no_space_to_compact_others():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 21))
        case.ledgers.live = {1, 20}
        used = case.disk.used_bytes()
        case.disk.inject("write", "*.log", error=errno.ENOSPC, times=None)
        with pytest.raises(DiskFullError):
            await case.bookie.collect_garbage(compact_below=0.9)
        assert case.disk.used_bytes() < used - 8_000
        assert case.bookie.stats.removed_logs >= 2
        assert case.bookie.stats.reclaimed_by_deletion_bytes > 8_000
        for ledger_id in (1, 20):
            assert await case.read(ledger_id, 3) == entries_of(ledger_id, 3, 1, size=100)

    run_bookie(main)


def test_damaged_log_goes_when_nobody_needs_it_any_more():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 9))
        case.ledgers.live = {1, 8}
        log, offset = place_of_first_entry(case)
        case.flip(log, offset + 50)
        await case.bookie.collect_garbage(compact_below=0.9)
        assert log in case.disk.paths()
        case.ledgers.live = {8}
        result = await case.bookie.collect_garbage(compact_below=0.9)
        assert (result.deleted_ledgers, result.removed_logs) == (1, 1)
        assert log not in case.disk.paths()

    run_bookie(main)


def test_full_disk_stops_compaction_and_harms_nothing():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 9))
        case.ledgers.live = {1, 8}
        fault = case.disk.inject("write", "*.log", error=errno.ENOSPC, times=None)
        with pytest.raises(DiskFullError):
            await case.bookie.collect_garbage(compact_below=0.9)
        fault.remove()
        assert await case.read(1, 0) == entries_of(1, 0, 1, size=100)
        assert (await case.bookie.collect_garbage(compact_below=0.9)).compacted_logs > 0
        assert await case.read(1, 0) == entries_of(1, 0, 1, size=100)

    run_bookie(main)


def test_compaction_on_a_disk_that_is_nearly_full_goes_in_steps_that_find_space():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 61))
        # Of each log a quarter: all of it together is more than there is space for.
        case.ledgers.live = set(range(1, 61, 4))
        await case.bookie.collect_garbage(compact_below=0.0)
        logs = sum(case.bookie.storage.logs.sizes.values())
        case.disk.capacity_bytes = case.disk.used_bytes() + 12_000
        compacted = [(await case.bookie.collect_garbage(compact_below=0.5)).compacted_logs for _ in range(10)]
        assert compacted[1] > 0
        assert compacted[-1] == 0
        assert sum(case.bookie.storage.logs.sizes.values()) < logs / 2
        for ledger_id in sorted(case.ledgers.live):
            assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)

    run_bookie(main)


@pytest.mark.parametrize("part", ["*.index*", "*/checkpoint*"])
def test_compaction_that_finds_no_space_for_the_index_leaves_nothing_on_the_disk(part: str):
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 9))
        case.ledgers.live = {1, 8}
        await case.bookie.collect_garbage(compact_below=0.0)
        files, used = sorted(case.files("")), case.disk.used_bytes()
        fault = case.disk.inject("write", part, error=errno.ENOSPC, times=None)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                await case.bookie.collect_garbage(compact_below=0.9)
        fault.remove()
        assert sorted(case.files("")) == files
        assert case.disk.used_bytes() <= used
        assert (await case.bookie.collect_garbage(compact_below=0.9)).compacted_logs > 0
        for _ in range(2):
            assert await case.read(1, 0) == entries_of(1, 0, 1, size=100)
            await case.reopen()

    run_bookie(main)


def test_compaction_whose_checkpoint_is_in_place_and_perhaps_not_durable_leaves_what_that_names():
    async def main(case: BookieNode) -> None:
        await fill(case, range(1, 9))
        case.ledgers.live = {1, 8}
        await case.bookie.collect_garbage(compact_below=0.0)
        renames: list[str] = []

        def on_step(label: str) -> None:
            # The disk fails when the new checkpoint has its name: that it has is not known to be durable.
            if label == "rename /b/ledgers/checkpoint.tmp":
                case.disk.inject("sync_dir", "/b/ledgers", error=errno.EIO)
                renames.append(label)

        case.disk.on_step = on_step
        with pytest.raises(DiskIOError):
            await case.bookie.collect_garbage(compact_below=0.9)
        case.disk.on_step = None
        assert (len(renames), case.fatal) == (1, ["bookie garbage collection"])
        await case.bookie.close()
        await case.open()
        for ledger_id in (1, 8):
            assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)

    run_bookie(main)


def test_compaction_of_four_times_as_many_logs_is_no_sixteen_times_the_work():
    def calls_for(ledgers: int) -> int:
        calls = 0

        async def main(case: BookieNode) -> None:
            nonlocal calls
            await fill(case, range(ledgers))
            case.ledgers.live = set(range(0, ledgers, 2))
            with counted_calls() as counted:
                result = await case.bookie.collect_garbage(compact_below=0.9)
                calls = counted()
            assert result.compacted_logs >= ledgers // 5

        run_bookie(main)
        return calls

    assert calls_for(400) < 6 * calls_for(100)


def test_index_that_is_looked_through_in_several_turns_is_looked_through_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(garbage_collection, "GC_ROWS_PER_TURN", 10)

    async def main(case: BookieNode) -> None:
        await fill(case, range(100))
        case.ledgers.live = set(range(0, 100, 2))
        assert (await case.bookie.collect_garbage(compact_below=0.9)).compacted_logs > 10
        for ledger_id in case.ledgers.live:
            assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=100)
        await case.reopen()
        assert await case.read(98, 9) == entries_of(98, 9, 1, size=100)

    run_bookie(main)


class SilentLedgers(Ledgers):
    """Of a metadata store that is away: it is waited for as long as its session lives, here for ever."""

    is_silent = False

    async def live_ledger_ids(self) -> set[int] | None:
        if self.is_silent:
            await asyncio.get_running_loop().create_future()
        return await super().live_ledger_ids()


@pytest.mark.parametrize("is_collecting", [False, True])
def test_close_waits_for_no_metadata_store_that_is_away_and_what_it_has_is_flushed_before(is_collecting):
    async def main(case: BookieNode) -> None:
        case.ledgers = ledgers = SilentLedgers()
        bookie = await case.open()
        assert await case.add(1, 0, entries_of(1, 0, 10)) is None
        ledgers.is_silent = True
        collecting = asyncio.ensure_future(bookie.collect_garbage()) if is_collecting else None
        began_s = case.world.now
        closing = asyncio.ensure_future(bookie.close())
        await case.world.sleep(1)
        assert not bookie.storage.has_unflushed
        assert bookie.storage.checkpoint.mark_sequence == bookie.journal.sequence
        await asyncio.wait([closing], timeout=100)
        assert closing.done()
        assert case.world.now - began_s < 3 * CLOSE_ASK_S
        await closing
        if collecting is not None:
            assert (await collecting).deleted_ledgers == 0
        ledgers.is_silent = False
        await case.open()
        assert await case.read(1, *range(10)) == entries_of(1, 0, 10)

    run_bookie(main, is_open=False)
