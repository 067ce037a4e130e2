"""How long what broke is held, against a plain retelling of the rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.holds import FORGET_MS, HOLD_FIRST_MS, HOLD_MAX_MS, NAMES_MAX, Holds

steps = st.lists(
    st.tuples(st.sampled_from("ab"), st.one_of(st.integers(0, 5_000), st.integers(0, 3 * FORGET_MS)), st.booleans()),
    max_size=60,
)


@given(steps)
def test_hold_doubles_with_each_failure_that_follows_soon(happenings) -> None:
    holds = Holds()
    history: dict[str, list[int]] = {"a": [], "b": []}
    now_ms = 0
    for name, gap_ms, is_failure in happenings:
        now_ms += gap_ms
        end_ms, hold_ms = told(history[name])
        assert holds.left_ms(name, now_ms) == max(0, end_ms - now_ms)
        if is_failure:
            history[name].append(now_ms)
            end_ms, hold_ms = told(history[name])
            assert holds.broke(name, now_ms) == hold_ms
            assert holds.left_ms(name, now_ms) == hold_ms
            assert HOLD_FIRST_MS <= hold_ms <= HOLD_MAX_MS


def told(failures: list[int]) -> tuple[int, int]:
    """(when the hold ends, how long it is), told from all failures of a name."""
    end_ms, doublings = -FORGET_MS, 0
    hold_ms = 0
    for index, at_ms in enumerate(failures):
        if index == 0 or at_ms - end_ms >= FORGET_MS:
            doublings = 0
        elif at_ms >= end_ms:
            doublings += 1
        hold_ms = min(HOLD_FIRST_MS * 2**doublings, HOLD_MAX_MS)
        end_ms = at_ms + hold_ms
    return end_ms, hold_ms


def test_names_are_bounded() -> None:
    holds = Holds()
    for number in range(NAMES_MAX + 10):
        holds.broke(str(number), number)
    assert len(holds) == NAMES_MAX
    assert not holds.left_ms("0", 20)
    assert holds.left_ms(str(NAMES_MAX + 9), NAMES_MAX + 9) == HOLD_FIRST_MS
