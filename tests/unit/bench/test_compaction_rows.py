"""Rows of the bench of compaction, and their figures."""

from __future__ import annotations

import pytest
from bench.compaction import CASES, percentile, selected


def test_rows_are_found_by_their_names() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert selected("") == list(CASES)
    assert [case.name for case in selected("ONE an entry or its own")] == [
        "1 KiB, one an entry, 10 a key",
        "32 B, batched, each its own key",
    ]
    assert {len(case.key(number)) for case in CASES for number in (0, 9_999_999)} == {16}


@pytest.mark.parametrize(("values", "share", "found"), [([], 0.99, 0), ([3, 1, 2], 0.5, 2), ([5], 0.99, 5)])
def test_percentiles_are_of_what_was_seen(values: list[float], share: float, found: float) -> None:
    assert percentile(values, share) == found
