"""Properties of acknowledgments, against a dictionary and its size."""

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


@pytest.mark.parametrize(("name_bytes", "is_taken"), [(BYTES_MAX - 10, True), (BYTES_MAX - 9, False)])
def test_bound_counts_bytes_of_names_and_ten_of_each_number(name_bytes, is_taken) -> None:
    names = ["x" * (name_bytes - 30), "ää"]  # 4 bytes, and twice ten for a number
    sent = [(names[0], 1), (names[1], 2)]
    size_bytes = sum(len(name.encode()) + 10 for name in names)
    sent.append(("y" * (name_bytes + 10 - size_bytes - 10), 3))
    if is_taken:
        assert ack_properties(sent) == dict(sent)
    else:
        with pytest.raises(NotAllowedError, match=f"take {BYTES_MAX + 1} bytes"):
            ack_properties(sent)
