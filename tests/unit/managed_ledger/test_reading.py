"""Where a cursor reads: a part that stands on a log's reader and on a state, and on nothing else of a cursor."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.cursor.reading import Reading
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.model.errors import InvariantError, LedgerClosedError
from geminga.model.position import Position


class _Reader:
    """What a reading asks of a cursor all of whose state is in memory."""

    part = None
    is_idle = True

    def __init__(self, state):
        self.name = "r"
        self.state = state
        self.is_closed = False

    def when_loaded(self, ledger_ids, action, refuse):
        action()


async def a_reading(w, count=5):
    ml, positions = await w.filled(count)
    state = CursorState(ml.ledgers.previous_position(positions[0]))
    cursor = _Reader(state)
    return ml, positions, cursor, Reading(cursor, ml.reader, w.factory.cursor_services)


def read(reading, count, **more):
    got = []
    reading.read_entries(count, 1000, got.append, **more)
    return got


def test_reads_go_forward_past_what_is_acknowledged_until_nothing_is_left(in_world):
    async def scenario(w):
        ml, positions, cursor, reading = await a_reading(w)
        cursor.state.acknowledge([positions[1]], None, ml.ledgers)
        assert reading.has_more_entries
        found = []
        while reading.has_more_entries:
            got = read(reading, 2)
            await w.world.sleep(0.1)
            assert not reading.is_busy
            found += [entry.position for entry in got[0]]
        assert found == [position for position in positions if position != positions[1]]
        assert reading.read_position == Position(positions[4].ledger_id, 5)
        assert reading.entries_read == (5, 5), "what is read along and acknowledged counts"

    in_world(scenario)


def test_going_back_gives_again_and_skipping_never_goes_back(in_world):
    async def scenario(w):
        _, positions, cursor, reading = await a_reading(w)
        reading.skip_to(positions[3])
        assert reading.read_position == positions[3]
        reading.skip_to(positions[1])
        assert reading.read_position == positions[3], "skipping is for what lies in front"
        reading.go_back_to(positions[1])
        got = read(reading, 1)
        await w.world.sleep(0.1)
        assert [entry.position for entry in got[0]] == [positions[1]]
        reading.rewind()
        assert reading.read_position == positions[0]
        assert cursor.state.read_position == positions[0]

    in_world(scenario)


def test_who_reads_counts_at_the_tail_until_it_is_let_go(in_world):
    async def scenario(w):
        ml, positions, _, reading = await a_reading(w)
        assert not reading.is_active
        reading.skip_to(positions[4])
        read(reading, 1)
        await w.world.sleep(0.1)
        more = await w.fill(ml, 2)
        assert reading.is_active
        assert ml.tail.window is not None, "appended entries are kept for it"
        assert ml.tail.window.first_entry_id == more[0].entry_id
        reading.deactivate()
        assert (reading.is_active, ml.tail.window) == (False, None)

    in_world(scenario)


def test_reads_of_a_closed_cursor_and_a_read_that_is_cut_off_end_with_an_error(in_world):
    async def scenario(w):
        _, positions, cursor, reading = await a_reading(w)
        under_way = read(reading, 5)
        assert reading.is_busy
        with pytest.raises(InvariantError, match="cursor r: a read is under way"):
            read(reading, 1)
        with pytest.raises(InvariantError, match="cursor r: a read is under way"):
            reading.go_back_to(positions[0])
        reading.stop(LedgerClosedError("cursor r is closed"))
        assert [str(error) for error in under_way] == ["cursor r is closed"]
        cursor.is_closed = True
        assert [type(error) for error in read(reading, 1)] == [LedgerClosedError]

    in_world(scenario)
