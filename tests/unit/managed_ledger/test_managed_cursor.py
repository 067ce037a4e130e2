"""Cursors: reading, acknowledging, seeking."""

from __future__ import annotations

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import DiskIOError, LedgerClosedError
from geminga.model.position import EARLIEST, LATEST, Position
from support.ledger_world import acknowledge, acknowledge_cumulative, append, read_all, read_entries


def test_read_goes_over_ledgers_and_ends_empty(in_world):
    async def scenario(w):
        ml = await w.open()
        await w.fill(ml, 25)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert await read_all(cursor) == [b"m%d" % i for i in range(25)]
        assert not cursor.has_more_entries
        assert await read_entries(cursor) == []
        await w.fill(ml, 1, "n")
        assert cursor.has_more_entries
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
        cursor.read_entries(3, 1000, got.extend)
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
        ml = await w.open()
        positions = await w.fill(ml, 14)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert len(await read_entries(cursor, max_position=positions[3])) == 4
        assert await read_entries(cursor, max_position=positions[3]) == []
        assert len(await read_entries(cursor, max_position=positions[11])) == 6
        assert len(await read_entries(cursor, max_position=positions[11])) == 2

    in_world(scenario)


def test_read_leaves_out_what_is_acknowledged(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 25)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        cursor.acknowledge([p for i, p in enumerate(positions) if i % 3 == 0 or 9 < i < 20])
        expected = [b"m%d" % i for i in range(25) if i % 3 and not 9 < i < 20]
        assert await read_all(cursor) == expected
        cursor.rewind()
        assert await read_all(cursor) == expected

    in_world(scenario)


def test_read_during_a_seek_starts_anew(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 10)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        got = []
        cursor.read_entries(2, 1000, got.append)
        assert got == []
        await cursor.reset(positions[7])
        await w.world.sleep(0.1)
        assert [entry.data for entry in got[0]] == [b"m7", b"m8"]

    in_world(scenario)


def test_read_lets_the_caller_read_on_within_its_callback(in_world):
    async def scenario(w):
        ml = await w.open()
        await w.fill(ml, 300)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        got = []

        def done(entries):
            got.extend(entries)
            if entries:
                cursor.read_entries(1, 1000, done)

        done([None])
        await w.world.sleep(1)
        assert len(got) == 301

    in_world(scenario, ManagedLedgerConfig())


def test_catch_up_reads_ahead_within_the_budget(in_world):
    async def scenario(w):
        ml = await w.open()
        await w.fill(ml, 100)
        await w.factory.close()
        ml = await w.reopen()
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert len(await read_entries(cursor, max_entries=5)) == 5
        w.bookie.read_error = DiskIOError("no reads")
        assert len(await read_entries(cursor, max_entries=50)) == 50
        assert w.factory.cache.size_bytes > 0
        cursor.rewind()
        assert w.factory.cache.size_bytes == 0
        with pytest.raises(DiskIOError):
            await read_entries(cursor)

    in_world(scenario, ManagedLedgerConfig())


def test_acknowledge_moves_mark_delete_over_ledgers(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 25)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        assert await acknowledge(cursor, positions[1:23]) is None
        assert cursor.mark_delete_position == ml.previous_position(positions[0])
        assert cursor.backlog_count == 3
        assert await acknowledge(cursor, positions[:1]) is None
        assert cursor.mark_delete_position == positions[22]
        assert cursor.backlog_count == 2

    in_world(scenario)


def test_acknowledge_of_what_is_not_there_is_ignored(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 3)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        last = positions[-1]
        await acknowledge(cursor, [Position(last.ledger_id, 3), Position(last.ledger_id + 9, 0), Position(-1, -1)])
        assert cursor.backlog_count == 3
        await w.fill(ml, 1, "n")
        assert len(await read_all(cursor)) == 4
        await acknowledge_cumulative(cursor, LATEST)
        assert cursor.backlog_count == 0
        await w.fill(ml, 1, "o")
        assert cursor.backlog_count == 1

    in_world(scenario)


def test_acknowledge_of_batch_indexes_survives_a_kill(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 3)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        await acknowledge(cursor, positions[:2], [[0b0110], [0b1111]])
        await acknowledge(cursor, positions[:1], [[0b1100]])
        assert cursor.ack_set(positions[0]) == (0b0100,)
        again = (await w.reopen()).cursors["s"]
        assert again.ack_set(positions[0]) == (0b0100,)
        assert again.ack_set(positions[1]) == (0b1111,)
        assert again.ack_set(positions[2]) is None
        await acknowledge(again, positions[:1], [[0b1011]])
        assert again.mark_delete_position == positions[0]

    in_world(scenario)


def test_acknowledge_cumulative_with_an_ack_set_keeps_the_entry(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 13)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        await acknowledge_cumulative(cursor, positions[10], [0b1000], properties={"sequence": 7})
        assert cursor.mark_delete_position == positions[9]
        assert cursor.ack_set(positions[10]) == (0b1000,)
        again = (await w.reopen()).cursors["s"]
        assert (again.mark_delete_position, again.ack_set(positions[10])) == (positions[9], (0b1000,))
        assert again.properties == {"sequence": 7}

    in_world(scenario)


def test_acknowledge_on_a_closed_cursor_is_an_error(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 1)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        await cursor.close()
        assert isinstance(await acknowledge(cursor, positions), LedgerClosedError)
        with pytest.raises(LedgerClosedError):
            await read_entries(cursor)

    in_world(scenario)


@pytest.mark.parametrize(("target", "backlog"), [(EARLIEST, 25), (LATEST, 0), (7, 18), (10, 15)])
def test_reset_is_durable_and_forgets_holes(in_world, target, backlog):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 25)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        cursor.acknowledge(positions[5:15])
        await cursor.reset(positions[target] if isinstance(target, int) else target)
        for found in (cursor, (await w.reopen()).cursors["s"]):
            assert found.backlog_count == backlog
            assert len(await read_all(found)) == backlog

    in_world(scenario)


def test_skip_counts_only_what_is_not_acknowledged(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 15)
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        cursor.acknowledge(positions[1:5])
        await cursor.skip(2)
        assert cursor.mark_delete_position == positions[5]
        await cursor.clear_backlog()
        assert cursor.backlog_count == 0

    in_world(scenario)


def test_non_durable_cursor_is_answered_at_once_and_forgotten(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 5)
        cursor = ml.new_non_durable_cursor("reader", positions[2])
        assert not cursor.is_durable
        assert await read_all(cursor) == [b"m2", b"m3", b"m4"]
        assert await acknowledge(cursor, positions[2:4]) is None
        assert cursor.mark_delete_position == positions[3]
        await cursor.close()
        assert not ml.non_durable_cursors
        assert not (await w.reopen()).cursors

    in_world(scenario)
