"""Cursors: reading, acknowledging, seeking."""

from __future__ import annotations

import pytest

from geminga.model.errors import LedgerClosedError
from geminga.model.position import EARLIEST, LATEST, Position
from support.worlds.ledger_world import acknowledge, acknowledge_cumulative, read_all, read_entries


def test_acknowledge_moves_mark_delete_over_ledgers(in_world):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(25)
        assert await acknowledge(cursor, positions[1:23]) is None
        assert cursor.mark_delete_position == ml.ledgers.previous_position(positions[0])
        assert cursor.backlog_count == 3
        assert await acknowledge(cursor, positions[:1]) is None
        assert cursor.mark_delete_position == positions[22]
        assert cursor.backlog_count == 2

    in_world(scenario)


def test_acknowledge_of_what_is_not_there_is_ignored(in_world):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(3)
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
        _ml, cursor, positions = await w.with_cursor(3)
        await acknowledge(cursor, positions[:2], [[0b0110], [0b1111]])
        await acknowledge(cursor, positions[:1], [[0b1100]])
        assert cursor.state.ack_set(positions[0]) == (0b0100,)
        again = (await w.reopen()).cursors["s"]
        assert again.state.ack_set(positions[0]) == (0b0100,)
        assert again.state.ack_set(positions[1]) == (0b1111,)
        assert again.state.ack_set(positions[2]) is None
        await acknowledge(again, positions[:1], [[0b1011]])
        assert again.mark_delete_position == positions[0]

    in_world(scenario)


def test_acknowledge_cumulative_with_an_ack_set_keeps_the_entry(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(13)
        await acknowledge_cumulative(cursor, positions[10], [0b1000], properties={"sequence": 7})
        assert cursor.mark_delete_position == positions[9]
        assert cursor.state.ack_set(positions[10]) == (0b1000,)
        again = (await w.reopen()).cursors["s"]
        assert (again.mark_delete_position, again.state.ack_set(positions[10])) == (positions[9], (0b1000,))
        assert again.properties == {"sequence": 7}

    in_world(scenario)


def test_acknowledge_on_a_closed_cursor_is_an_error(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(1)
        await cursor.close()
        assert isinstance(await acknowledge(cursor, positions), LedgerClosedError)
        with pytest.raises(LedgerClosedError):
            await read_entries(cursor)

    in_world(scenario)


@pytest.mark.parametrize(("target", "backlog"), [(EARLIEST, 25), (LATEST, 0), (7, 18), (10, 15)])
def test_reset_is_durable_and_forgets_holes(in_world, target, backlog):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(25)
        cursor.acknowledge(positions[5:15])
        await cursor.reset(positions[target] if isinstance(target, int) else target)
        for found in (cursor, (await w.reopen()).cursors["s"]):
            assert found.backlog_count == backlog
            assert len(await read_all(found)) == backlog

    in_world(scenario)


def test_skip_counts_only_what_is_not_acknowledged(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(15)
        cursor.acknowledge(positions[1:5])
        await cursor.skip(2)
        assert cursor.mark_delete_position == positions[5]
        await cursor.clear_backlog()
        assert cursor.backlog_count == 0

    in_world(scenario)


def test_non_durable_cursor_is_answered_at_once_and_forgotten(in_world):
    async def scenario(w):
        ml, positions = await w.filled(5)
        cursor = ml.new_non_durable_cursor("reader", positions[2])
        assert not cursor.is_durable
        assert await read_all(cursor) == [b"m2", b"m3", b"m4"]
        assert await acknowledge(cursor, positions[2:4]) is None
        assert cursor.mark_delete_position == positions[3]
        await cursor.close()
        assert not ml.cursor_set.non_durable
        assert not (await w.reopen()).cursors

    in_world(scenario)
