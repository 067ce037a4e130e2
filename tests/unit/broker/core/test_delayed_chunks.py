"""Chunks of the delayed index: what goes in comes out in the order of time, in few bytes."""

from __future__ import annotations

import zlib

import pytest

from geminga.broker.core.delayed.chunks import UNIT, DelayedChunk, pack, pack_unit, unpack_unit
from geminga.broker.core.delayed.column import Column
from geminga.broker.core.delayed.packed_positions import PackedPositions
from geminga.model import Position
from geminga.runtime import SystemRng
from support.house.weekly_sample import sampled

SLOT = 1 << 8


def column_of(entries: list[tuple[int, int, int]]) -> Column:
    """Of (bucket, ledger id, entry id) in log order."""
    column = Column()
    for bucket, ledger_id, entry_id in entries:
        if column.ledgers[-1:] != [ledger_id]:
            column.begin(ledger_id)
        column.ids.append(entry_id)
        column.buckets.append(bucket)
    return column


def packed(entries: list[tuple[int, int, int]], unit: int = UNIT) -> DelayedChunk:
    chunk = pack(column_of(entries), unit)
    assert chunk is not None
    return chunk


def at_random(count: int, seed: int) -> list[tuple[int, int, int]]:
    draw = SystemRng(seed)
    ledger_id, entry_id, entries = 3, 0, []
    for _ in range(count):
        if draw.below(50) == 0:
            ledger_id, entry_id = ledger_id + 1 + draw.below(3), draw.below(1000)
        entry_id += 1 + draw.below(30)
        entries.append((7000 + draw.below(900), ledger_id, entry_id))
    return entries


@pytest.mark.parametrize("seed", sampled("delayed chunks", range(5), 2))
@pytest.mark.parametrize("early_max", [0, 10])
def test_chunk_gives_everything_once_in_the_order_of_time(seed, early_max):
    entries = at_random(700, seed)
    chunk = packed(entries, unit=50)
    assert list(chunk.entries()) == sorted(entries)
    assert chunk.members() is chunk.members()
    given: list[tuple[int, int, int]] = []
    while chunk.count:
        first = chunk.first_mark
        assert first == min(set(entries) - set(given))
        assert not chunk.take_next(first[0] - 1)
        keys = chunk.take_next(first[0], early_max)
        for slot, positions in chunk.unpack(keys, lambda ledger_id: ledger_id):
            for item in positions.singles:
                given.append((slot << 8 | item >> 56, item >> 32 & 0xFFFFFF, item & 0xFFFFFFFF))
        assert len(given) + chunk.count == len(entries)
        assert len(chunk.members()) == chunk.count
        if early_max == 0:
            assert given[-1][0] == first[0]
    assert given == sorted(entries)


def test_entries_of_a_bucket_are_given_as_a_bitmap_and_those_in_a_row_as_a_run():
    chunk = packed([(9 * SLOT, 1, 2 * i) for i in range(100)] + [(9 * SLOT + 1, 1, 1000 + i) for i in range(100)])
    ((slot, found),) = chunk.unpack(chunk.take_next(9 * SLOT), lambda _: 5)
    assert slot == 9
    assert {key: list(ids) for key, ids in found.bitmaps.items()} == {5: list(range(0, 200, 2))}
    assert list(found.runs) == [1 << 56 | 5 << 32 | 1000, 100]
    assert not found.singles
    assert isinstance(found, PackedPositions)


def test_discarded_entries_are_not_given_and_not_counted():
    chunk = packed([(9 * SLOT + i % 7, 1 + i // 50, i % 50) for i in range(100)], unit=10)
    assert chunk.discard_through(0, 99) == 0
    assert chunk.discard_through(1, 19) == 20
    assert chunk.discard_through(1, 10) == 0
    assert chunk.count_through(2, 0) == 31
    assert list(chunk.entry_ids(1, 0, 30)) == list(range(20, 30))
    assert not chunk.contains(1, 19)
    assert chunk.contains(1, 20)
    assert len(list(chunk.entries())) == 80
    given = 0
    while chunk.count:
        given += len(chunk.take_next(10 * SLOT))
    assert given == 80


def test_what_was_unpacked_is_packed_again():
    entries = [(9 * SLOT + i, 1, i) for i in range(100)]
    chunk = packed(entries, unit=40)
    assert len(chunk.take_next(9 * SLOT + 4, early_max=0)) == 5
    chunk.close()
    assert not chunk.open
    assert list(chunk.lengths) == [35, 40, 20]
    assert list(chunk.entries()) == entries[5:]


def test_entries_too_far_apart_make_no_chunk():
    assert pack(column_of([(0, 1, 0), (1 << 48, 1, 1 << 31)])) is None
    assert pack(column_of([(0, 1, 0), (1, 1, (1 << 32) - 1), (1, 2, 0), (1, 2, 5)])) is None
    assert pack(column_of([(0, 1, 0), (1 << 30, 1, 1 << 31)])) is not None


@pytest.mark.parametrize(
    ("entries", "bytes_max"),
    [
        ([(i // 1024, 1, 2 * i) for i in range(20_000)], 0.1),
        ([(i // 1024, 1, 3 * i) for i in range(20_000)], 0.1),
        ([(i // 1024 + 7000 * (i & 1), 1, i) for i in range(20_000)], 0.1),
        ([(20_000 - i, 1, i) for i in range(20_000)], 0.15),
        ([(5, i // 4, i % 4) for i in range(8000)], 8.5),
    ],
    ids=["every second", "every third", "two constants", "falling", "ledgers of four"],
)
def test_regular_entries_take_next_to_nothing(entries, bytes_max):
    chunk = packed(entries)
    assert chunk.memory_bytes < bytes_max * len(entries)
    assert Position(entries[-1][1], entries[-1][2]) == chunk.stretch.last


def test_damaged_unit_is_told():
    unit = pack_unit(range(0, 3000, 3))
    assert list(unpack_unit(unit, 0, 1000)) == list(range(0, 3000, 3))
    for length in (1, 999, 1001, 1 << 30):
        with pytest.raises((ValueError, zlib.error)):
            unpack_unit(unit, 0, length)
    for damaged in (b"\x09" + unit[1:], unit[:-1], unit[:1] + b"\xff" + unit[2:]):
        with pytest.raises((ValueError, zlib.error)):
            unpack_unit(damaged, 0, 1000)
    assert list(unpack_unit(pack_unit([7]), 7, 1)) == [7]
