"""When a ledger is full. Pure.

As Pulsar (``managedLedgerMaxEntriesPerLedger`` and companions): a ledger is full once it has so many entries,
so many bytes or so much age, but never before its minimum age.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

#: While a full ledger waits for its minimum age, the age is looked at again after so many entries.
RECHECK_ENTRIES: Final = 1000


class Room(NamedTuple):
    """What a ledger takes."""

    entries: int
    size_bytes: int


class RolloverPolicy(NamedTuple):
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

    def room(self, *, entries: int, size_bytes: int) -> Room:
        """How much a ledger that is not full takes before that is to be asked again."""
        left = Room(self.max_entries - entries, self.max_size_bytes - size_bytes)
        # Past a limit and not full: it waits for its minimum age.
        return left if min(left) > 0 else Room(RECHECK_ENTRIES, self.max_size_bytes)


def part_that_fits(payloads: Sequence[bytes], first: int, room: Room) -> tuple[int, int]:
    """Of ``payloads`` from index ``first`` on, those that the room takes: where they end, and their bytes.

    The one that goes over the bytes is included, so there is one at least while there is any room.
    """
    end = min(len(payloads), first + room.entries)
    size_bytes = 0
    position = first
    while position < end and size_bytes < room.size_bytes:
        size_bytes += len(payloads[position])
        position += 1
    return position, size_bytes
