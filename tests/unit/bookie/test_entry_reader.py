from __future__ import annotations

import asyncio
import errno

from geminga.bookie import entry_reader
from geminga.bookie.entry_reader import VIEW_BYTES_MIN
from geminga.model.errors import CorruptionError, DiskIOError, NoSuchEntryError
from geminga.wire.bookkeeper.digest import DigestType, digest_for
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie
from support.worlds.ledgers import turn


def test_consecutive_entries_come_with_few_reads():
    async def main(case: BookieNode) -> None:
        for ledger_id in (1, 2):
            for first in range(0, 100, 10):
                assert await case.add(ledger_id, first, entries_of(ledger_id, first, 10)) is None
            await case.bookie.flush()
        assert await case.read(1, *range(100)) == entries_of(1, 0, 100)
        assert case.bookie.stats.chunk_reads <= 2
        reads = case.bookie.stats.chunk_reads
        for i in range(100):
            assert await case.read(1, i) == entries_of(1, i, 1)
        assert case.bookie.stats.chunk_reads == reads

    run_bookie(main)


def test_large_entry_is_a_view_of_what_was_read_and_its_payload_the_only_copy():
    async def main(case: BookieNode) -> None:
        payload = bytes(range(256)) * (VIEW_BYTES_MIN // 256)
        for kind in DigestType:
            digest = digest_for(kind, b"password")
            ledger_id = 1 + int(kind)
            assert await case.add(ledger_id, 0, digest.encode(ledger_id, 0, -1, 0, [payload, b"small"])) is None
        await case.bookie.flush()
        for kind in DigestType:
            digest = digest_for(kind, b"password")
            large, small = await case.read(1 + int(kind), 0, 1)
            assert isinstance(large, memoryview)
            assert isinstance(small, bytes)
            found = digest.payload(1 + int(kind), 0, large)
            assert isinstance(found, bytes)
            assert found == payload
            damaged = bytearray(large)
            damaged[-1] ^= 1
            assert isinstance(digest.payload(1 + int(kind), 0, memoryview(damaged)), CorruptionError) == bool(
                digest.overhead_bytes > 32
            )

    run_bookie(main)


def test_cache_and_log_serve_one_call_together():
    async def main(case: BookieNode) -> None:
        await case.add_flushed(1, 0, 5)
        await case.add(1, 5, entries_of(1, 5, 2))
        results = await case.read(1, 6, 0, 7, 4)
        assert [results[0], results[1], results[3]] == [entries_of(1, i, 1)[0] for i in (6, 0, 4)]
        assert isinstance(results[2], NoSuchEntryError)

    run_bookie(main)


def test_damage_is_named_with_file_and_offset_and_never_served():
    async def main(case: BookieNode) -> None:
        await case.add_flushed(1, 0, 5)
        await case.add_flushed(2, 0, 5)
        row = case.bookie.storage.index.find(1, 0)
        assert row is not None
        [log] = case.files(".log")
        offset = row.location & ((1 << 40) - 1)
        case.flip(log, offset + row.size_bytes - 1)
        results = await case.read(1, 0, 4)
        assert all(isinstance(error, CorruptionError) for error in results)
        assert f"{log} at offset {offset}" in str(results[0])
        assert await case.read(2, 0) == entries_of(2, 0, 1)
        assert case.bookie.stats.damaged_chunks == 1

    run_bookie(main)


def test_read_error_is_not_absence_and_goes_away():
    async def main(case: BookieNode) -> None:
        await case.add_flushed(1, 0, 5)
        case.disk.inject("read", "*.log", error=errno.EIO)
        assert isinstance((await case.read(1, 0))[0], DiskIOError)
        case.disk.inject("open", "*.log", error=errno.EMFILE)
        assert await case.read(1, 0) == entries_of(1, 0, 1)

    run_bookie(main)


def test_cache_of_chunks_is_bounded():
    async def main(case: BookieNode) -> None:
        await case.reopen(read_cache_max_size_mb=0.002)
        for ledger_id in range(1, 9):
            await case.add(ledger_id, 0, entries_of(ledger_id, 0, 5, size=100))
        await case.bookie.flush()
        for ledger_id in range(1, 9):
            assert await case.read(ledger_id, 0) == entries_of(ledger_id, 0, 1, size=100)
        assert 0 < case.bookie.reader._chunk_bytes <= 0.002 * (1 << 20)

    run_bookie(main)


def test_entries_that_do_not_lie_together_are_all_read(monkeypatch):
    monkeypatch.setattr(entry_reader, "READ_MERGE_BYTES_MAX", 1)

    async def main(case: BookieNode) -> None:
        for first in (0, 10, 20):
            await case.add(1, first, entries_of(1, first, 10))
            await case.bookie.flush()
        await case.reopen()
        assert await case.read(1, *range(30)) == entries_of(1, 0, 30)

    run_bookie(main)


def test_a_large_chunk_takes_the_place_of_several_small_ones():
    async def main(case: BookieNode) -> None:
        await case.reopen(read_cache_max_size_mb=0.002)
        for ledger_id in range(1, 6):
            await case.add(ledger_id, 0, entries_of(ledger_id, 0, 1, size=20))
        await case.add(6, 0, entries_of(6, 0, 12, size=100))
        await case.bookie.flush()
        await case.reopen(read_cache_max_size_mb=0.002)
        for ledger_id in (1, 2, 3, 4, 5, 6):
            await case.read(ledger_id, 0)
        assert 0 < case.bookie.reader._chunk_bytes <= 0.002 * (1 << 20)

    run_bookie(main)


def test_chunk_that_two_reads_load_at_the_same_time_counts_once():
    async def main(case: BookieNode) -> None:
        await case.add(1, 0, entries_of(1, 0, 5, size=100))
        await case.bookie.flush()
        await case.read(1, 0)
        counted = case.bookie.reader._chunk_bytes
        await case.reopen()
        first = asyncio.ensure_future(case.read(1, 0))
        await turn(3)
        assert case.bookie.reader._chunk_bytes == 0, "the disk has not answered"
        assert await case.read(1, 1) == entries_of(1, 1, 1, size=100)
        assert await first == entries_of(1, 0, 1, size=100)
        assert case.bookie.reader._chunk_bytes == counted

    run_bookie(main)
