"""Quorums lowered to the bookies that there are, against all triples that they could meet."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from geminga.app.configuration.core.quorums import LedgerQuorums, fit_quorums, meet_quorums

numbers = st.integers(1, 5)


@given(st.builds(LedgerQuorums, numbers, numbers, numbers), numbers)
def test_fitted_quorums_are_the_largest_that_can_be_met(asked: LedgerQuorums, bookies: int) -> None:
    possible = [
        LedgerQuorums(ensemble, write, ack)
        for ensemble, write, ack in product(*(range(1, value + 1) for value in asked))
        if ack <= write <= ensemble <= bookies
    ]
    assert fit_quorums(asked, bookies) == max(possible)
    # No other has more in any place.
    assert all(one <= best for each in possible for one, best in zip(each, max(possible), strict=True))


@given(st.tuples(*[st.one_of(st.none(), numbers)] * 3), numbers)
def test_what_was_said_holds_or_is_named_and_the_rest_fits_it(said: tuple[int | None, ...], bookies: int) -> None:
    met, places = meet_quorums(said, bookies)
    assert 1 <= met.ack <= met.write <= met.ensemble <= bookies
    assert [place for place in range(3) if said[place] not in (None, met[place])] == list(places)
    if not any(said):
        # One copy with one bookie; with several two, so that one may be away and a ledger can still be made.
        assert met == ((1, 1, 1) if bookies == 1 else (2, 2, 2))
        assert bookies <= 2 or met.ensemble < bookies
