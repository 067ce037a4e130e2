"""When a ledger is full."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.rules.rollover import RolloverPolicy

POLICY = RolloverPolicy(max_entries=10, max_size_bytes=1000, min_age_ms=60_000, max_age_ms=600_000)


@pytest.mark.parametrize(
    ("entries", "size_bytes", "age_ms", "is_full"),
    [
        (9, 999, 100_000, False),
        (10, 0, 100_000, True),
        (1, 1000, 100_000, True),
        (10, 1000, 60_000, False),
        (10, 1000, 60_001, True),
        (1, 1, 599_999, False),
        (1, 1, 600_000, True),
        (0, 0, 700_000, False),
    ],
)
def test_ledger_is_full_by_entries_size_or_age_but_never_before_its_minimum_age(entries, size_bytes, age_ms, is_full):
    assert POLICY.is_full(entries=entries, size_bytes=size_bytes, age_ms=age_ms) is is_full


def test_ledger_without_minimum_age_is_full_at_once():
    policy = RolloverPolicy(max_entries=1, max_size_bytes=1000, min_age_ms=0, max_age_ms=600_000)
    assert policy.is_full(entries=1, size_bytes=0, age_ms=0)
