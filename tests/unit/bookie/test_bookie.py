from __future__ import annotations

import asyncio
import errno

import pytest

from geminga.bookie import BookieConfig
from geminga.model.bookie_port import LacResult
from geminga.model.errors import DiskFullError, DiskIOError, LedgerFencedError
from geminga.runtime import next_turn
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie


def test_adds_beyond_the_write_cache_wait_and_are_all_stored():
    async def main(case: BookieNode) -> None:
        case.disk.slow("sync", "*.log", 0.5)
        adds = [case.start_add(1, i, entries_of(1, i, 1, size=900)) for i in range(100)]
        await case.world.sleep(0.2)
        assert sum(add.done() for add in adds) < 60
        assert set(await asyncio.gather(*adds)) == {None}
        assert case.bookie.storage.cache.filling_bytes < 2 * case.bookie.storage.cache.half_bytes_max
        assert await case.read(1, *range(100)) == [entries_of(1, i, 1, size=900)[0] for i in range(100)]

    run_bookie(main)


def test_f3_an_entry_is_in_the_write_cache_before_the_journal_and_its_receipt_comes_after() -> None:
    """Journal first would answer an add that no reader finds yet; cache alone would lose it."""

    async def main(case: BookieNode) -> None:
        case.disk.slow("sync", "*.journal", 1.0)
        entry = entries_of(1, 0, 1)[0]
        add = case.start_add(1, 0, [entry])
        await case.world.sleep(0.5)
        assert not add.done()
        assert await case.read(1, 0) == [entry]
        assert await add is None
        assert case.world.now >= 1.0

    run_bookie(main)


def test_waiting_adds_of_a_ledger_fenced_meanwhile_are_refused():
    async def main(case: BookieNode) -> None:
        case.disk.slow("sync", "*.log", 0.5)
        adds = [case.start_add(1, i, entries_of(1, i, 1, size=900)) for i in range(60)]
        assert await case.fence(1) is None
        results = await asyncio.gather(*adds)
        assert results[0] is None
        assert isinstance(results[-1], LedgerFencedError)
        acknowledged = [i for i, error in enumerate(results) if error is None]
        lac = await case.lac(1)
        assert isinstance(lac, LacResult)
        assert lac.last_entry_id == acknowledged[-1] == len(acknowledged) - 1

    run_bookie(main)


def test_lac_waits_for_a_fence_under_way():
    async def main(case: BookieNode) -> None:
        await case.add(1, 0, entries_of(1, 0, 2))
        case.disk.slow("sync", "*.journal", 1.0)
        begun = case.world.now
        fencing = asyncio.ensure_future(case.fence(1))
        await next_turn()
        assert await case.lac(1) == LacResult(1, entries_of(1, 1, 1)[0], None)
        assert case.world.now - begun >= 1.0
        assert await fencing is None

    run_bookie(main)


@pytest.mark.parametrize("path", ["*.log", "*.index.tmp", "*checkpoint.tmp"])
def test_flush_without_space_makes_the_bookie_read_only_until_space_returns(path):
    async def main(case: BookieNode) -> None:
        assert await case.add(1, 0, entries_of(1, 0, 5)) is None
        fault = case.disk.inject("write", path, error=errno.ENOSPC, times=None)
        with pytest.raises(DiskFullError):
            await case.bookie.flush()
        assert not case.bookie.is_writable
        assert isinstance(await case.add(1, 5, [b"refused"]), DiskFullError)
        assert isinstance(await case.add(2, 0, [b"refused"]), DiskFullError)
        assert await case.read(1, 4) == entries_of(1, 4, 1)
        await case.world.sleep(1)
        assert not case.bookie.is_writable
        fault.remove()
        await case.world.sleep(1)
        assert case.bookie.is_writable
        assert await case.add(1, 5, entries_of(1, 5, 1)) is None
        assert await case.add(2, 0, entries_of(2, 0, 1)) is None
        await case.reopen()
        assert await case.read(1, *range(6)) == entries_of(1, 0, 6)
        assert case.fatal == []

    run_bookie(main)


