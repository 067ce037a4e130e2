"""Readers stop at the ledger's read limit, and everything about reading takes the log as if it ended there."""

from __future__ import annotations

from geminga.model.position import EARLIEST, LATEST, Position
from support.worlds.ledger_world import acknowledge, acknowledge_cumulative, read_all, read_entries


def test_cursor_stops_at_the_read_limit_and_goes_on_when_it_moves(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 25)
        ml.set_read_limit(positions[13])
        assert (ml.extent.readable_position, ml.extent.last_confirmed_position) == (positions[13], positions[24])
        assert await read_all(cursor) == [b"m%d" % i for i in range(14)]
        assert not cursor.reading.has_more_entries
        assert cursor.backlog_count == 14
        ml.set_read_limit(positions[14])
        assert cursor.reading.has_more_entries
        assert await read_all(cursor) == [b"m14"]
        ml.set_read_limit(LATEST)
        assert await read_all(cursor) == [b"m%d" % i for i in range(15, 25)]
        assert cursor.backlog_count == 25

    in_world(scenario)


def test_readable_is_told_and_not_the_append(in_world):
    async def scenario(w):
        ml = await w.open()
        (first,) = await w.fill(ml, 1)
        told = []
        ml.tail.add_listener(lambda: told.append(ml.extent.readable_position))
        ml.set_read_limit(first)
        (second,) = await w.fill(ml, 1)
        await w.world.sleep(0.01)
        assert told == []
        ml.set_read_limit(Position(second.ledger_id, second.entry_id + 1))
        await w.world.sleep(0.01)
        assert told == [second]
        # The limit is ahead of the log, which grows up to it and past it.
        (third, fourth) = await w.fill(ml, 2)
        await w.world.sleep(0.01)
        assert told == [second, third]
        assert ml.extent.readable_position == third
        ml.set_read_limit(LATEST)
        await w.world.sleep(0.01)
        assert told == [second, third, fourth]

    in_world(scenario)


def test_what_is_not_readable_can_not_be_acknowledged(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 25)
        ml.set_read_limit(positions[13])
        await acknowledge(cursor, [positions[2], positions[14], positions[24]])
        assert (cursor.state.acked.count, cursor.backlog_count) == (1, 13)
        await acknowledge_cumulative(cursor, positions[20])
        assert (cursor.mark_delete_position, cursor.backlog_count) == (positions[13], 0)
        ml.set_read_limit(LATEST)
        assert await read_all(cursor) == [b"m%d" % i for i in range(14, 25)]

    in_world(scenario)


def test_skip_clear_and_seek_stay_before_the_read_limit(in_world):
    async def scenario(w):
        ml = await w.open()
        skipped, cleared, moved = [await ml.open_cursor(name, initial=EARLIEST) for name in ("a", "b", "c")]
        positions = await w.fill(ml, 25)
        ml.set_read_limit(positions[13])
        await skipped.skip(20)
        await cleared.clear_backlog()
        await moved.reset(LATEST)
        late = await ml.open_cursor("late", initial=LATEST)
        reader = ml.new_non_durable_cursor("r", LATEST)
        everyone = (skipped, cleared, moved, late, reader)
        assert {cursor.mark_delete_position for cursor in everyone} == {positions[13]}
        assert [cursor.backlog_count for cursor in everyone] == [0] * 5
        ml.set_read_limit(LATEST)
        for cursor in everyone:
            assert await read_all(cursor) == [b"m%d" % i for i in range(14, 25)]

    in_world(scenario)


def test_what_nobody_could_read_yet_is_not_trimmed(in_world):
    async def scenario(w):
        ml, positions = await w.filled(35)
        ml.set_read_limit(positions[13])
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await ml.trimmer.trim()
        assert ml.ledgers.first_position == positions[10]
        assert ml.extent.readable.entry_count == 4
        await ml.trimmer.truncate()
        assert ml.ledgers.first_position == positions[10]
        assert ml.extent.readable_position == positions[13]
        ml.set_read_limit(LATEST)
        await ml.trimmer.truncate()
        assert ml.ledgers.entry_count == 0

    in_world(scenario)


def test_reads_without_a_cursor_stop_there_unless_told_otherwise(in_world):
    async def scenario(w):
        ml, positions = await w.filled(25)
        ml.set_read_limit(positions[13])
        assert [e.position for e in await ml.reader.read_range(positions[8], 100, 1 << 20)] == positions[8:14]
        assert len(await ml.reader.read_range(positions[8], 100, 1 << 20, is_limited=False)) == 17
        assert [e.position for e in await ml.reader.read(positions[12:16])] == positions[12:14]
        assert len(await ml.reader.read(positions[12:16], is_limited=False)) == 4
        assert await ml.reader.read_some(positions[14:16], 1000) == ([], [])
        assert await ml.reader.find_last(lambda entry: True) == positions[13]

    in_world(scenario)


def test_a_limit_set_back_takes_nothing_from_those_who_have_read_on(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 25)
        assert len(await read_entries(cursor, max_entries=100)) == 10
        await acknowledge(cursor, [positions[7], positions[9]])
        ml.set_read_limit(positions[6])
        assert (cursor.backlog_count, await read_entries(cursor)) == (7, [])
        await acknowledge_cumulative(cursor, positions[6])
        assert (cursor.mark_delete_position, cursor.backlog_count) == (positions[6], 0)
        ml.set_read_limit(LATEST)
        # What is acknowledged already joins the mark-delete position at once.
        assert (cursor.mark_delete_position, cursor.backlog_count) == (positions[7], 16)

    in_world(scenario)


def test_nothing_at_all_is_readable_before_a_limit_at_the_start(in_world):
    async def scenario(w):
        ml = await w.open()
        ml.set_read_limit(EARLIEST)
        await w.fill(ml, 12)
        cursor = await ml.open_cursor("s", initial=LATEST)
        assert (cursor.reading.has_more_entries, cursor.backlog_count, await read_all(cursor)) == (False, 0, [])
        assert await ml.reader.read_range(EARLIEST, 10, 1000) == []
        assert await ml.reader.find_last(lambda entry: True) is None
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await ml.trimmer.trim()
        assert ml.ledgers.entry_count == 12
        ml.set_read_limit(LATEST)
        assert len(await read_all(cursor)) == 12

    in_world(scenario)
