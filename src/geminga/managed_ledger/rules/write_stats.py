"""How long appends took and how large entries were, per managed ledger. Pure.

Bounds are those of Pulsar's metrics (``pulsar_storage_write_latency_le_*``, ``pulsar_entry_size_le_*``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.model.histogram import Histogram, Spread

#: Microseconds.
LATENCY_BOUNDS_US: Final = (500.0, 1000.0, 5000.0, 10_000.0, 20_000.0, 50_000.0, 100_000.0, 200_000.0, 1_000_000.0)
#: Bytes.
SIZE_BOUNDS: Final = (128.0, 512.0, 1024.0, 2048.0, 4096.0, 16_384.0, 102_400.0, 1_048_576.0)


class WriteStats:
    """Of entries that were stored; made by the first append."""

    __slots__ = ("_at_once", "_waited", "_written", "sizes")

    def __init__(self) -> None:
        #: Microseconds, of what was written as it came.
        self._at_once = Histogram(LATENCY_BOUNDS_US)
        #: Of what waited for a ledger to be opened: with that, and from the write on.
        self._waited = Histogram(LATENCY_BOUNDS_US)
        self._written = Histogram(LATENCY_BOUNDS_US)
        #: Payload bytes.
        self.sizes = Histogram(SIZE_BOUNDS)

    def stored(self, entries: Sequence[bytes], size_bytes: int, whole_s: float, ledger_s: float) -> None:
        """Entries of ``size_bytes`` in all are confirmed, so long after their append, and after their write."""
        count = len(entries)
        if whole_s == ledger_s:
            self._at_once.add(whole_s * 1e6, count)
        else:
            self._waited.add(whole_s * 1e6, count)
            self._written.add(ledger_s * 1e6, count)
        if count == 1:
            self.sizes.add(size_bytes)
            return
        lengths = set(map(len, entries))
        if self.sizes.are_together(min(lengths), max(lengths)):
            self.sizes.add(size_bytes / count, count)
        else:
            self.sizes.add_all(list(map(len, entries)), size_bytes)

    def latencies(self, now_s: float) -> tuple[Spread, Spread]:
        """Microseconds from the append, and from the write, to the confirmation."""
        at_once = self._at_once.window(now_s)
        return at_once.plus(self._waited.window(now_s)), at_once.plus(self._written.window(now_s))
