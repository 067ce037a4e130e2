"""Packed positions of delayed messages against plain sets: however they are held, and what is dropped of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from geminga.broker.core.delayed.packed_positions import ENTRY_BITS, PackedPositions

LEDGERS = st.integers(0, 2)
RUNS = st.tuples(LEDGERS, st.integers(0, 300), st.integers(0, 12))
#: Of a ledger, some entries; None: nothing is known of it.
MEMBERS = st.dictionaries(LEDGERS, st.none() | st.sets(st.integers(0, 320)))


def packed(runs: list[tuple[int, int, int]], bitmaps: list[tuple[int, int, int]]) -> PackedPositions:
    found = PackedPositions()
    for ledger, first, count in runs:
        found.add_range(ledger << ENTRY_BITS | first, count)
    for ledger, first, count in bitmaps:
        if count:
            found.bitmaps[ledger] = found.bitmaps.get(ledger, BitMap()) | BitMap(range(first, first + count))
    return found


def entries(runs: list[tuple[int, int, int]]) -> set[tuple[int, int]]:
    return {(ledger, entry) for ledger, first, count in runs for entry in range(first, first + count)}


def held(positions: PackedPositions) -> set[tuple[int, int]]:
    return {(ledger, entry) for ledger, ids in positions.by_ledger().items() for entry in ids}


@given(st.lists(RUNS), st.lists(RUNS), MEMBERS)
def test_what_is_kept_is_what_is_there_and_still_counts(
    runs: list[tuple[int, int, int]], bitmaps: list[tuple[int, int, int]], members: dict[int, set[int] | None]
) -> None:
    positions, expected = packed(runs, bitmaps), entries([*runs, *bitmaps])
    assert held(positions) == expected
    left = {ledger: ids for ledger, ids in members.items() if ids is not None}
    positions.keep(lambda ledger: BitMap(left[ledger]) if ledger in left else None)
    expected = {(ledger, entry) for ledger, entry in expected if entry in left.get(ledger, set())}
    assert held(positions) == expected
    assert positions.is_empty == (not expected)


@given(st.lists(RUNS), st.lists(RUNS), st.lists(RUNS))
def test_what_is_sealed_in_pieces_is_what_was_there(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]], bitmaps: list[tuple[int, int, int]]
) -> None:
    ledger_ids = [70, 50, 60]
    positions = packed(first, bitmaps)
    positions.seal(ledger_ids)
    for ledger, start, count in second:
        positions.add_range(ledger << ENTRY_BITS | start, count)
    groups = positions.seal(ledger_ids)
    found = {(ledger_id, entry) for ledger_id, ids in groups for entry in ids}
    expected = {(ledger_ids[ledger], entry) for ledger, entry in entries([*first, *second, *bitmaps])}
    assert found == expected
    assert [ledger_id for ledger_id, _ in groups] == sorted({ledger_id for ledger_id, _ in expected})
