"""Sizes of restored ledgers: whatever is given and whatever a ledger had, one can be made with them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from geminga.app.storage.core.restore_marks import RestoredSizes
from geminga.model.errors import ConfigurationError
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata

SIZES = st.tuples(*[st.integers(1, 6)] * 3).map(lambda sizes: sorted(sizes, reverse=True))
GIVEN = st.tuples(*[st.integers(0, 6)] * 3)


@given(had=SIZES, given=GIVEN)
def test_sizes_are_in_order_and_what_is_given_is_kept(had: list[int], given: tuple[int, int, int]) -> None:
    ensemble, write, ack = had
    ledger = LedgerMetadata(ensemble, write, ack, (LedgerFragment(0, tuple(map(str, range(ensemble)))),))
    named = [size for size in given if size]
    try:
        sizes = RestoredSizes(*given)
    except ConfigurationError:
        assert any(one < two for one, two in itertools.pairwise(named))
        return
    made = sizes.of(ledger)
    assert made[0] >= made[1] >= made[2] >= 1
    for size, wanted, before in zip(made, given, had, strict=True):
        assert size == wanted if wanted else True
        # As many copies as before, unless what is given has room for fewer, or wants more.
        assert size == before or any(given)
