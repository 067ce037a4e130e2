"""Delayed messages as a heap of (time, ledger id, entry id): the tracker that Pulsar began with.

What property tests compare ``broker.core.delayed.time_buckets`` with. It rounds no times, so that a message is due
exactly at its time.
"""

from __future__ import annotations

from heapq import heappop, heappush

from geminga.model import Position


class DelayedHeap:
    """See the module. Times are milliseconds since the epoch."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due(self) -> int | None:
        """When the first message is due; None if nothing waits."""
        return self._heap[0][0] if self._heap else None

    def add(self, ledger_id: int, entry_id: int, deliver_at: int) -> None:
        """Let an entry wait until ``deliver_at``."""
        heappush(self._heap, (deliver_at, ledger_id, entry_id))

    def due(self, now: int, count_max: int) -> list[Position]:
        """Remove and return up to ``count_max`` positions whose time has come, earliest first."""
        heap = self._heap
        result: list[Position] = []
        while heap and heap[0][0] <= now and len(result) < count_max:
            _, ledger_id, entry_id = heappop(heap)
            result.append(Position(ledger_id, entry_id))
        return result
