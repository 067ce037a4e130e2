"""The cursor format: whatever prefix of its ledger survives, the newest complete state in it comes back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.managed_ledger.rules import cursor_format
from geminga.managed_ledger.rules.acked_entries import PART_ENTRIES
from geminga.managed_ledger.rules.batch_acks import words_of_bits
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.managed_ledger.rules.cursor_format import plan_write, read_parts, recovery
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.position import Position

LEDGERS = LedgerList([LedgerInfo(ledger_id, 3 * PART_ENTRIES, closed_ms=1) for ledger_id in (1, 4, 5)])

positions = st.builds(
    Position,
    st.sampled_from([1, 4, 5]),
    st.integers(0, 30) | st.integers(PART_ENTRIES - 4, PART_ENTRIES + 4) | st.integers(0, 3 * PART_ENTRIES - 1),
)
steps = st.one_of(
    st.tuples(st.just("ack"), st.lists(positions, min_size=1, max_size=40)),
    st.tuples(st.just("dense"), positions),
    st.tuples(st.just("batch"), st.tuples(positions, st.integers(1, (1 << 130) - 1))),
    st.tuples(st.just("cumulative"), positions),
    st.tuples(st.just("reset"), positions),
    st.tuples(st.just("write"), st.none()),
)


def snapshot(state):
    return (
        state.mark_delete,
        [tuple(item) for item in state.acked.ranges(1 << 20)],
        [tuple(item) for item in state.batches],
        dict(state.properties),
    )


def apply(state, kind, value):
    if kind == "ack":
        state.acknowledge(value, None, LEDGERS)
    elif kind == "dense":
        # Alternating holes: more ranges than a marker holds itself.
        last = min(value.entry_id + 600, 3 * PART_ENTRIES - 1)
        state.acknowledge([Position(value.ledger_id, i) for i in range(value.entry_id, last, 2)], None, LEDGERS)
    elif kind == "batch":
        state.acknowledge([value[0]], [words_of_bits(value[1])], LEDGERS)
    elif kind == "cumulative":
        state.acknowledge_cumulative(value, None, LEDGERS)
    elif kind == "reset":
        state.reset(value, LEDGERS)


def recover(log, damaged=frozenset(), **options):
    found = run(log, recovery(len(log) - 1, LEDGERS, **options), damaged)
    return found.state if found is not None else None


def run(log, steps, damaged=frozenset()):
    """Give a generator the entries it asks for."""
    try:
        first, last = next(steps)
        while True:
            first, last = steps.send([None if i in damaged else log[i] for i in range(first, last + 1)])
    except StopIteration as stop:
        return stop.value


def bring_back(state, log, refs, ledger_id):
    state.bring_back(ledger_id, run(log, read_parts({p: ids for p, ids in refs.items() if p[0] == ledger_id})))


def write(state, log, refs):
    """Append a state as the store does; returns the refs."""
    plan = plan_write(state, refs)
    state.clean()
    refs = plan.refs(len(log))
    log.extend(plan.segments)
    log.append(plan.marker(refs))
    return refs


@given(st.lists(steps, max_size=12))
def test_every_prefix_recovers_the_newest_state_that_is_complete_in_it(story):
    state = CursorState(Position(1, -1), {"a": 1})
    log, refs = [], {}
    complete = []  # (length of the log, state)
    for kind, value in [*story, ("write", None)]:
        if kind == "write":
            refs = write(state, log, refs)
            complete.append((len(log), snapshot(state)))
        else:
            apply(state, kind, value)
    lengths = {*range(len(log) + 1)} if len(log) < 40 else {n + d for n, _ in complete for d in (-1, 0, 1)}
    for length in sorted(n for n in lengths if 0 <= n <= len(log)):
        expected = [found for at, found in complete if at <= length]
        recovered = recover(log[:length])
        assert (snapshot(recovered) if recovered else None) == (expected[-1] if expected else None)


@given(st.lists(steps, min_size=3, max_size=10), st.data())
def test_a_damaged_entry_gives_an_older_state_or_the_same_never_a_wrong_one(story, data):
    state = CursorState(Position(1, -1))
    log, refs, complete = [], {}, [None]
    for kind, value in [*story, ("write", None), ("dense", Position(4, 7)), ("write", None)]:
        if kind == "write":
            refs = write(state, log, refs)
            complete.append(snapshot(state))
        else:
            apply(state, kind, value)
    damaged = data.draw(st.sets(st.integers(0, len(log) - 1), max_size=3))
    recovered = recover(log, damaged)
    assert (snapshot(recovered) if recovered else None) in complete


@given(st.lists(steps, max_size=10), st.integers(0, 40_000))
def test_a_state_that_does_not_fit_memory_is_the_same_when_it_is_brought_back(story, memory_bytes_max):
    state = CursorState(Position(1, -1))
    for kind, value in [("dense", Position(4, 3)), ("dense", Position(5, PART_ENTRIES + 9)), *story]:
        if kind != "write":
            apply(state, kind, value)
    log = []
    write(state, log, {})
    found = run(log, recovery(len(log) - 1, LEDGERS, memory_bytes_max=memory_bytes_max))
    assert sum(map(found.state.ledger_memory_bytes, found.state.ledger_ids)) <= memory_bytes_max or not found.refs
    assert found.state.backlog(LEDGERS) == state.backlog(LEDGERS)
    assert found.state.acked.range_count == state.acked.range_count
    for ledger_id in found.state.acked.away_ids:
        bring_back(found.state, log, found.refs, ledger_id)
        found.state.check_invariants()
    assert snapshot(found.state) == snapshot(state)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            steps,
            st.tuples(st.just("put away"), st.sampled_from([1, 4, 5])),
            st.tuples(st.just("recover"), st.integers(0, 40_000)),
        ),
        max_size=25,
    )
)
def test_ledgers_put_away_and_brought_back_change_nothing(story):
    """The same story twice: once all in memory, once with ledgers put away whenever they may be."""
    whole, state = CursorState(Position(1, -1)), CursorState(Position(1, -1))
    log, refs = [], {}

    def need(ledger_ids):
        for ledger_id in ledger_ids:
            if state.acked.find_away(ledger_id) is not None:
                bring_back(state, log, refs, ledger_id)

    for kind, value in [("dense", Position(1, 3)), ("dense", Position(4, 3)), *story]:
        if kind == "write":
            refs = write(state, log, refs)
        elif kind == "put away":
            dirty = {ledger_id for ledger_id, _ in state.dirty_parts}
            if value in state.ledger_ids and value not in dirty and value in {ledger_id for ledger_id, _ in refs}:
                state.put_away(value)
        elif kind == "recover":
            refs = write(state, log, refs)
            found = run(log, recovery(len(log) - 1, LEDGERS, memory_bytes_max=value))
            state, refs = found.state, found.refs
        else:
            if kind == "ack":
                need({position.ledger_id for position in value})
            elif kind == "batch":
                need({value[0].ledger_id})
            elif kind != "reset":
                need({value.ledger_id})
            apply(whole, kind, value)
            apply(state, kind, value)
            while state.wanted is not None:
                wanted, state.wanted = state.wanted, None
                need([wanted])
                state.advance(LEDGERS)
        state.check_invariants()
        assert state.mark_delete == whole.mark_delete
        assert state.backlog(LEDGERS) == whole.backlog(LEDGERS)
        for count in (1, 100, 400):
            target = state.skipping(count, LEDGERS)
            if state.wanted is None:
                assert target == whole.skipping(count, LEDGERS)
            state.wanted = None
    need([1, 4, 5])
    assert snapshot(state) == snapshot(whole)


@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=6))
def test_only_changed_parts_are_written_again(changes):
    state = CursorState(Position(1, -1))
    log, refs = [], {}
    for part in range(3):
        base = part * PART_ENTRIES
        state.acknowledge([Position(1, base + i) for i in range(1, 400, 2)], None, LEDGERS)
    refs = write(state, log, refs)
    assert len(log) == 4
    for count, part in enumerate(changes):
        before = len(log)
        state.acknowledge([Position(1, part * PART_ENTRIES + 500 + 2 * count)], None, LEDGERS)
        refs = write(state, log, refs)
        assert len(log) == before + 2
        assert snapshot(recover(log)) == snapshot(state)


@given(st.integers(1, 40))
def test_a_part_larger_than_an_entry_is_cut_and_put_together(limit):
    state = CursorState(Position(1, -1))
    state.acknowledge([Position(1, i) for i in range(1, 600, 2)], None, LEDGERS)
    state.acknowledge([Position(1, 700)], [[5, -1]], LEDGERS)
    whole = cursor_format.SEGMENT_BYTES_MAX
    cursor_format.SEGMENT_BYTES_MAX = limit
    try:
        log = []
        write(state, log, {})
    finally:
        cursor_format.SEGMENT_BYTES_MAX = whole
    assert len(log) > 2
    assert snapshot(recover(log)) == snapshot(state)
    assert recover(log[:-1]) is None
