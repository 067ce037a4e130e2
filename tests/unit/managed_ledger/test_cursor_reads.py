"""What a cursor reads, from where, and what it leaves out."""

from __future__ import annotations

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import DiskIOError
from geminga.model.position import EARLIEST
from support.worlds.ledger_world import append, read_all, read_entries


def test_read_goes_over_ledgers_and_ends_empty(in_world):
    async def scenario(w):
        ml, cursor, _ = await w.with_cursor(25)
        assert await read_all(cursor) == [b"m%d" % i for i in range(25)]
        assert not cursor.reading.has_more_entries
        assert await read_entries(cursor) == []
        await w.fill(ml, 1, "n")
        assert cursor.reading.has_more_entries
        assert await read_all(cursor) == [b"n0"]

    in_world(scenario)


def test_read_of_appended_entries_is_served_from_the_cache_within_the_call(in_world):
    async def scenario(w):
        ml = await w.open()
        cursor = await ml.open_cursor("s")
        assert await read_entries(cursor) == []
        await w.fill(ml, 5)
        w.bookie.read_error = DiskIOError("no reads")
        got = []
        cursor.reading.read_entries(3, 1000, got.extend)
        assert [entry.data for entry in got] == [b"m0", b"m1", b"m2"]
        # What was read by every active cursor is not kept.
        assert w.factory.cache.size_bytes == 4
        await w.world.sleep(3)
        assert w.factory.cache.size_bytes == 0
        with pytest.raises(DiskIOError):
            await read_entries(cursor)
        w.bookie.read_error = None
        assert await read_all(cursor) == [b"m3", b"m4"]

    in_world(scenario)


def test_read_stops_at_max_bytes_but_gives_one_entry(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, [bytes(100)] * 6)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert len(await read_entries(cursor, max_bytes=250)) == 2
        assert len(await read_entries(cursor, max_bytes=1)) == 1
        assert len(await read_entries(cursor, max_entries=2)) == 2
        assert len(await read_entries(cursor)) == 1

    in_world(scenario)


def test_read_stops_at_max_position(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(14)
        assert len(await read_entries(cursor, max_position=positions[3])) == 4
        assert await read_entries(cursor, max_position=positions[3]) == []
        assert len(await read_entries(cursor, max_position=positions[11])) == 6
        assert len(await read_entries(cursor, max_position=positions[11])) == 2

    in_world(scenario)


def test_read_leaves_out_what_is_acknowledged(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(25)
        cursor.acknowledge([p for i, p in enumerate(positions) if i % 3 == 0 or 9 < i < 20])
        expected = [b"m%d" % i for i in range(25) if i % 3 and not 9 < i < 20]
        assert await read_all(cursor) == expected
        cursor.reading.rewind()
        assert await read_all(cursor) == expected

    in_world(scenario)


def test_read_during_a_seek_starts_anew(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(10)
        got = []
        cursor.reading.read_entries(2, 1000, got.append)
        assert got == []
        await cursor.reset(positions[7])
        await w.world.sleep(0.1)
        assert [entry.data for entry in got[0]] == [b"m7", b"m8"]

    in_world(scenario)


def test_read_lets_the_caller_read_on_within_its_callback(in_world):
    async def scenario(w):
        _ml, cursor, _ = await w.with_cursor(300)
        got = []

        def done(entries):
            got.extend(entries)
            if entries:
                cursor.reading.read_entries(1, 1000, done)

        done([None])
        await w.world.sleep(1)
        assert len(got) == 301

    in_world(scenario, ManagedLedgerConfig())


def test_catch_up_reads_ahead_within_the_budget(in_world):
    async def scenario(w):
        ml, _ = await w.filled(100)
        await w.factory.close()
        ml = await w.reopen()
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert len(await read_entries(cursor, max_entries=5)) == 5
        w.bookie.read_error = DiskIOError("no reads")
        assert len(await read_entries(cursor, max_entries=50)) == 50
        assert w.factory.cache.size_bytes > 0
        cursor.reading.rewind()
        assert w.factory.cache.size_bytes == 0
        with pytest.raises(DiskIOError):
            await read_entries(cursor)

    in_world(scenario, ManagedLedgerConfig())
