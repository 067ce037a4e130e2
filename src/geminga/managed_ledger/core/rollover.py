"""When a ledger is full. Pure.

As Pulsar (``managedLedgerMaxEntriesPerLedger`` and companions): a ledger is full once it has so many entries,
so many bytes or so much age, but never before its minimum age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Room of a ledger that nothing limits at the moment.
UNLIMITED: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class RolloverPolicy:
    """The limits of one ledger; 0 for ``min_age_ms`` means none."""

    max_entries: int
    max_size_bytes: int
    min_age_ms: int
    max_age_ms: int

    def is_full(self, *, entries: int, size_bytes: int, age_ms: int) -> bool:
        """Whether the next entry belongs into a new ledger. An empty ledger never is full."""
        if not entries:
            return False
        reached = entries >= self.max_entries or size_bytes >= self.max_size_bytes or age_ms >= self.max_age_ms
        return reached and (self.min_age_ms <= 0 or age_ms > self.min_age_ms)

    def room_entries(self, *, entries: int, age_ms: int) -> int:
        """How many more entries fit before the count is reached; past it, UNLIMITED until the age allows a roll."""
        left = self.max_entries - entries
        if left > 0 and (self.min_age_ms <= 0 or age_ms > self.min_age_ms):
            return left
        return UNLIMITED if left <= 0 else left
