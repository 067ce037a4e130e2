"""The index against a dict, garbage collection plans against brute force, the write cache against two dicts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from geminga.bookie.core.gc_plan import LiveBytes, plan_gc
from geminga.bookie.core.index import (
    Index,
    IndexRun,
    Row,
    live_rows,
    make_location,
    merge_runs,
    relocate,
    runs_to_merge,
)
from geminga.bookie.core.write_cache import WriteCache

LEDGERS = st.integers(1, 4)
ENTRIES = st.sets(st.integers(0, 30), min_size=1, max_size=12)


class IndexMachine(RuleBasedStateMachine):
    """Flushes, merges, relocations and deletions; the oracle maps each entry to the place it was last written to."""

    @initialize()
    def start(self) -> None:
        self.index = Index()
        self.oracle: dict[tuple[int, int], int] = {}
        self.deleted: set[int] = set()
        self.next_offset = 64

    @rule(flushed=st.dictionaries(LEDGERS, ENTRIES, min_size=1))
    def flush(self, flushed: dict[int, set[int]]) -> None:
        run = IndexRun()
        for ledger_id in sorted(flushed):
            rows = []
            for entry_id in sorted(flushed[ledger_id]):
                if rows and rows[-1].first_entry_id + rows[-1].entry_count == entry_id:
                    rows[-1] = rows[-1]._replace(entry_count=rows[-1].entry_count + 1)
                else:
                    rows.append(Row(entry_id, 1, 10, make_location(1, self.next_offset)))
                    self.next_offset += 10
                self.oracle[ledger_id, entry_id] = rows[-1].location
            run.add_ledger(ledger_id, rows)
        self.index.runs.append(run)

    @rule(runs_max=st.integers(1, 3), turn=st.integers(1, 10))
    def merge(self, runs_max: int, turn: int) -> None:
        taken = runs_to_merge([len(run) for run in self.index.runs], runs_max)
        if not taken:
            return
        kept, old = self.index.runs[:-taken], self.index.runs[-taken:]
        steps = merge_runs(old, self.deleted.__contains__, turn)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                self.index.runs = [*kept, stop.value]
                break
        assert len(self.index.runs) <= runs_max

    @rule(shift=st.integers(1, 3))
    def move_everything(self, shift: int) -> None:
        moves = {}
        for row in live_rows(self.index.runs, lambda _: False):
            moves[row.location] = (row.location + (shift << 41), row.size_bytes)
        self.index.runs = [relocate(run, moves) for run in self.index.runs]
        self.oracle = {key: moves.get(location, (location, 0))[0] for key, location in self.oracle.items()}

    @rule(ledger_id=LEDGERS)
    def delete(self, ledger_id: int) -> None:
        self.deleted.add(ledger_id)

    @invariant()
    def finds_what_the_oracle_has(self) -> None:
        for run in self.index.runs:
            run.check_invariants()
        for ledger_id in range(1, 5):
            if ledger_id in self.deleted:
                continue
            have = {entry for ledger, entry in self.oracle if ledger == ledger_id}
            assert self.index.last_entry_id(ledger_id) == max(have, default=-1)
            by_row = {
                row.first_entry_id + i: row.location
                for row in self.index.ledger_rows(ledger_id)
                for i in range(row.entry_count)
            }
            for entry_id in range(32):
                row = self.index.find(ledger_id, entry_id)
                expected = self.oracle.get((ledger_id, entry_id))
                assert (row.location if row is not None else None) == expected
                assert by_row.get(entry_id) == expected


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@given(
    st.dictionaries(st.integers(1, 6), st.integers(1, 100), min_size=1),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(1, 20))),
    st.sampled_from([0.0, 0.2, 0.8, 1.0]),
    st.one_of(st.none(), st.integers(1, 6)),
)
def test_gc_plan_equals_brute_force(sizes, chunks, below, active):
    rows = [Row(0, 1, size, make_location(log_id, 64 + 100 * slot)) for log_id, slot, size in chunks]
    counted = LiveBytes()
    counted.add(rows)
    live = counted.by_log
    assert live == {
        log_id: sum({row.location: row.size_bytes for row in reversed(rows) if row.location >> 40 == log_id}.values())
        for log_id in {log_id for log_id, _, _ in chunks}
    }
    plan = plan_gc(sizes, live, active_log_id=active, compact_below=below, copy_bytes_max=1 << 40)
    for log_id, size in sizes.items():
        is_removed = log_id != active and live.get(log_id, 0) == 0
        is_compacted = log_id != active and 0 < live.get(log_id, 0) < below * size
        assert (log_id in plan.remove, log_id in plan.compact) == (is_removed, is_compacted)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), LEDGERS, st.integers(0, 9), st.lists(st.binary(max_size=5), min_size=1)),
            st.tuples(st.just("turn")),
            st.tuples(st.just("end")),
            st.tuples(st.just("drop"), LEDGERS),
        )
    )
)
def test_write_cache_equals_two_dicts(operations):
    cache = WriteCache(1 << 20, 100)
    filling: dict[tuple[int, int], bytes] = {}
    flushing: dict[tuple[int, int], bytes] | None = None
    for operation in operations:
        match operation:
            case ("put", ledger_id, first, values):
                cache.put(ledger_id, first, values, sum(map(len, values)))
                filling.update({(ledger_id, first + i): value for i, value in enumerate(values)})
            case ("turn",) if flushing is None:
                cache.begin_flush()
                flushing, filling = filling, {}
            case ("end",) if flushing is not None:
                cache.end_flush()
                flushing = None
            case ("drop", ledger_id):
                cache.drop_ledger(ledger_id)
                filling = {key: value for key, value in filling.items() if key[0] != ledger_id}
        everything = {**(flushing or {}), **filling}
        for ledger_id in range(1, 5):
            have = [entry for ledger, entry in everything if ledger == ledger_id]
            assert cache.last_entry_id(ledger_id) == max(have, default=-1)
            for entry_id in range(0, 20, 3):
                assert cache.get(ledger_id, entry_id) == everything.get((ledger_id, entry_id))
        assert cache.filling_bytes >= 0
