"""Recently appended entries of all managed ledgers, for readers at the tail.

One byte budget for the factory. Entries come in when they are confirmed, and go when every active cursor has
read them, when the budget is used up (oldest append first, over all topics), or after
``managedLedgerCacheEvictionTimeThresholdMillis``. What is here is never past the last add confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

#: Entries before the first kept one that a window may carry as holes before it is compacted.
_SLACK_ENTRIES_MAX: Final = 1024


class TailWindow:
    """Consecutive payloads of one ledger."""

    __slots__ = ("_payloads", "_start", "first_entry_id", "ledger_id", "size_bytes")

    def __init__(self, ledger_id: int, first_entry_id: int) -> None:
        self.ledger_id = ledger_id
        #: Entry id of the first payload kept.
        self.first_entry_id = first_entry_id
        self.size_bytes = 0
        self._payloads: list[bytes] = []
        self._start = 0

    @property
    def end_entry_id(self) -> int:
        """Entry id behind the last payload."""
        return self.first_entry_id + len(self._payloads) - self._start

    def extend(self, payloads: Sequence[bytes], size_bytes: int) -> None:
        """Add the next payloads."""
        self._payloads.extend(payloads)
        self.size_bytes += size_bytes

    def get(self, first_entry_id: int, last_entry_id: int) -> list[bytes]:
        """Payloads from ``first_entry_id`` on, up to ``last_entry_id``; empty if the first is not here."""
        offset = first_entry_id - self.first_entry_id
        if offset < 0:
            return []
        start = self._start
        return self._payloads[start + offset : start + last_entry_id + 1 - self.first_entry_id]

    def evict_through(self, entry_id: int) -> int:
        """Drop payloads up to and including ``entry_id``; returns the bytes freed."""
        count = min(entry_id + 1, self.end_entry_id) - self.first_entry_id
        if count <= 0:
            return 0
        payloads = self._payloads
        start = self._start
        if start + count == len(payloads):
            freed = self.size_bytes
            payloads.clear()
            self._start = 0
        else:
            freed = sum(map(len, payloads[start : start + count]))
            payloads[start : start + count] = [b""] * count
            self._start = start + count
            if self._start > _SLACK_ENTRIES_MAX and self._start * 2 > len(payloads):
                del payloads[: self._start]
                self._start = 0
        self.first_entry_id += count
        self.size_bytes -= freed
        return freed


class EntryCache:
    """The budget and the order of eviction; the windows belong to the managed ledgers."""

    __slots__ = ("_is_marked", "_order", "budget_bytes", "evictions", "hits", "misses", "size_bytes")

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.size_bytes = 0
        #: Entries served from here / from bookies, for metrics.
        self.hits = 0
        self.misses = 0
        #: Appends that were thrown out before every reader had them, or were read by nobody.
        self.evictions = 0
        #: Appends, oldest first: the window and the last entry id. None (at most one) marks a tick.
        self._order: deque[tuple[TailWindow, int] | None] = deque()
        self._is_marked = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for eviction."""
        return not self._order

    def add(self, window: TailWindow, payloads: Sequence[bytes], size_bytes: int) -> None:
        """Add the next payloads of ``window``, evicting the oldest of all if the budget is passed."""
        window.extend(payloads, size_bytes)
        self.size_bytes += size_bytes
        self._order.append((window, window.end_entry_id - 1))
        while self.size_bytes > self.budget_bytes and self._order:
            self._evict_oldest()

    def resize(self, budget_bytes: int) -> None:
        """Another budget from now on."""
        self.budget_bytes = budget_bytes
        while self.size_bytes > self.budget_bytes and self._order:
            self._evict_oldest()

    def evict_through(self, window: TailWindow, entry_id: int) -> None:
        """Every active cursor has read up to and including ``entry_id``."""
        self.size_bytes -= window.evict_through(entry_id)

    def drop(self, window: TailWindow) -> None:
        """The window is of no more use."""
        self.size_bytes -= window.evict_through(window.end_entry_id)

    def has_room(self, size_bytes: int) -> bool:
        """Whether :meth:`reserve` would give so much now."""
        return self.size_bytes + size_bytes <= self.budget_bytes

    def reserve(self, size_bytes: int) -> bool:
        """Take bytes of the budget for read-ahead; False if there is no room."""
        if not self.has_room(size_bytes):
            return False
        self.size_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return what :meth:`reserve` took."""
        self.size_bytes -= size_bytes

    def evict_old(self) -> None:
        """Evict what was there at the previous call already; called once per eviction time."""
        while self._is_marked:
            self._evict_oldest()
        if self._order:
            self._order.append(None)
            self._is_marked = True

    def _evict_oldest(self) -> None:
        oldest = self._order.popleft()
        if oldest is None:
            self._is_marked = False
        else:
            self.evictions += 1
            self.size_bytes -= oldest[0].evict_through(oldest[1])
