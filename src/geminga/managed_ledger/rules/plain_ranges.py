"""Acknowledged entries of one ledger as a plain list of ranges: what the bitmap is compared with. Pure.

Two ascending lists, firsts and lasts: some 80 bytes a range, whatever its length. Good where acknowledgments come in
order, 10 to 500 times the bitmap where they alternate (``python -m bench cursor``). In use with
``managedLedgerUnackedRangesOpenCacheSetEnabled=false``, as the ranges of Pulsar; on disk both are the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyroaring import BitMap

from geminga.managed_ledger.rules.acked_entries import ENTRY_ID_MAX, PART_BITS, PART_ENTRIES
from geminga.model.errors import invariant

#: Bytes of an empty set, and of one range: two ints and two places in lists (measured).
_EMPTY_BYTES: Final = 200
_RANGE_BYTES: Final = 80


class PlainRanges:
    """Sorted, disjoint ranges that do not touch; see ``rules.acked_entries.AckedEntries``."""

    __slots__ = ("_count", "_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        """How many entries there are."""
        return self._count

    def add_many(self, entry_ids: Sequence[int]) -> int:
        """Add entries; returns how many were new."""
        return sum([self._add(entry_id, entry_id) for entry_id in entry_ids])

    def add_range(self, first: int, last: int) -> int:
        """Add entries ``first`` to ``last``; returns how many were new."""
        invariant(first >= 0 and last <= ENTRY_ID_MAX, f"acknowledged {first}..{last}")
        return self._add(first, last)

    def contains(self, entry_id: int) -> bool:
        """Whether the entry (id >= 0) is there."""
        index = bisect_right(self._firsts, entry_id) - 1
        return index >= 0 and entry_id <= self._lasts[index]

    def first_clear(self, entry_id: int) -> int:
        """The first id at or behind ``entry_id`` that is not there."""
        index = bisect_right(self._firsts, entry_id) - 1
        return self._lasts[index] + 1 if index >= 0 and entry_id <= self._lasts[index] else entry_id

    def clear_ids(self, first: int, last: int) -> Iterable[int]:
        """The ids from ``first`` to ``last`` that are not there, ascending."""
        index = bisect_left(self._lasts, first)
        while first <= last:
            begin = self._firsts[index] if index < len(self._firsts) else last + 1
            yield from range(first, min(begin, last + 1))
            if index == len(self._firsts):
                return
            first = max(first, self._lasts[index] + 1)
            index += 1

    def count_behind(self, entry_id: int) -> int:
        """How many ids greater than ``entry_id`` (>= -1) there are."""
        index = bisect_right(self._lasts, entry_id)
        behind = zip(self._firsts[index:], self._lasts[index:], strict=True)
        return sum([last - max(first, entry_id + 1) + 1 for first, last in behind])

    def discard_through(self, entry_id: int) -> int:
        """Forget everything up to and including an id; returns how many went."""
        before = self._count
        whole = bisect_right(self._lasts, entry_id)
        self._count -= sum(self._lasts[:whole]) - sum(self._firsts[:whole]) + whole
        del self._firsts[:whole], self._lasts[:whole]
        if self._firsts and self._firsts[0] <= entry_id:
            self._count -= entry_id + 1 - self._firsts[0]
            self._firsts[0] = entry_id + 1
        return before - self._count

    def ranges(self, limit: int) -> list[tuple[int, int]]:
        """The first ``limit`` runs as (first, last)."""
        return list(zip(self._firsts[:limit], self._lasts[:limit], strict=True))

    @property
    def range_count(self) -> int:
        """How many runs there are."""
        return len(self._firsts)

    def parts(self) -> Iterator[int]:
        """Numbers of the parts that have any entry, ascending."""
        behind = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(max(first >> PART_BITS, behind), (last >> PART_BITS) + 1)
            behind = (last >> PART_BITS) + 1

    def part_bytes(self, part: int) -> bytes:
        """The entries of a part, relative to its first, as a portable Roaring bitmap; empty for none."""
        base = part << PART_BITS
        bitmap = BitMap()
        for index in range(bisect_left(self._lasts, base), bisect_left(self._firsts, base + PART_ENTRIES)):
            first, last = max(self._firsts[index] - base, 0), min(self._lasts[index] - base, PART_ENTRIES - 1)
            bitmap.add_range(first, last + 1)
        if not bitmap:
            return b""
        bitmap.run_optimize()
        return bitmap.serialize()

    def load_part(self, part: int, data: bytes) -> int:
        """Add what :meth:`part_bytes` gave; returns how many were new. Raises ValueError on other bytes."""
        loaded = BitMap.deserialize(data)
        base = part << PART_BITS
        runs = zip(loaded - loaded.shift(1), loaded - loaded.shift(-1), strict=True)
        return sum([self._add(base + first, base + last) for first, last in runs])

    @property
    def memory_bytes(self) -> int:
        """About how much memory this takes."""
        return _EMPTY_BYTES + _RANGE_BYTES * len(self._firsts)

    def _add(self, first: int, last: int) -> int:
        """Add a range, merging it with all that it overlaps or touches; returns how many entries were new."""
        firsts, lasts = self._firsts, self._lasts
        begin = bisect_left(lasts, first - 1)
        end = bisect_right(firsts, last + 1)
        covered = sum([lasts[i] - firsts[i] + 1 for i in range(begin, end)])
        if begin < end:
            first, last = min(first, firsts[begin]), max(last, lasts[end - 1])
        firsts[begin:end] = [first]
        lasts[begin:end] = [last]
        added = last - first + 1 - covered
        self._count += added
        return added
