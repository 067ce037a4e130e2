"""Quorums lowered to the bookies that there are, against all triples that they could meet."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from geminga.app.core.quorums import Quorums, fit_quorums

numbers = st.integers(1, 5)


@given(st.builds(Quorums, numbers, numbers, numbers), numbers)
def test_fitted_quorums_are_the_largest_that_can_be_met(asked: Quorums, bookies: int) -> None:
    possible = [
        Quorums(ensemble, write, ack)
        for ensemble, write, ack in product(*(range(1, value + 1) for value in asked))
        if ack <= write <= ensemble <= bookies
    ]
    assert fit_quorums(asked, bookies) == max(possible)
    # No other has more in any place.
    assert all(one <= best for each in possible for one, best in zip(each, max(possible), strict=True))
