"""The delayed index against a sorted list: nothing lost, and the promised bounds of each mode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.delayed_delivery import DelayedDeliveryIndex
from geminga.model import Position

BASE = 1_700_000_000_000
messages = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(-2000, 20_000)),
    unique_by=lambda m: (m[0], m[1]),
    max_size=40,
)


@given(messages, st.booleans(), st.sampled_from([1, 100, 1000, 1024]), st.lists(st.integers(1, 4000), max_size=20))
def test_delayed_index_any_steps_of_time_gives_each_in_its_bounds(added, is_strict, tick_ms, steps):
    index = DelayedDeliveryIndex(tick_ms=tick_ms, is_strict=is_strict)
    now = BASE
    waiting: dict[Position, int] = {}
    for ledger_id, entry_id, delay in added:
        position = Position(ledger_id, entry_id)
        if index.add(position, BASE + delay, now):
            waiting[position] = BASE + delay
        else:
            assert delay <= 0 if is_strict else delay < tick_ms
    assert len(index) == len(waiting)
    for step in [*steps, 30_000]:
        previous, now = now, now + step
        due = index.due(now, 1000)
        assert len(set(due)) == len(due)
        for position in due:
            deliver_at = waiting.pop(position)
            if is_strict:
                assert deliver_at <= now
            else:
                assert deliver_at - tick_ms < now
        for deliver_at in waiting.values():
            # Not late: what stays has its time still to come, by at most one bucket in the strict mode.
            assert deliver_at + (tick_ms if is_strict else 0) > now
        assert len(index) == len(waiting)
        assert (index.next_due is None) == (not waiting)
        assert index.next_due is None or index.next_due > now >= previous
    assert not waiting


@given(messages, st.integers(1, 7))
def test_delayed_index_in_small_portions_gives_the_same_in_order_of_buckets(added, portion):
    whole, portions = (DelayedDeliveryIndex(tick_ms=1000, is_strict=False) for _ in range(2))
    for ledger_id, entry_id, delay in added:
        for index in (whole, portions):
            index.add(Position(ledger_id, entry_id), BASE + delay, BASE)
    taken: list[Position] = []
    while more := portions.due(BASE + 30_000, portion):
        assert len(more) <= portion
        taken += more
    assert taken == whole.due(BASE + 30_000, 1000)
