"""Writes on the loop: after a slow one none for a pause that doubles, so that a slow disk costs ever fewer stalls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.runtime.core.direct_writes import PAUSE_FIRST_S, PAUSE_MAX_S, SLOW_WRITE_S, DirectWrites

#: (seconds until the next write is wanted, how long it takes)
WANTED = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 0.3, 1.0, 5.0, 70.0, 200.0]), st.sampled_from([0.0, 1e-5, 0.005, 0.006, 2.0])
    ),
    max_size=80,
)


@given(WANTED)
def test_allowed_writes_are_those_of_a_list_of_pauses(wanted):
    writes = DirectWrites()
    now, free_at, pause = 0.0, 0.0, PAUSE_FIRST_S
    for gap, length in wanted:
        now += gap
        assert writes.allows(now) is (now >= free_at)
        if not writes.allows(now):
            continue
        started, now = now, now + length
        writes.took(started, now)
        if now - started > SLOW_WRITE_S:
            free_at = now + pause
            pause = min(pause * 2, PAUSE_MAX_S)
        elif now - free_at >= pause:
            pause = PAUSE_FIRST_S


@given(st.integers(1, 40))
def test_disk_that_is_always_slow_stalls_the_loop_about_once_a_minute(minutes):
    writes, now, stalls = DirectWrites(), 0.0, 0
    while now < 60 * minutes:
        if writes.allows(now):
            writes.took(now, now + 0.1)
            stalls += 1
        now += 0.05
    assert stalls <= 7 + minutes


def test_disk_that_is_quick_is_always_allowed():
    writes = DirectWrites()
    for number in range(1000):
        now = number * 0.001
        assert writes.allows(now)
        writes.took(now, now + SLOW_WRITE_S / 2)
