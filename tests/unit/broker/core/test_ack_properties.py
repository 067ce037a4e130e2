"""Properties of acknowledgements, against a dictionary and its size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.ack_properties import BYTES_MAX, NO_PROPERTIES, ack_properties
from geminga.model.errors import NotAllowedError

pairs = st.lists(st.tuples(st.text("aä\0", max_size=600), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=12)


@given(pairs)
def test_they_are_what_was_sent_and_little(sent) -> None:
    expected = dict(sent)
    travelling = [(name, number % (1 << 64)) for name, number in sent]
    if sum(len(name.encode()) + 10 for name in expected) <= BYTES_MAX:
        assert ack_properties(travelling) == expected
    else:
        with pytest.raises(NotAllowedError, match="at most 4096"):
            ack_properties(travelling)


def test_none_are_one_object() -> None:
    assert ack_properties([]) is NO_PROPERTIES
