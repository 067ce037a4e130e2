from __future__ import annotations

from geminga.bookie.core.gc_plan import GcPlan, LiveBytes, plan_gc
from geminga.bookie.core.index import Row, make_location


def test_chunk_named_by_several_rows_counts_once():
    at = make_location
    rows = [Row(0, 1, 50, at(1, 64)), Row(5, 2, 50, at(1, 64)), Row(0, 1, 7, at(1, 200)), Row(0, 1, 9, at(2, 64))]
    live = LiveBytes()
    assert (live.add(rows[:3]), live.add(rows[1:]), live.add(())) == (3, 3, 0)
    assert live.by_log == {1: 57, 2: 9}


def plan(live, **changes):
    options = {"active_log_id": 9, "compact_below": 0.5, "copy_bytes_max": 1000}
    return plan_gc({1: 100, 2: 100, 3: 100, 9: 100}, live, **(options | changes))


def test_empty_logs_go_and_sparse_ones_are_compacted_emptiest_first():
    assert plan({1: 40, 2: 10, 3: 50}) == GcPlan([], [2, 1])
    assert plan({2: 10}) == GcPlan([1, 3], [2])


def test_active_log_stays_and_excluded_ones_go_only_when_empty():
    assert plan({}, excluded=(1,)) == GcPlan([1, 2, 3], [])
    assert plan({1: 10, 2: 20, 3: 90, 9: 10}, excluded=(1,)) == GcPlan([], [2])


def test_copies_are_bounded_but_one_log_always_fits():
    assert plan({1: 40, 2: 10, 3: 45}, copy_bytes_max=50).compact == [2, 1]
    assert plan({1: 40, 2: 30, 3: 45}, copy_bytes_max=5).compact == [2]
