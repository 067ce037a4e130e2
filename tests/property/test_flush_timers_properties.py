"""When cursors are persisted that nobody waits for, under random acknowledgments and rates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga import sim
from geminga.managed_ledger.rules.persistence import RETRY_S_MIN, Persistence, flush_due_s
from geminga.managed_ledger.shared.flush_timers import FlushTimers

times = st.floats(0, 1000, allow_nan=False)
intervals = st.sampled_from([0.0, 0.1, 0.5, 1.0, 7.0])


@given(st.floats(0, 1000), st.floats(1, 100))
def test_interval_is_that_of_the_rate_and_never_longer_than_allowed(rate, longest_s):
    interval_s = Persistence(1, 1, 1, rate).flush_interval_s(longest_s)
    assert 0 <= interval_s <= longest_s
    assert (interval_s == 0) == (rate == 0)
    assert interval_s * rate <= 1.0001


@given(times, times, intervals, st.booleans())
def test_due_is_never_in_the_past_nor_later_than_an_interval(now_s, before_s, interval_s, is_retry):
    flushed_s = now_s - before_s
    due_s = flush_due_s(now_s, flushed_s, interval_s, is_retry=is_retry)
    assert now_s <= due_s <= now_s + max(interval_s, RETRY_S_MIN)
    assert due_s >= flushed_s + interval_s
    assert not is_retry or due_s >= now_s + RETRY_S_MIN


class Cursor:
    """Notes when it was flushed, and since when it wants to be."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.since_s = None
        self.waited = []
        self.flushes = []

    def start_flush(self) -> None:
        now_s = self.clock.monotonic()
        if self.since_s is not None:
            self.waited.append(now_s - self.since_s)
            self.since_s = None
        self.flushes.append(now_s)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 3)), min_size=1, max_size=60),
    st.lists(intervals, min_size=4, max_size=4),
)
def test_each_cursor_is_flushed_within_its_interval_and_no_more_often(steps, its_intervals):
    async def story(world):
        clock = world.node("broker").runtime.clock
        timers = FlushTimers(clock)
        cursors = [Cursor(clock) for _ in its_intervals]
        for wait_s, number in steps:
            await world.sleep(wait_s)
            cursor = cursors[number]
            cursor.since_s = clock.monotonic() if cursor.since_s is None else cursor.since_s
            timers.flush_later(cursor, its_intervals[number])
        await world.sleep(8)
        assert timers.is_idle
        for cursor, interval_s in zip(cursors, its_intervals, strict=True):
            assert cursor.since_s is None
            assert all(waited <= interval_s + 0.01 for waited in cursor.waited)
            gaps = [later - earlier for earlier, later in zip(cursor.flushes, cursor.flushes[1:], strict=False)]
            assert all(gap >= interval_s - 1e-6 for gap in gaps)

    sim.run(story)
