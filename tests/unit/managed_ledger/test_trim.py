"""Which ledgers go."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.rules.trim import ledgers_to_trim
from geminga.model.position import Position

#: Three closed ledgers of ten entries and 100 bytes, closed at 1000, 2000 and 3000, and the open one.
LEDGERS = [LedgerInfo(i, 10, 100, 1000 * i) for i in (1, 2, 3)] + [LedgerInfo(4, 5, 50)]


@pytest.mark.parametrize(
    ("slowest", "retention_ms", "retention_bytes", "going"),
    [
        # Without retention everything consumed goes, but never the open ledger.
        (Position(4, 4), 0, 0, [1, 2, 3]),
        (Position(3, 9), 0, 0, [1, 2, 3]),
        (Position(3, 8), 0, 0, [1, 2]),
        (Position(1, 8), 0, 0, []),
        (Position(1, -1), 0, 0, []),
        # No durable cursor holds anything.
        (None, 0, 0, [1, 2, 3]),
        # Kept for ever, by age, by size.
        (Position(4, 4), -1, -1, []),
        (Position(4, 4), 3000, -1, [1, 2]),
        (Position(4, 4), -1, 150, [1, 2]),
        (Position(4, 4), -1, 151, [1]),
        # The first limit that is passed lets it go.
        (Position(4, 4), 4000, 50, [1, 2, 3]),
    ],
)
def test_ledgers_go_when_consumed_and_past_retention(slowest, retention_ms, retention_bytes, going):
    found = ledgers_to_trim(LEDGERS, slowest, retention_ms=retention_ms, retention_bytes=retention_bytes, now_ms=5000)
    assert found == going
