"""Which ledgers a command sends to the lake."""

from __future__ import annotations

import pytest

from geminga.app.lake_commands import first_to_stay

LEDGERS = [{"ledgerId": number, "size": size} for number, size in ((1, 100), (4, 100), (9, 100), (12, 0))]


@pytest.mark.parametrize(
    ("threshold", "first"), [(0, 12), (99, 12), (100, 9), (199, 9), (250, 4), (299, 4), (300, None)]
)
def test_the_newest_bytes_up_to_the_threshold_stay(threshold, first):
    assert first_to_stay(LEDGERS, threshold) == first


def test_a_topic_with_one_ledger_or_none_keeps_it():
    assert first_to_stay([], 0) is None
    assert first_to_stay([{"ledgerId": 1, "size": 5}], 0) is None
