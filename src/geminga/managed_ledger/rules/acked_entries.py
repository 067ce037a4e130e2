"""What keeps the acknowledged entries of one ledger: the interface, and the bitmap behind it. Pure.

A Roaring bitmap takes one bit an entry where acknowledgments are dense, two bytes where they are few, and four
bytes a run where they are contiguous: ten million alternating entries take 1.3 MB. ``core.plain_ranges`` is the
other implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from pyroaring import BitMap

from geminga.model.errors import invariant

#: Entries of a part: what is written as one unit. One Roaring container, 8 KiB at most.
PART_BITS: Final = 16
PART_ENTRIES: Final = 1 << PART_BITS
#: Entry ids are 32-bit here; a ledger is rolled over long before (by entries, size or time).
ENTRY_ID_MAX: Final = (1 << 32) - 2
#: Steps taken one by one before searching for the end of a run.
_LINEAR_STEPS_MAX: Final = 16
#: Bytes of an empty bitmap with its Python objects, and of one container's bookkeeping (measured).
_BITMAP_BYTES: Final = 240
_CONTAINER_BYTES: Final = 48


def first_absent(ids: BitMap, entry_id: int, present: int = 0) -> int:
    """The first id at or behind ``entry_id`` that is not in ``ids``, which has the first ``present`` of them."""
    if not present and entry_id not in ids:
        return entry_id
    width = present or 1
    while ids.contains_range(entry_id, entry_id + 2 * width):
        width *= 2
    low, high = entry_id + width, entry_id + 2 * width
    while low < high:
        middle = (low + high) // 2
        if ids.contains_range(low, middle + 1):
            low = middle + 1
        else:
            high = middle
    return low


class AckedEntries(Protocol):
    """The acknowledged entry ids of one ledger."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def add_many(self, entry_ids: Sequence[int]) -> int:
        """Add entries; returns how many were new."""
        ...

    def add_range(self, first: int, last: int) -> int:
        """Add entries ``first`` to ``last``; returns how many were new."""
        ...

    def contains(self, entry_id: int) -> bool:
        """Whether the entry (id >= 0) is there."""
        ...

    def first_clear(self, entry_id: int) -> int:
        """The first id at or behind ``entry_id`` that is not there."""
        ...

    def clear_ids(self, first: int, last: int) -> Iterable[int]:
        """The ids from ``first`` to ``last`` that are not there, ascending."""
        ...

    def count_behind(self, entry_id: int) -> int:
        """How many ids greater than ``entry_id`` (>= -1) there are."""
        ...

    def discard_through(self, entry_id: int) -> int:
        """Forget everything up to and including an id; returns how many went."""
        ...

    def ranges(self, limit: int) -> list[tuple[int, int]]:
        """The first ``limit`` runs as (first, last), each as long as possible."""
        ...

    @property
    def range_count(self) -> int:
        """How many runs there are."""
        ...

    def parts(self) -> Iterator[int]:
        """Numbers of the parts that have any entry, ascending."""
        ...

    def part_bytes(self, part: int) -> bytes:
        """The entries of a part, relative to its first, as a portable Roaring bitmap; empty for none."""
        ...

    def load_part(self, part: int, data: bytes) -> int:
        """Add what :meth:`part_bytes` gave; returns how many were new. Raises ValueError on other bytes."""
        ...

    @property
    def memory_bytes(self) -> int:
        """About how much memory this takes."""
        ...


MakeAckedEntries = Callable[[], AckedEntries]


