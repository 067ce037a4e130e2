"""Entries acknowledged beyond the mark-delete position ("holes"), one bitmap per ledger. Pure.

Roaring bitmaps keep a dense ledger at one bit an entry and a run at a few bytes: ten million alternating
entries take 1.3 MB. Positions at or below the mark-delete position are not kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pyroaring import BitMap

from geminga.model.errors import invariant

#: Entries of a part: what is written as one unit. One Roaring container, 8 KiB at most.
PART_BITS: Final = 16
PART_ENTRIES: Final = 1 << PART_BITS
#: Entry ids are 32-bit here; a ledger is rolled over long before (DESIGN: entries, size, time).
ENTRY_ID_MAX: Final = (1 << 32) - 2
#: Steps taken one by one before searching for the end of a run.
_LINEAR_STEPS_MAX: Final = 16


class AckedRange(NamedTuple):
    """Acknowledged entries ``first`` to ``last`` of a ledger, both included."""

    ledger_id: int
    first: int
    last: int


class AckRanges:
    """The holes. ``count`` is how many entries they are."""

    __slots__ = ("_ledgers", "count")

    def __init__(self) -> None:
        self._ledgers: dict[int, BitMap] | None = None
        self.count = 0

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers that have holes, ascending."""
        return sorted(self._ledgers) if self._ledgers else []

    def add_many(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        """Add entries of one ledger; returns how many were new."""
        bitmap = self._bitmap(ledger_id)
        before = len(bitmap)
        if len(entry_ids) == 1:
            bitmap.add(entry_ids[0])
        else:
            bitmap.update(entry_ids)
        added = len(bitmap) - before
        self.count += added
        return added

    def add_range(self, ledger_id: int, first: int, last: int) -> int:
        """Add entries ``first`` to ``last``; returns how many were new."""
        if last < first:
            return 0
        invariant(first >= 0 and last <= ENTRY_ID_MAX, f"acknowledged {ledger_id}:{first}..{last}")
        bitmap = self._bitmap(ledger_id)
        before = len(bitmap)
        bitmap.add_range(first, last + 1)
        added = len(bitmap) - before
        self.count += added
        return added

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry is in a hole."""
        if self._ledgers is None:
            return False
        bitmap = self._ledgers.get(ledger_id)
        return bitmap is not None and entry_id >= 0 and entry_id in bitmap

    def has_ledger(self, ledger_id: int) -> bool:
        """Whether any entry of the ledger is in a hole."""
        return self._ledgers is not None and ledger_id in self._ledgers

    def first_clear(self, ledger_id: int, entry_id: int) -> int:
        """The first entry id at or behind ``entry_id`` that is in no hole."""
        bitmap = self._ledgers.get(ledger_id) if self._ledgers else None
        if bitmap is None:
            return entry_id
        for step in range(_LINEAR_STEPS_MAX):
            if entry_id + step not in bitmap:
                return entry_id + step
        width = _LINEAR_STEPS_MAX
        while bitmap.contains_range(entry_id, entry_id + 2 * width):
            width *= 2
        low, high = entry_id + width, entry_id + 2 * width
        while low < high:
            middle = (low + high) // 2
            if bitmap.contains_range(low, middle + 1):
                low = middle + 1
            else:
                high = middle
        return low

    def clear_ids(self, ledger_id: int, first: int, last: int) -> Iterable[int]:
        """The entry ids from ``first`` to ``last`` that are in no hole, ascending."""
        bitmap = self._ledgers.get(ledger_id) if self._ledgers else None
        wanted = range(first, last + 1)
        if bitmap is None or bitmap.range_cardinality(first, last + 1) == 0:
            return wanted
        return BitMap(wanted) - bitmap

    def discard_through(self, ledger_id: int, entry_id: int) -> None:
        """Forget everything up to and including a position."""
        ledgers = self._ledgers
        if not ledgers:
            return
        for behind in [known for known in ledgers if known < ledger_id]:
            self.count -= len(ledgers.pop(behind))
        bitmap = ledgers.get(ledger_id)
        if bitmap is not None and entry_id >= 0:
            before = len(bitmap)
            bitmap.remove_range(0, entry_id + 1)
            self.count -= before - len(bitmap)
            if not bitmap:
                del ledgers[ledger_id]
        if not ledgers:
            self._ledgers = None

    def discard_ledger(self, ledger_id: int) -> None:
        """Forget one ledger."""
        if self._ledgers is not None and ledger_id in self._ledgers:
            self.count -= len(self._ledgers.pop(ledger_id))
            if not self._ledgers:
                self._ledgers = None

    def clear(self) -> None:
        """Forget everything."""
        self._ledgers = None
        self.count = 0

    def ranges(self, limit: int) -> list[AckedRange]:
        """The oldest ``limit`` ranges, each as long as possible within its ledger."""
        found: list[AckedRange] = []
        for ledger_id in self.ledger_ids:
            room = limit - len(found)
            if room <= 0:
                break
            bitmap = self._bitmap(ledger_id)
            starts = bitmap - bitmap.shift(1)
            ends = bitmap - bitmap.shift(-1)
            found.extend(AckedRange(ledger_id, a, b) for a, b in islice(zip(starts, ends, strict=True), room))
        return found

    def parts(self) -> Iterator[tuple[int, int]]:
        """(ledger id, part) of every part that has a hole, ascending."""
        for ledger_id in self.ledger_ids:
            bitmap = self._bitmap(ledger_id)
            next_id = bitmap.min()
            last = bitmap.max()
            while True:
                part = next_id >> PART_BITS
                yield ledger_id, part
                behind = (part + 1) << PART_BITS
                if last < behind:
                    break
                next_id = bitmap.next_set_bit(behind)

    def part_bytes(self, ledger_id: int, part: int) -> bytes:
        """The holes of a part, relative to its first entry, as a portable Roaring bitmap; empty for none."""
        bitmap = self._ledgers.get(ledger_id) if self._ledgers else None
        if bitmap is None:
            return b""
        base = part << PART_BITS
        if base or bitmap.max() >= PART_ENTRIES:
            bitmap = bitmap & BitMap(range(base, base + PART_ENTRIES))
            if not bitmap:
                return b""
            bitmap = bitmap.shift(-base)
        else:
            bitmap = bitmap.copy()
        bitmap.run_optimize()
        return bitmap.serialize()

    def load_part(self, ledger_id: int, part: int, data: bytes) -> None:
        """Add what :meth:`part_bytes` gave; raises ValueError on bytes that are no bitmap."""
        if not data:
            return
        loaded = BitMap.deserialize(data)
        base = part << PART_BITS
        bitmap = self._bitmap(ledger_id)
        before = len(bitmap)
        bitmap |= loaded.shift(base) if base else loaded
        self.count += len(bitmap) - before

    def check_invariants(self) -> None:
        """Raise InvariantError unless the counts agree."""
        ledgers = self._ledgers or {}
        total = sum(len(bitmap) for bitmap in ledgers.values())
        invariant(total == self.count, f"{self.count} holes counted, {total} there")
        invariant(all(ledgers.values()), "a ledger without holes is kept")

    def _bitmap(self, ledger_id: int) -> BitMap:
        ledgers = self._ledgers
        if ledgers is None:
            ledgers = self._ledgers = {}
        bitmap = ledgers.get(ledger_id)
        if bitmap is None:
            bitmap = ledgers[ledger_id] = BitMap()
        return bitmap
