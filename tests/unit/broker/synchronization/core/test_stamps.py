"""When, and in which cluster, something was changed."""

from __future__ import annotations

import pytest

from geminga.broker.synchronization.core.stamps import Stamp, stamp_of


@pytest.mark.parametrize("text", ["", "7", "@east", "7@", "x@east", "-7@east", "٣@east", f"{'9' * 20}@east"])
def test_what_is_no_stamp_is_none(text: str) -> None:
    assert stamp_of(text) is None


def test_stamps_are_ordered_by_time_then_by_cluster() -> None:
    assert Stamp(1, "west") < Stamp(2, "east") < Stamp(2, "west")


def test_stamp_is_read_as_it_was_written() -> None:
    assert stamp_of(str(Stamp(17, "e@st"))) == Stamp(17, "e@st")