class AckedBitmap:
    """A Roaring bitmap; see :class:`AckedEntries`."""

    __slots__ = ("_bitmap",)

    def __init__(self) -> None:
        self._bitmap = BitMap()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._bitmap)

    def add_many(self, entry_ids: Sequence[int]) -> int:
        """Add entries; returns how many were new."""
        bitmap = self._bitmap
        before = len(bitmap)
        if len(entry_ids) == 1:
            bitmap.add(entry_ids[0])
        else:
            bitmap.update(entry_ids)
        return len(bitmap) - before

    def add_range(self, first: int, last: int) -> int:
        """Add entries ``first`` to ``last``; returns how many were new."""
        invariant(first >= 0 and last <= ENTRY_ID_MAX, f"acknowledged {first}..{last}")
        before = len(self._bitmap)
        self._bitmap.add_range(first, last + 1)
        return len(self._bitmap) - before

    def contains(self, entry_id: int) -> bool:
        """Whether the entry (id >= 0) is there."""
        return entry_id in self._bitmap

    def first_clear(self, entry_id: int) -> int:
        """The first id at or behind ``entry_id`` that is not there."""
        bitmap = self._bitmap
        for step in range(_LINEAR_STEPS_MAX):
            if entry_id + step not in bitmap:
                return entry_id + step
        return first_absent(bitmap, entry_id, _LINEAR_STEPS_MAX)

    def clear_ids(self, first: int, last: int) -> Iterable[int]:
        """The ids from ``first`` to ``last`` that are not there, ascending."""
        wanted = range(first, last + 1)
        if self._bitmap.range_cardinality(first, last + 1) == 0:
            return wanted
        return BitMap(wanted) - self._bitmap

    def count_behind(self, entry_id: int) -> int:
        """How many ids greater than ``entry_id`` (>= -1) there are."""
        count: int = self._bitmap.range_cardinality(entry_id + 1, ENTRY_ID_MAX + 1)
        return count

    def discard_through(self, entry_id: int) -> int:
        """Forget everything up to and including an id; returns how many went."""
        before = len(self._bitmap)
        self._bitmap.remove_range(0, entry_id + 1)
        return before - len(self._bitmap)

    def ranges(self, limit: int) -> list[tuple[int, int]]:
        """The first ``limit`` runs as (first, last), each as long as possible."""
        found: list[tuple[int, int]] = []
        for part in self.parts():
            # Part by part: the whole of a large bitmap is not copied for its first few runs.
            window = self._window(part)
            starts = window - window.shift(1)
            ends = window - window.shift(-1)
            for first, last in islice(zip(starts, ends, strict=True), limit + 1):
                if found and found[-1][1] + 1 == first:
                    found[-1] = (found[-1][0], last)
                else:
                    found.append((first, last))
            if len(found) > limit:
                break
        return found[:limit]

    @property
    def range_count(self) -> int:
        """How many runs there are."""
        bitmap = self._bitmap
        return len(bitmap) - bitmap.intersection_cardinality(bitmap.shift(1))

    def parts(self) -> Iterator[int]:
        """Numbers of the parts that have any entry, ascending."""
        bitmap = self._bitmap
        if not bitmap:
            return
        next_id = bitmap.min()
        last = bitmap.max()
        while True:
            part = next_id >> PART_BITS
            yield part
            behind = (part + 1) << PART_BITS
            if last < behind:
                break
            next_id = bitmap.next_set_bit(behind)

    def part_bytes(self, part: int) -> bytes:
        """The entries of a part, relative to its first, as a portable Roaring bitmap; empty for none."""
        base = part << PART_BITS
        bitmap = self._window(part)
        if not bitmap:
            return b""
        bitmap = bitmap.shift(-base) if base else bitmap
        bitmap.run_optimize()
        return bitmap.serialize()

    def load_part(self, part: int, data: bytes) -> int:
        """Add what :meth:`part_bytes` gave; returns how many were new. Raises ValueError on other bytes."""
        loaded = BitMap.deserialize(data)
        base = part << PART_BITS
        before = len(self._bitmap)
        if base:
            loaded = loaded.shift(base)
        if before:
            self._bitmap |= loaded
        else:
            self._bitmap = loaded
        return len(self._bitmap) - before

    @property
    def memory_bytes(self) -> int:
        """About how much memory this takes."""
        found = self._bitmap.get_statistics()
        containers: int = found["n_containers"]
        payload: int = (
            found["n_bytes_array_containers"] + found["n_bytes_run_containers"] + found["n_bytes_bitset_containers"]
        )
        return _BITMAP_BYTES + containers * _CONTAINER_BYTES + payload

    def _window(self, part: int) -> BitMap:
        """A copy of one part, ids as they are."""
        base = part << PART_BITS
        return self._bitmap & BitMap(range(base, base + PART_ENTRIES))
