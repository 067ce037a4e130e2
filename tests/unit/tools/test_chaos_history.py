"""The judge of a history: each way of breaking the promise is seen, and what is allowed is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.chaos.history import Verdict, judge, undelivered

RIGHT = Verdict((), (), (), ())


def test_what_was_never_acknowledged_may_be_there_or_not() -> None:
    assert judge(6, {0, 1, 3}, [0, 1, 3]) == RIGHT
    assert judge(6, {0, 1, 3}, [0, 1, 2, 3, 5]) == RIGHT
    assert judge(0, set(), []).is_right


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ([0, 2, 3], Verdict((1,), (), (), ())),
        ([0, 1, 2], Verdict((3,), (), (), ())),
        ([0, 2, 1, 3], Verdict((), (1,), (), ())),
        ([0, 1, 2, 2, 3], Verdict((), (), (2,), ())),
        ([0, 1, 2, 3, 0], Verdict((), (), (0,), ())),
        ([0, 1, 2, 3, 9], Verdict((), (), (), (9,))),
    ],
)
def test_each_broken_promise_is_named(read: list[int], verdict: Verdict) -> None:
    assert judge(4, {0, 1, 2, 3}, read) == verdict
    assert not verdict.is_right


@given(st.integers(1, 40), st.data())
def test_any_change_of_a_right_history_is_seen(sent: int, data: st.DataObject) -> None:
    everything = list(range(sent))
    assert judge(sent, everything, everything).is_right
    place = data.draw(st.integers(0, sent - 1))
    assert judge(sent, everything, everything[:place] + everything[place + 1 :]).lost == (place,)
    other = data.draw(st.integers(0, sent - 1))
    assert judge(sent, everything, [*everything, other]).duplicated == (other,)
    if place < sent - 1:
        swapped = [*everything]
        swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
        assert judge(sent, everything, swapped).out_of_order == (place,)


def test_what_a_subscription_never_got() -> None:
    assert undelivered({0, 1, 2}, {2, 0, 7}) == (1,)
