"""What came out, held against what went in: pure counting, no clock, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Verdict:
    """Sets hold numbers of events, in publish order from 0."""

    published: int
    acknowledged: set[int]
    #: Sent and not acknowledged when the broker was killed.
    in_flight_at_kill: set[int]
    received: int = 0
    first_seen: set[int] = field(default_factory=set)
    duplicates: list[int] = field(default_factory=list)
    out_of_order: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    _last_of_key: dict[str, int] = field(default_factory=dict)

    def see(self, number: int, data: bytes, rows: Sequence[tuple[str, bytes]], ordered: str | None = None) -> None:
        """One delivery, in the order of delivery. ``ordered``: with what, in the place of those of its key."""
        self.received += 1
        if not 0 <= number < len(rows) or rows[number][1] != data:
            self.damaged.append(number)
            return
        if number in self.first_seen:
            self.duplicates.append(number)
            return
        self.first_seen.add(number)
        key = rows[number][0] if ordered is None else ordered
        if number < self._last_of_key.get(key, -1):
            self.out_of_order.append(number)
        self._last_of_key[key] = number

    @property
    def lost(self) -> set[int]:
        """Acknowledged and never delivered."""
        return self.acknowledged - self.first_seen

    @property
    def unexplained_duplicates(self) -> list[int]:
        """Delivered again although they were not in flight when the broker was killed."""
        return [number for number in self.duplicates if number not in self.in_flight_at_kill]

    def failures(self, *, expects_no_duplicates: bool) -> list[str]:
        """Every reason why this run is not a success, as sentences."""
        found = []
        if len(self.acknowledged) < self.published:
            found.append(f"{self.published - len(self.acknowledged):,} were never acknowledged")
        if self.lost:
            found.append(f"{len(self.lost):,} acknowledged events were lost, the first is {min(self.lost)}")
        if self.out_of_order:
            found.append(f"{len(self.out_of_order):,} came out of order, the first is {self.out_of_order[0]}")
        if self.damaged:
            found.append(f"{len(self.damaged):,} were not what was published")
        if expects_no_duplicates and self.duplicates:
            found.append(f"{len(self.duplicates):,} duplicates in spite of deduplication")
        if self.unexplained_duplicates:
            found.append(f"{len(self.unexplained_duplicates):,} duplicates were not in flight at the kill")
        return found