def test_journal_without_space_recovers_and_notes_its_ledgers_again():
    async def main(case: BookieNode) -> None:
        fault = case.disk.inject("write", "*.journal", error=errno.ENOSPC, times=None)
        assert isinstance(await case.add(1, 0, entries_of(1, 0, 1)), DiskFullError)
        assert isinstance(await case.fence(2), DiskFullError)
        await case.world.sleep(1)
        assert not case.bookie.is_writable
        fault.remove()
        await case.world.sleep(1)
        assert case.bookie.is_writable
        assert await case.add(1, 0, entries_of(1, 0, 1)) is None
        assert await case.fence(2) is None
        await case.node.runtime.disk.close()
        for timer in case.bookie._timers:
            timer.cancel()
        await case.open()
        assert await case.add(1, 1, entries_of(1, 1, 1)) is None
        assert await case.read(1, 0, 1) == entries_of(1, 0, 2)
        assert isinstance(await case.add(2, 0, [b"x"]), LedgerFencedError)

    run_bookie(main)


def test_disk_that_really_fills_up_refuses_and_keeps_everything():
    async def main(case: BookieNode) -> None:
        case.disk.capacity_bytes = case.disk.used_bytes() + 60_000
        stored = 0
        while (error := await case.add(1, stored, entries_of(1, stored, 1, size=500))) is None:
            stored += 1
        assert isinstance(error, DiskFullError)
        assert stored > 20
        assert await case.read(1, *range(stored)) == [entries_of(1, i, 1, size=500)[0] for i in range(stored)]
        case.disk.capacity_bytes = 1 << 30
        await case.world.sleep(1)
        assert await case.add(1, stored, entries_of(1, stored, 1, size=500)) is None
        await case.reopen()
        assert await case.read(1, *range(stored + 1)) == [entries_of(1, i, 1, size=500)[0] for i in range(stored + 1)]

    run_bookie(main)


def test_nearly_full_disk_is_read_only_before_writes_fail():
    async def main(case: BookieNode) -> None:
        case.disk.capacity_bytes = int(case.disk.used_bytes() / 0.995)
        await case.world.sleep(1)
        assert not case.bookie.is_writable
        case.disk.capacity_bytes = 1 << 30
        await case.world.sleep(1)
        assert case.bookie.is_writable

    run_bookie(main)


def test_failed_sync_of_an_entry_log_stops_the_bookie():
    async def main(case: BookieNode) -> None:
        await case.add(1, 0, entries_of(1, 0, 5))
        case.disk.inject("sync", "*.log", error=errno.EIO)
        with pytest.raises(DiskIOError):
            await case.bookie.flush()
        assert case.fatal == ["bookie flush"]
        await case.world.sleep(1)
        assert isinstance(await case.add(1, 5, [b"x"]), DiskIOError)
        assert await case.read(1, 0) == entries_of(1, 0, 1)

    run_bookie(main)


def test_timers_flush_and_collect_by_themselves():
    async def main(case: BookieNode) -> None:
        await case.reopen(flush_interval_ms=1000, gc_wait_time_ms=5000)
        await case.add(1, 0, entries_of(1, 0, 5))
        await case.add(2, 0, entries_of(2, 0, 5))
        await case.world.sleep(2)
        assert case.bookie.stats.flushes >= 2
        assert case.bookie.storage.index.find(1, 0) is not None
        case.ledgers.live = {1}
        await case.world.sleep(5)
        assert case.bookie.stats.deleted_ledgers == 1

    run_bookie(main)


def test_closed_bookie_refuses_and_close_twice_is_fine():
    async def main(case: BookieNode) -> None:
        await case.bookie.close()
        await case.bookie.close()
        assert isinstance(await case.add(1, 0, [b"x"]), DiskIOError)

    run_bookie(main)


