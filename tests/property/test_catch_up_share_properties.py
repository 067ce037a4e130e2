"""The share of those who catch up, against a sum of how long their turns were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.managed_ledger.rules.catch_up_share import (
    FLOW_S,
    LONG_TURN_S,
    QUIET_TURN_S,
    SAVED_S,
    TURN_S,
    WAIT_MAX_S,
    CatchUpShare,
)

SHARES = st.sampled_from([0.05, 0.25, 0.5, 0.9])
#: What others do between two looks: a publish each, some short, some as long as a connection's turn.
GAPS = st.lists(st.floats(0.000_01, LONG_TURN_S), min_size=50, max_size=300)
#: By how much a turn is longer than it should be.
OVERSHOOT_S = 0.002
TINY_S = 1e-9


def went(share: float, gaps: list[float], used: list[float], late: list[float]) -> tuple[float, float]:
    """Seconds of catching up, and all seconds, where somebody always waits for a turn and somebody always publishes."""
    core = CatchUpShare(share)
    now = total = 0.0
    core.published(now)
    core.took(now, 0.0)
    for number, gap in enumerate(gaps):
        now += gap
        core.published(now)
        turn = core.turn_s(now)
        if not turn:
            wait = core.wait_s(now)
            assert 0 < wait <= WAIT_MAX_S + TINY_S
            # A timer is late, and publishes flow meanwhile.
            now += wait + late[number % len(late)]
            core.published(now)
            turn = core.turn_s(now)
        assert TURN_S <= turn <= LONG_TURN_S
        assert core.wait_s(now) == 0
        took = turn * used[number % len(used)] + OVERSHOOT_S * (used[number % len(used)] > 1)
        now += took
        total += took
        core.took(now, took)
        core.check_invariants()
    return total, now


@given(SHARES, GAPS, st.lists(st.floats(0, 1.1), min_size=1, max_size=20), st.lists(st.floats(0, 0.003), min_size=1))
def test_whoever_catches_up_has_no_more_than_its_share(share, gaps, used, late) -> None:
    total, elapsed = went(share, gaps, used, late)
    # Beyond the share there is what one turn is too long, and what was saved up before it.
    owed = WAIT_MAX_S * share
    if owed >= LONG_TURN_S + OVERSHOOT_S:
        assert total <= share * elapsed + SAVED_S + LONG_TURN_S + OVERSHOOT_S + TINY_S


@given(SHARES, GAPS, st.lists(st.floats(0, 0.001), min_size=1))
def test_whoever_catches_up_has_no_less_than_its_share(share, gaps, late) -> None:
    # Unless others take so long that the longest turn between two of theirs is less.
    longest = LONG_TURN_S * (1 - share) / share / 2
    total, elapsed = went(share, [min(gap, longest) for gap in gaps], [1.0], [min(each, longest) for each in late])
    assert total >= share * elapsed - SAVED_S - LONG_TURN_S - TINY_S


@given(SHARES, st.lists(st.floats(0, 3.0), min_size=1, max_size=50))
def test_next_turn_comes_after_the_longest_wait_whatever_was_taken(share, tooks) -> None:
    core = CatchUpShare(share)
    now = 0.0
    for took in tooks:
        now += took
        core.published(now)
        core.took(now, took)
        core.check_invariants()
        now += core.wait_s(now) + TINY_S
        core.published(now)
        assert core.turn_s(now) > 0


@given(SHARES, st.floats(FLOW_S, 100.0), st.lists(st.floats(0, 1.0), max_size=20))
def test_nobody_waits_while_nobody_publishes(share, since, tooks) -> None:
    core = CatchUpShare(share)
    core.published(0.0)
    now = since + TINY_S
    for took in tooks:
        assert not core.is_limited(now)
        assert core.turn_s(now) == QUIET_TURN_S
        assert core.wait_s(now) == 0
        now += took
        core.took(now, took)
    # What was taken meanwhile is not owed, and nothing is saved up for when somebody does.
    core.published(now)
    assert core.turn_s(now + TINY_S) in (0.0, TURN_S) or not tooks
    assert core.wait_s(now + TINY_S) <= TURN_S / share


def test_whole_share_is_no_limit() -> None:
    core = CatchUpShare(1.0)
    core.published(0.0)
    core.took(0.0, 10.0)
    assert not core.is_limited(0.0)
    assert core.turn_s(0.0) == QUIET_TURN_S


@given(SHARES, st.floats(0, 3600.0))
def test_time_in_which_nobody_wants_a_turn_is_not_saved_up(share, pause) -> None:
    core = CatchUpShare(share)
    core.published(0.0)
    core.took(0.0, 0.0)
    core.published(pause)
    core.asked(pause)
    now = pause
    while turn := core.turn_s(now):
        assert turn == TURN_S
        now += turn
        core.published(now)
        core.took(now, turn)
    assert now - pause <= SAVED_S / (1 - share) + 2 * TURN_S
