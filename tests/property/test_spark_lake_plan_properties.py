"""Pieces of files and of the broker follow each other without gap or overlap, whatever is in the lake."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from geminga.spark.source_rules.file_parts import file_parts, scans_of
from geminga.spark.source_rules.lake_plan import LakeRange, PlannedFile, pack, units_of
from geminga.spark.source_rules.offsets import ReadPosition
from geminga.spark.source_rules.planner import TopicRange

IDS = st.integers(0, 12)
POSITIONS = st.builds(ReadPosition, IDS, st.integers(0, 12), st.integers(0, 2))


@st.composite
def lakes(draw: st.DrawFn) -> tuple[list[int], list[PlannedFile]]:
    """(ledgers of a topic, those of them that are in the lake)."""
    ids = sorted(draw(st.sets(IDS, min_size=1)))
    following = dict(pairwise(ids))
    found = []
    for ledger_id in sorted(draw(st.sets(st.sampled_from(ids)))):
        entries = draw(st.integers(0, 10))
        firsts = sorted({0, *draw(st.lists(st.integers(0, 9)))})
        groups = tuple(first for first in firsts if first < entries)
        following_id = draw(st.sampled_from([None, following.get(ledger_id)]))
        is_pure = draw(st.booleans())
        found.append(
            PlannedFile(ledger_id, f"f{ledger_id}", entries, 7 * entries, groups, following_id, is_pure=is_pure)
        )
    return ids, found


@given(lakes(), POSITIONS, POSITIONS, st.integers(1, 9), st.integers(1, 50))
def test_each_position_is_in_exactly_one_piece(lake, start, end, tasks, goal):
    ids, ledgers = lake
    units = units_of(TopicRange("t", start, end), ledgers, goal) if start < end else []
    packed = pack(units, tasks)
    assert len(packed) <= tasks
    assert all(packed)
    pieces = [piece for task in packed for piece in task]
    assert all(one.end <= other.start for one, other in pairwise(pieces))
    known = {ledger.ledger_id: ledger for ledger in ledgers}
    for ledger_id in ids:
        # Of a ledger that is in the lake it is known how many entries there are.
        entries = known[ledger_id].entries if ledger_id in known else 12
        for position in (ReadPosition(ledger_id, entry, index) for entry in range(entries) for index in range(3)):
            holding = [piece for piece in pieces if piece.start <= position < piece.end]
            assert len(holding) == (start <= position < end)
            assert all(isinstance(piece, LakeRange) == (ledger_id in known) for piece in holding)
            for piece in holding:
                if isinstance(piece, LakeRange):
                    firsts = known[ledger_id].first_entries
                    group = max(number for number, first in enumerate(firsts) if first <= position.entry_id)
                    assert piece.first_group <= group < piece.end_group


@given(lakes(), POSITIONS, POSITIONS, st.integers(1, 50), st.data())
def test_each_position_is_in_one_file_part_or_in_the_rest(lake, start, end, goal, data):
    _, ledgers = lake
    units = units_of(TopicRange("t", start, end), ledgers, goal) if start < end else []
    chosen = {ledger.path: ledger for ledger in ledgers if data.draw(st.booleans())}
    parts, rest = file_parts(units, chosen)
    assert len({part.ledger.path for part in parts}) == len(parts)
    for unit in units:
        inside = [part for part in parts if part.start <= unit.piece.start and unit.piece.end <= part.end]
        is_of_file = isinstance(unit.piece, LakeRange) and unit.piece.path in chosen
        assert len(inside) == is_of_file
        assert (unit in rest) == (not is_of_file)
    # Nothing but those units is in the parts: each part is as long as its units, which follow each other.
    for part in parts:
        of_part = [unit.piece for unit in units if unit not in rest and unit.piece.path == part.ledger.path]
        assert (of_part[0].start, of_part[-1].end) == (part.start, part.end)
        assert all(one.end == other.start for one, other in pairwise(of_part))
    scans = scans_of(parts, None, None)
    assert sorted(part for scan in scans for part in scan.parts) == sorted(parts)
    assert all(
        scan.condition for scan in scans if not all(part.is_whole and part.ledger.is_pure for part in scan.parts)
    )
