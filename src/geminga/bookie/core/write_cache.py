"""The write cache: entries by ledger, in two halves, one filling while the other is flushed. Pure.

An entry is here before it is in the journal and stays until the index has it, so that the tail is
read from memory and there is no moment at which a stored entry can not be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

from geminga.model.errors import invariant

LedgerEntries = dict[int, bytes]


class WriteCache:
    """``filling`` takes entries; ``flushing`` is None unless a flush is under way.

    A half is flushed once it has ``flush_bytes``; while the other one is still being flushed it may grow to
    ``half_bytes_max``. So a disk that is behind gets more at a time, and has fewer syncs for it.
    """

    __slots__ = (
        "_flushing_lasts",
        "_lasts",
        "entry_overhead_bytes",
        "filling",
        "filling_bytes",
        "flush_bytes",
        "flushing",
        "flushing_bytes",
        "half_bytes_max",
    )

    def __init__(self, half_bytes_max: int, entry_overhead_bytes: int, flush_bytes: int | None = None) -> None:
        """``flush_bytes``: at most a half; left out: a whole one."""
        self.half_bytes_max = half_bytes_max
        self.flush_bytes = half_bytes_max if flush_bytes is None else min(flush_bytes, half_bytes_max)
        self.entry_overhead_bytes = entry_overhead_bytes
        self.filling: dict[int, LedgerEntries] = {}
        self.filling_bytes = 0
        self.flushing: dict[int, LedgerEntries] | None = None
        self.flushing_bytes = 0
        #: Of each half: ledger -> (number of its entries, highest id of these), of when that was last asked for.
        self._lasts: dict[int, tuple[int, int]] = {}
        self._flushing_lasts: dict[int, tuple[int, int]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the filling half reached its limit; the batch that crosses the limit still goes in."""
        return self.filling_bytes >= self.half_bytes_max

    @property
    def entry_count(self) -> int:
        """Entries in both halves."""
        return sum(len(entries) for half in (self.filling, self.flushing or {}) for entries in half.values())

    @property
    def is_flush_due(self) -> bool:
        """Whether the filling half has enough to be flushed."""
        return self.filling_bytes >= self.flush_bytes

    def put(self, ledger_id: int, first_entry_id: int, entries: Sequence[bytes], size_bytes: int) -> None:
        """Add consecutive entries of ``size_bytes`` in all; the caller minds ``is_full``."""
        cached = self.filling.get(ledger_id)
        if cached is None:
            cached = self.filling[ledger_id] = {}
        if len(entries) == 1:
            cached[first_entry_id] = entries[0]
            self.filling_bytes += size_bytes + self.entry_overhead_bytes
        else:
            cached.update(zip(count(first_entry_id), entries))
            self.filling_bytes += size_bytes + len(entries) * self.entry_overhead_bytes

    def put_each(self, ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes], size_bytes: int) -> None:
        """Like :meth:`put` for entries with gaps, in any order; of an id that comes twice the later one stays."""
        cached = self.filling.get(ledger_id)
        if cached is None:
            cached = self.filling[ledger_id] = {}
        cached.update(zip(entry_ids, entries, strict=True))
        self.filling_bytes += size_bytes + len(entries) * self.entry_overhead_bytes

    def entry_ids(self, ledger_id: int) -> list[int]:
        """Ids of a ledger's entries here, ascending."""
        found = set(self.filling.get(ledger_id, ()))
        if self.flushing is not None:
            found.update(self.flushing.get(ledger_id, ()))
        return sorted(found)

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The entry, or None if it is not here."""
        cached = self.filling.get(ledger_id)
        if cached is not None and (entry := cached.get(entry_id)) is not None:
            return entry
        if self.flushing is not None and (cached := self.flushing.get(ledger_id)) is not None:
            return cached.get(entry_id)
        return None

    def last_entry_id(self, ledger_id: int) -> int:
        """Highest entry id of a ledger here, -1 if none."""
        last = _last_of(self.filling, self._lasts, ledger_id)
        if self.flushing is not None:
            last = max(last, _last_of(self.flushing, self._flushing_lasts, ledger_id))
        return last

    def begin_flush(self) -> dict[int, LedgerEntries]:
        """Turn the halves: what was filling is flushed from now on."""
        invariant(self.flushing is None, "a flush is under way already")
        self.flushing, self.flushing_bytes = self.filling, self.filling_bytes
        self.filling, self.filling_bytes = {}, 0
        self._flushing_lasts, self._lasts = self._lasts, {}
        return self.flushing

    def end_flush(self) -> None:
        """The flushed half is in the index now."""
        invariant(self.flushing is not None, "no flush is under way")
        self.flushing, self.flushing_bytes = None, 0
        self._flushing_lasts = {}

    def drop_ledger(self, ledger_id: int) -> None:
        """Forget a deleted ledger's entries of the filling half (a flush under way writes its half all the same)."""
        cached = self.filling.pop(ledger_id, None)
        self._lasts.pop(ledger_id, None)
        if cached:
            self.filling_bytes -= sum(map(len, cached.values())) + len(cached) * self.entry_overhead_bytes
            self.filling_bytes = max(0, self.filling_bytes)


def _last_of(half: dict[int, LedgerEntries], lasts: dict[int, tuple[int, int]], ledger_id: int) -> int:
    entries = half.get(ledger_id)
    if not entries:
        return -1
    # Readers ask again and again. A dict keeps its order: what came since then is at its end.
    known, last = lasts.get(ledger_id, (0, -1))
    if known < len(entries):
        last = max(last, max(islice(reversed(entries), len(entries) - known)))
        lasts[ledger_id] = (len(entries), last)
    return last