def test_file_sizes_come_from_the_settings():
    config = BookieConfig(journal_max_size_mb=8.0, write_cache_max_size_mb=3.0)
    assert config.journal_file_size_bytes == 8 << 20
    assert config.write_cache_half_bytes == 3 << 19
    assert BookieConfig().journal_file_size_bytes == 16 << 20
    assert BookieConfig().journal_large_file_size_bytes == 64 << 20
    assert BookieConfig(journal_max_size_mb=20.0).journal_large_file_size_bytes == 20 << 20


def test_disk_that_is_behind_gets_more_at_a_time(monkeypatch):
    monkeypatch.setattr("geminga.bookie.ledger_storage.FLUSH_BYTES", 1000)

    async def main(case: BookieNode) -> None:
        case.disk.slow("sync", "*.log", 1.0)
        for i in range(12):
            assert await case.add(1, i, [b"x" * 400]) is None
        await case.world.sleep(5)
        # The first flush began with what was enough, the second one took all that came meanwhile.
        assert case.bookie.stats.flushes == 3  # one at the start
        assert case.bookie.stats.flushed_bytes >= 12 * 400

    run_bookie(main)


def test_half_turned_while_old_journals_are_deleted_is_flushed_too():
    async def main(case: BookieNode) -> None:
        case.disk.slow("unlink", "*.journal", 2.0)
        half = case.bookie.storage.cache.half_bytes_max
        entry = b"x" * (half // 4)
        await asyncio.gather(*[case.start_add(1, i, [entry]) for i in range(4)])
        # The first half is in the entry log; its flush is busy with the journals while the second one fills.
        await case.world.sleep(0.5)
        assert case.bookie.storage.cache.flushing is None
        later = [case.start_add(1, i, [entry]) for i in range(4, 16)]
        await case.world.sleep(10)
        assert [add.done() and add.result() for add in later] == [None] * 12
        assert case.bookie.storage.cache.flushing is None
        assert case.bookie.storage.index.last_entry_id(1) >= 7

    run_bookie(main)


def test_adds_on_a_full_disk_are_refused_at_once_although_both_halves_are_full():
    async def main(case: BookieNode) -> None:
        case.disk.inject("write", "*.log", error=errno.ENOSPC, times=None)
        half = case.bookie.storage.cache.half_bytes_max
        adds = [case.start_add(1, i, [b"x" * (half // 2)]) for i in range(6)]
        await case.world.sleep(0.05)
        assert all(add.done() for add in adds)
        assert not case.bookie.is_writable
        late = case.start_add(1, 6, [b"x"])
        await next_turn()
        assert late.done()
        assert isinstance(late.result(), DiskFullError)

    run_bookie(main)


def test_failed_sync_answers_the_adds_that_wait_for_room():
    async def main(case: BookieNode) -> None:
        case.disk.slow("sync", "*.log", 0.5)
        case.disk.inject("sync", "*.log", error=errno.EIO)
        half = case.bookie.storage.cache.half_bytes_max
        adds = [case.start_add(1, i, [b"x" * (half // 2)]) for i in range(6)]
        await case.world.sleep(5)
        assert case.fatal == ["bookie flush"]
        assert all(add.done() for add in adds)
        assert isinstance(adds[-1].result(), DiskIOError)

    run_bookie(main)


def test_fence_while_the_journal_is_closing_is_answered():
    async def main(case: BookieNode) -> None:
        await case.add(1, 0, entries_of(1, 0, 1))
        case.disk.slow("truncate", "*.journal", 1.0)
        closing = asyncio.ensure_future(case.bookie.close())
        await case.world.sleep(0.5)
        assert isinstance(await case.fence(1), DiskIOError)
        await closing

    run_bookie(main)


def test_who_does_not_know_the_key_does_not_fence():
    async def main(case: BookieNode) -> None:
        await case.add(1, 0, entries_of(1, 0, 1))
        fenced = asyncio.get_running_loop().create_future()
        case.bookie.fence(1, master_key=b"another", done=fenced.set_result)
        assert "another master key" in str(await fenced)
        assert await case.add(1, 1, entries_of(1, 1, 1)) is None

    run_bookie(main)
