"""Columns of the delayed index: where entries stand as they came."""

from __future__ import annotations

import pytest
from tests.unit.broker.core.test_delayed_chunks import column_of

from geminga.broker.core.delayed.column import NO_BUCKET, PIECES_MAX, Column
from geminga.model import Position

ENTRIES = [(9, 1, 4), (3, 1, 6), (7, 2, 0), (3, 4, 5), (8, 4, 6)]


def test_lowest_bucket_is_that_of_what_is_left():
    column = column_of(ENTRIES)
    assert column.lowest() == 3
    assert column.take_through(2) == []
    assert column.take_through(3) == [(3, 1, 6), (3, 4, 5)]
    assert column.lowest() == 7
    column.ids.append(9)
    column.buckets.append(2)
    assert column.lowest() == 2
    assert list(column.entries()) == [(9, 1, 4), (7, 2, 0), (8, 4, 6), (2, 4, 9)]
    assert len(column.take_through(100)) == 4
    assert column.lowest() == NO_BUCKET
    assert list(Column().entries()) == []


@pytest.mark.parametrize(
    "before", [Position(*p) for p in [(0, 9), (1, 4), (1, 5), (1, 7), (2, 0), (3, 0), (4, 6), (5, 0)]]
)
def test_looks_and_discards_by_position(before):
    column = column_of(ENTRIES)
    known = {Position(*entry[1:]) for entry in ENTRIES}
    for ledger_id in range(6):
        for entry_id in range(8):
            assert column.contains(ledger_id, entry_id) is (Position(ledger_id, entry_id) in known)
    assert column.count_before(before) == sum(position < before for position in known)
    assert column.discard_before(before) == sum(position < before for position in known)
    assert [tuple(entry[1:]) for entry in column.entries()] == sorted(p for p in known if p >= before)
    assert list(column.members(4, 6, 100)) == [6] * (before <= Position(4, 6))
    column.ids.append(100)
    column.buckets.append(1)
    assert column.contains(4, 100)


def test_ledger_of_which_nothing_came_is_replaced():
    column = Column(3)
    column.begin(5)
    column.begin(6)
    column.ids.extend([1, 2])
    column.buckets.extend([0, 0])
    assert list(column.pieces()) == [(6, 0, 2)]
    assert not column.is_full
    column.begin(9)
    column.ids.extend([1, 2, 3, 4, 5])
    column.buckets.extend([0] * 5)
    assert column.is_full
    assert [list(part.entries()) for part in column.parts()] == [
        [(0, 6, 1), (0, 6, 2), (0, 9, 1)],
        [(0, 9, 2), (0, 9, 3), (0, 9, 4)],
        [(0, 9, 5)],
    ]


def test_many_ledgers_fill_a_column():
    column = column_of([(0, ledger_id, 0) for ledger_id in range(PIECES_MAX)])
    assert column.is_full
