"""Columns and chunks of the delayed index; what a chunk gives in general is tests/property's."""

from __future__ import annotations

from geminga.broker.core.delayed_chunks import BLOCK_MASK, NO_SLOT, Column, chunk_of
from geminga.broker.core.packed_positions import PackedPositions

SLOT = 1 << 8


def column_of(buckets: list[int], first: int = 0) -> Column:
    column = Column()
    column.restart(first)
    column.extend(buckets)
    return column


def test_look_tells_of_what_is_near_until_it_is_taken():
    column = column_of([9 * SLOT, 3 * SLOT + 1, 7 * SLOT])
    assert not column.look(2)
    assert (column.seen, column.lowest_slot) == (3, 3)
    column.extend([5 * SLOT, 2 * SLOT + 4, 8 * SLOT])
    assert column.look(2)
    assert list(column.take_near(2)) == [(2 * SLOT + 4, 4)]
    assert (column.seen, column.lowest_slot, column.holes) == (6, 3, [4])
    assert [entry_id for _, entry_id in column.entries()] == [0, 1, 2, 3, 5]


def test_column_has_room_until_its_block_ends():
    column = column_of([SLOT], first=BLOCK_MASK - 1)
    assert column.end == BLOCK_MASK + 1
    column.restart(BLOCK_MASK + 1)
    assert (len(column), column.end, column.lowest_slot) == (0, 2 * (BLOCK_MASK + 1), NO_SLOT)


def test_chunk_knows_its_slots_and_forgets_what_it_gave():
    column = column_of([9 * SLOT + 5, 3 * SLOT + 1, 9 * SLOT + 2], first=100)
    column.holes = [1]
    chunk = chunk_of(column, number=6)
    assert chunk is not None
    assert (chunk.slots, list(chunk.entry_ids())) == ([9], [100, 102])
    packed = PackedPositions()
    chunk.give_to(9, packed)
    assert list(packed.singles) == [5 << 56 | 6 << 32 | 100, 2 << 56 | 6 << 32 | 102]
    assert chunk.is_empty
    assert not chunk.copy_to(9, packed)


def test_few_buckets_and_buckets_far_apart_make_no_chunk():
    assert chunk_of(column_of([SLOT, 2 * SLOT] * 1000), 0) is None
    assert chunk_of(column_of([SLOT, (1 << 24) + SLOT]), 0) is None
    assert chunk_of(column_of([(1 << 24) - 1, 0]), 0) is not None
