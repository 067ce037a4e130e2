"""Reads that belong to no cursor."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.log import reader
from geminga.model.errors import LedgerClosedError
from geminga.model.position import LATEST, Position


@pytest.mark.parametrize("limit", [-1, 0, 4, 9, 10, 24, 99])
def test_find_last_gives_the_newest_entry_of_a_monotone_predicate(in_world, limit):
    async def scenario(w):
        ml, positions = await w.filled(25)
        found = await ml.reader.find_last(lambda entry: int(entry.data[1:]) <= limit)
        assert found == (positions[min(limit, 24)] if limit >= 0 else None)

    in_world(scenario)


@pytest.mark.parametrize(
    ("limit", "found"), [(3, 3), (9, 9), (14, 9), (29, 9), (30, 30), (36, 36), (39, 39), (44, 39), (60, 39), (-1, None)]
)
def test_find_last_looks_over_ledgers_that_can_not_be_read(in_world, limit, found):
    """What it finds is right on both sides of a hole; of the hole itself it finds what is before it."""

    async def scenario(w):
        ml, positions = await w.filled(45)
        for index in (10, 20, 40):
            del w.bookie._ledgers[positions[index].ledger_id]
        # Only what reads have to tell: nothing of it is in memory.
        ml.tail.drop()
        position = await ml.reader.find_last(lambda entry: int(entry.data[1:]) <= limit)
        assert position == (None if found is None else positions[found])

    in_world(scenario)


def test_find_last_of_an_empty_log_is_none(in_world):
    async def scenario(w):
        ml = await w.open()
        assert await ml.reader.find_last(lambda entry: True) is None

    in_world(scenario)


def test_read_gives_entries_in_the_order_asked_for_and_leaves_out_others(in_world):
    async def scenario(w):
        ml, positions = await w.filled(25)
        wanted = [positions[20], Position(99, 0), positions[3], positions[4], Position(positions[0].ledger_id, 10)]
        assert [entry.data for entry in await ml.reader.read(wanted)] == [b"m20", b"m3", b"m4"]
        assert await ml.reader.read([]) == []

    in_world(scenario)


def test_read_goes_on_behind_what_one_read_brings(in_world, monkeypatch):
    monkeypatch.setattr(reader, "READ_BYTES", 1)

    async def scenario(w):
        ml, positions = await w.filled(25)
        wanted = [positions[number] for number in (3, 4, 5, 12, 24)]
        assert [entry.data for entry in await ml.reader.read(wanted)] == [b"m3", b"m4", b"m5", b"m12", b"m24"]

    in_world(scenario)


def test_read_range_stops_at_its_limits(in_world):
    async def scenario(w):
        ml, positions = await w.filled(25)
        assert len(await ml.reader.read_range(positions[5], 7, 1000)) == 7
        assert len(await ml.reader.read_range(positions[5], 100, 7)) == 3
        assert len(await ml.reader.read_range(positions[5], 100, 1)) == 1
        assert len(await ml.reader.read_range(positions[5], 100, 1000)) == 20
        assert await ml.reader.read_range(LATEST, 100, 1000) == []

    in_world(scenario)


def test_read_of_a_closed_log_is_an_error(in_world):
    async def scenario(w):
        ml, positions = await w.filled(1)
        await ml.close()
        with pytest.raises(LedgerClosedError):
            await ml.reader.read(positions)

    in_world(scenario)
