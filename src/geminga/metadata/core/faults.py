"""How a metadata store misbehaves when told to: what ZooKeeper may do on a bad day. Pure; randomness is passed in.

Every caller of the store is tested against these: a write whose outcome is unknown, having
happened or not; watches that come late, twice or never; slow requests and replies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class WriteFault(Enum):
    """What happens to one write."""

    NONE = "none"
    #: UnknownOutcomeError; the write did not happen.
    UNKNOWN_BEFORE = "unknown_before"
    #: UnknownOutcomeError; the write did happen.
    UNKNOWN_AFTER = "unknown_after"


_NOT_LATE: Final[tuple[int, ...]] = (0,)


@dataclass(slots=True)
class MetadataFaults:
    """Switches, all off at first. Percentages are 0-100 and drawn for each write or notification."""

    unknown_before_percent: float = 0.0
    unknown_after_percent: float = 0.0
    watch_lost_percent: float = 0.0
    watch_twice_percent: float = 0.0
    watch_late_percent: float = 0.0
    #: A late watch comes up to this much later, milliseconds.
    watch_late_ms_max: int = 10_000
    #: Each request, and each reply, takes up to this long, milliseconds. 0: the loop's next turn.
    delay_ms_max: int = 0
    #: Faults of the next writes, before any percentage is asked; for tests that aim at one write.
    next_writes: deque[WriteFault] = field(default_factory=deque)

    def write_fault(self, random: Callable[[], float]) -> WriteFault:
        """What happens to the next write."""
        if self.next_writes:
            return self.next_writes.popleft()
        if not (self.unknown_before_percent or self.unknown_after_percent):
            return WriteFault.NONE
        drawn = random() * 100.0
        if drawn < self.unknown_before_percent:
            return WriteFault.UNKNOWN_BEFORE
        if drawn < self.unknown_before_percent + self.unknown_after_percent:
            return WriteFault.UNKNOWN_AFTER
        return WriteFault.NONE

    def watch_delays_ms(self, random: Callable[[], float]) -> tuple[int, ...]:
        """When a notification is delivered: one delay for each delivery; empty if it is lost."""
        if not (self.watch_lost_percent or self.watch_twice_percent or self.watch_late_percent):
            return _NOT_LATE
        if random() * 100.0 < self.watch_lost_percent:
            return ()
        deliveries = 2 if random() * 100.0 < self.watch_twice_percent else 1
        return tuple(self._one_delay_ms(random) for _ in range(deliveries))

    def _one_delay_ms(self, random: Callable[[], float]) -> int:
        if random() * 100.0 < self.watch_late_percent:
            return int(random() * self.watch_late_ms_max)
        return 0

    def delay_ms(self, random: Callable[[], float]) -> int:
        """How long the next request or reply takes, milliseconds."""
        return int(random() * self.delay_ms_max) if self.delay_ms_max else 0
