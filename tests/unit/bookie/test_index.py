from __future__ import annotations

import pytest

from geminga.bookie.core.index import (
    Index,
    IndexRun,
    Row,
    live_rows,
    log_of,
    make_location,
    merge_runs,
    offset_of,
    overlay,
    relocate,
    runs_to_merge,
)
from geminga.model.errors import InvariantError


def make_run(rows: dict[int, list[Row]]) -> IndexRun:
    run = IndexRun()
    for ledger_id in sorted(rows):
        run.add_ledger(ledger_id, rows[ledger_id])
    run.check_invariants()
    return run


def merged(*runs: IndexRun, dropped: frozenset[int] = frozenset(), turn: int = 1) -> IndexRun:
    steps = merge_runs(runs, dropped.__contains__, turn)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            run: IndexRun = stop.value
            run.check_invariants()
            return run


def test_location_holds_log_and_offset():
    location = make_location(12345, 1 << 39)
    assert (log_of(location), offset_of(location)) == (12345, 1 << 39)
    with pytest.raises(InvariantError):
        make_location(1 << 24, 0)


def test_find_in_a_run_hits_only_what_its_rows_name():
    run = make_run({3: [Row(0, 5, 90, 1), Row(10, 2, 30, 2)], 8: [Row(0, 1, 20, 3)]})
    assert run.find(3, 4) == Row(0, 5, 90, 1)
    assert run.find(3, 5) is None
    assert run.find(3, 11) == Row(10, 2, 30, 2)
    assert run.find(3, 12) is None
    assert run.find(8, 0) == Row(0, 1, 20, 3)
    assert run.find(4, 0) is None
    assert run.find(9, 0) is None


def test_newest_run_wins():
    index = Index([make_run({3: [Row(0, 5, 90, 1)]}), make_run({3: [Row(2, 1, 30, 2)]})])
    assert [index.find(3, i).location for i in range(5)] == [1, 1, 2, 1, 1]
    assert index.ledger_rows(3) == [Row(0, 2, 90, 1), Row(2, 1, 30, 2), Row(3, 2, 90, 1)]
    assert index.last_entry_id(3) == 4
    assert index.last_entry_id(4) == -1
    assert (index.ledger_ids(), index.row_count()) == ([3], 2)


def test_overlay_cuts_older_rows_on_both_sides():
    older = [Row(0, 10, 1, 1), Row(20, 10, 1, 2)]
    newer = [Row(5, 20, 1, 3)]
    assert overlay(older, newer) == [Row(0, 5, 1, 1), Row(5, 20, 1, 3), Row(25, 5, 1, 2)]
    assert overlay([], newer) == newer
    assert overlay(older, []) == older


def test_merge_drops_deleted_ledgers_and_keeps_order():
    old = make_run({1: [Row(0, 2, 9, 1)], 2: [Row(0, 2, 9, 2)]})
    new = make_run({1: [Row(2, 2, 9, 3)], 2: [Row(1, 3, 9, 4)], 3: [Row(0, 1, 9, 5)]})
    old.state_ids.extend([1, 3])
    run = merged(old, new, dropped=frozenset({3}))
    assert run.rows(1) == [Row(0, 2, 9, 1), Row(2, 2, 9, 3)]
    assert run.rows(2) == [Row(0, 1, 9, 2), Row(1, 3, 9, 4)]
    assert run.rows(3) == []
    assert list(run.state_ids) == [1]


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ([], 0),
        ([100, 1, 1, 1], 0),
        ([100, 1, 1, 1, 1], 4),
        ([1, 1, 1, 1, 1], 5),
        ([1000, 100, 10, 1, 1], 2),
        ([5, 1000, 1, 1, 1], 3),
    ],
)
def test_runs_to_merge_takes_the_newest_small_ones(rows, taken):
    assert runs_to_merge(rows, 4) == taken


def test_relocate_changes_places_only():
    run = make_run({1: [Row(0, 2, 9, 11), Row(2, 2, 8, 12)]})
    moved = relocate(run, {12: (99, 7)})
    assert moved.rows(1) == [Row(0, 2, 9, 11), Row(2, 2, 7, 99)]
    assert run.rows(1)[1].location == 12


def test_live_rows_leave_deleted_ledgers_out_and_hidden_rows_in():
    runs = [make_run({1: [Row(0, 2, 9, 1)], 2: [Row(0, 2, 9, 2)]}), make_run({1: [Row(0, 2, 9, 3)]})]
    assert [row.location for row in live_rows(runs, lambda ledger_id: ledger_id == 2)] == [1, 3]


def test_rows_out_of_order_are_refused():
    run = make_run({5: [Row(0, 1, 1, 1)]})
    with pytest.raises(InvariantError):
        run.add_ledger(5, [Row(1, 1, 1, 1)])
    broken = IndexRun()
    broken.add_ledger(1, [Row(0, 5, 1, 1), Row(3, 5, 1, 2)])
    with pytest.raises(InvariantError):
        broken.check_invariants()
