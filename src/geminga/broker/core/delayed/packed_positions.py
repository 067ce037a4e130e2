"""A set of positions in few bytes: what one slot or one bucket of the delayed index holds. Pure.

A position is packed into one 64-bit item: 8 bits say which bucket of the slot, 24 bits which ledger (its number in the
index's table), 32 bits are the entry id. Items sort as (bucket, ledger number, entry id). Three forms, each taken where
it is the smallest:

* a single item, 8 bytes: delays drawn at random put neighbours into different buckets;
* a run (first item, count), 16 bytes however long: delays that rise with the publish time, or are all the same;
* a bitmap per bucket and ledger, about 2 bytes an entry down to one bit: many entries of a ledger, but not in a row.

Singles become bitmaps when there are many of the same bucket and ledger, which is looked for at doubling sizes.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pyroaring import BitMap

#: Buckets of a slot: one item names them.
SLOT_BITS: Final = 8
ENTRY_BITS: Final = 32
LEDGER_BITS: Final = 24
BUCKET_SHIFT: Final = LEDGER_BITS + ENTRY_BITS
ENTRY_MASK: Final = (1 << ENTRY_BITS) - 1
LEDGER_MASK: Final = (1 << LEDGER_BITS) - 1
SLOT_MASK: Final = (1 << SLOT_BITS) - 1
#: Ledgers an index can number.
LEDGERS_MAX: Final = 1 << LEDGER_BITS

#: Singles before anybody looks whether bitmaps would be smaller.
_COMPACT_MIN: Final = 4096
#: Entries of one bucket and ledger from which a bitmap (about 200 bytes and 2 an entry) is smaller than singles.
_BITMAP_MIN: Final = 64
#: One item in so many is looked at before sorting all of them.
_SAMPLE_STEP: Final = 17

#: Where an item's bucket lies in its bytes, and its entry id in its halves.
_BUCKET_BYTE: Final = 7 if sys.byteorder == "little" else 0
_LOW_HALF: Final = 0 if sys.byteorder == "little" else 1

#: Entries of one ledger, ascending: what a bucket is made of once its time is near.
Group = tuple[int, "Sequence[int] | BitMap"]


class PackedPositions:
    """See the module."""

    __slots__ = ("_compact_at", "bitmaps", "groups", "runs", "singles")

    def __init__(self) -> None:
        self.singles = array("Q")
        #: First item and count, in turn.
        self.runs = array("Q")
        #: Item without entry id -> entry ids.
        self.bitmaps: dict[int, BitMap] = {}
        #: Of a bucket whose time is near: what was here when it was sealed, by ledger, less what was released.
        self.groups: list[Group] = []
        #: Singles from which :meth:`compact` looks again.
        self._compact_at = _COMPACT_MIN

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not (self.singles or self.runs or self.bitmaps or self.groups)

    @property
    def memory_bytes(self) -> int:
        """About what is in it."""
        size = 8 * (len(self.singles) + len(self.runs))
        size += sum(map(bitmap_bytes, self.bitmaps.values()))
        return size + sum(bitmap_bytes(ids) if isinstance(ids, BitMap) else 40 * len(ids) for _, ids in self.groups)

    def add_range(self, first: int, count: int) -> None:
        """Add ``count`` entries in a row, ``first`` being the item of the first."""
        if count == 1:
            self.singles.append(first)
        elif count:
            self.runs.append(first)
            self.runs.append(count)

    def ledger_numbers(self) -> set[int]:
        """Of which ledgers, by number, there is anything."""
        numbers = {item >> ENTRY_BITS & LEDGER_MASK for item in self.singles}
        numbers.update(item >> ENTRY_BITS & LEDGER_MASK for item in self.runs[::2])
        numbers.update(key & LEDGER_MASK for key in self.bitmaps)
        return numbers

    def by_ledger(self) -> dict[int, BitMap]:
        """The entry ids by ledger number, whatever their bucket."""
        ledgers = {number: BitMap(entry_ids) for number, entry_ids in _singles_by_ledger(self.singles)}
        runs = iter(self.runs)
        for first, count in zip(runs, runs, strict=True):
            ids = ledgers.setdefault(first >> ENTRY_BITS & LEDGER_MASK, BitMap())
            ids.add_range(first & ENTRY_MASK, (first & ENTRY_MASK) + count)
        for key, bitmap in self.bitmaps.items():
            number = key & LEDGER_MASK
            ledgers[number] = ledgers[number] | bitmap if number in ledgers else bitmap
        return ledgers

    def extend(self, other: PackedPositions) -> None:
        """Add what ``other`` has."""
        self.singles.extend(other.singles)
        self.runs.extend(other.runs)
        for key, bitmap in other.bitmaps.items():
            self.bitmaps[key] = self.bitmaps[key] | bitmap if key in self.bitmaps else bitmap

    def split(self) -> dict[int, PackedPositions]:
        """The same, by bucket of the slot; this object must not be used afterwards."""
        buckets: dict[int, PackedPositions] = {}
        ordered = array("Q", sorted(self.singles))
        start = 0
        while start < len(ordered):
            bucket = ordered[start] >> BUCKET_SHIFT
            end = bisect_left(ordered, (bucket + 1) << BUCKET_SHIFT, start)
            _of(buckets, bucket).singles = ordered[start:end]
            start = end
        runs = iter(self.runs)
        for first, count in zip(runs, runs, strict=True):
            target = _of(buckets, first >> BUCKET_SHIFT).runs
            target.append(first)
            target.append(count)
        for key, bitmap in self.bitmaps.items():
            _of(buckets, key >> LEDGER_BITS).bitmaps[key] = bitmap
        return buckets

    def seal(self, ledger_ids: Sequence[int], members: Callable[[int], BitMap | None] | None = None) -> list[Group]:
        """The positions by ledger id, ascending. ``members`` gives the entries of a ledger that still count, where
        some were discarded; None: all do."""
        if not (self.singles or self.runs or self.bitmaps):
            return self.groups
        found: dict[int, list[int] | BitMap] = {}
        for ledger_id, known in self.groups:
            found[ledger_id] = BitMap(known)
        runs = iter(self.runs)
        for first, count in zip(runs, runs, strict=True):
            entry_id = first & ENTRY_MASK
            ids = _bitmap(found, ledger_ids[first >> ENTRY_BITS & LEDGER_MASK])
            ids.add_range(entry_id, entry_id + count)
        for key, bitmap in self.bitmaps.items():
            ids = _bitmap(found, ledger_ids[key & LEDGER_MASK])
            ids |= bitmap
        for item in sorted(self.singles):
            ledger_id = ledger_ids[item >> ENTRY_BITS & LEDGER_MASK]
            entries = found.get(ledger_id)
            if entries is None:
                found[ledger_id] = [item & ENTRY_MASK]
            elif isinstance(entries, BitMap):
                entries.add(item & ENTRY_MASK)
            elif entries[-1] != item & ENTRY_MASK:
                entries.append(item & ENTRY_MASK)
        groups: list[Group] = []
        for ledger_id in sorted(found):
            wanted: Sequence[int] | BitMap = found[ledger_id]
            if len(wanted) >= _BITMAP_MIN:
                wanted = BitMap(wanted)
            if members is not None:
                wanted = BitMap(wanted) & (members(ledger_id) or BitMap())
            if wanted:
                groups.append((ledger_id, wanted))
        self.groups = groups
        self.singles = array("Q")
        self.runs = array("Q")
        self.bitmaps = {}
        return groups

    def keep(self, members: Callable[[int], BitMap | None]) -> None:
        """Drop what is not in ``members`` (of a ledger's number) any more. Not for buckets that were sealed."""
        left: dict[int, BitMap] = {}
        for number in self.ledger_numbers():
            if found := members(number):
                left[number] = found
        self.singles = array(
            "Q",
            [
                item
                for item in self.singles
                if (ids := left.get(item >> ENTRY_BITS & LEDGER_MASK)) and item & ENTRY_MASK in ids
            ],
        )
        runs, self.runs = iter(self.runs), array("Q")
        for first, count in zip(runs, runs, strict=True):
            entry_id, base = first & ENTRY_MASK, first & ~ENTRY_MASK
            ids = left.get(first >> ENTRY_BITS & LEDGER_MASK)
            if not ids:
                continue
            if ids.contains_range(entry_id, entry_id + count):
                self.add_range(first, count)
            elif ids.range_cardinality(entry_id, entry_id + count):
                kept = BitMap(range(entry_id, entry_id + count)) & ids
                self.bitmaps[base >> ENTRY_BITS] = self.bitmaps.get(base >> ENTRY_BITS, BitMap()) | kept
        for key in list(self.bitmaps):
            kept = self.bitmaps[key] & left.get(key & LEDGER_MASK, BitMap())
            if kept:
                self.bitmaps[key] = kept
            else:
                del self.bitmaps[key]

    def renumber(self, numbers: Mapping[int, int], bucket: int | None = None) -> None:
        """Replace each ledger's number by that in ``numbers``; with ``bucket``, all buckets of the slot by that one."""
        clear = (0 if bucket is not None else SLOT_MASK) << BUCKET_SHIFT | ENTRY_MASK
        base = (bucket or 0) << BUCKET_SHIFT
        shifted = {old: base | new << ENTRY_BITS for old, new in numbers.items()}
        self.singles = array("Q", [x & clear | shifted[x >> ENTRY_BITS & LEDGER_MASK] for x in self.singles])
        self.runs[::2] = array("Q", [x & clear | shifted[x >> ENTRY_BITS & LEDGER_MASK] for x in self.runs[::2]])
        bitmaps, self.bitmaps = self.bitmaps, {}
        for key, bitmap in bitmaps.items():
            self.bitmaps[key & clear >> ENTRY_BITS | shifted[key & LEDGER_MASK] >> ENTRY_BITS] = bitmap

    def compact(self) -> None:
        """Turn singles into bitmaps where there are so many that these are smaller."""
        singles = self.singles
        if len(singles) < self._compact_at:
            return
        sample = Counter(item >> ENTRY_BITS for item in singles[::_SAMPLE_STEP])
        often = _BITMAP_MIN // _SAMPLE_STEP
        if 2 * sum(count for count in sample.values() if count >= often) >= len(singles) // _SAMPLE_STEP:
            self._make_bitmaps()
        self._compact_at = max(_COMPACT_MIN, 2 * len(singles))

    def _make_bitmaps(self) -> None:
        singles = self.singles
        ordered = sorted(singles)
        del singles[:]
        start = 0
        while start < len(ordered):
            key = ordered[start] >> ENTRY_BITS
            end = bisect_left(ordered, (key + 1) << ENTRY_BITS, start)
            if end - start < _BITMAP_MIN and key not in self.bitmaps:
                singles.extend(ordered[start:end])
            else:
                bitmap = self.bitmaps.setdefault(key, BitMap())
                bitmap.update([item & ENTRY_MASK for item in ordered[start:end]])
                bitmap.run_optimize()
            start = end


def _singles_by_ledger(singles: array[int]) -> Iterator[tuple[int, array[int]]]:
    """Entry ids by ledger number. By slices of bytes, not by item: a restart does this with everything that waits."""
    data = bytearray(singles.tobytes())
    data[_BUCKET_BYTE::8] = bytes(len(singles))
    masked = array("Q")
    masked.frombytes(data)
    # Items are in log order but for few, so that there is little to sort.
    ordered = sorted(masked)
    halves = memoryview(array("Q", ordered)).cast("B").cast("I")[_LOW_HALF::2]
    start = 0
    while start < len(ordered):
        number = ordered[start] >> ENTRY_BITS
        end = bisect_left(ordered, (number + 1) << ENTRY_BITS, start)
        entry_ids = array("I")
        entry_ids.frombytes(halves[start:end].tobytes())
        yield number, entry_ids
        start = end


def bitmap_bytes(bitmap: BitMap) -> int:
    """What the containers of a bitmap take."""
    found = bitmap.get_statistics()
    return found["n_bytes_array_containers"] + found["n_bytes_run_containers"] + found["n_bytes_bitset_containers"]


def _of(buckets: dict[int, PackedPositions], bucket: int) -> PackedPositions:
    packed = buckets.get(bucket)
    if packed is None:
        packed = buckets[bucket] = PackedPositions()
    return packed


def _bitmap(found: dict[int, list[int] | BitMap], ledger_id: int) -> BitMap:
    ids = found.get(ledger_id)
    if not isinstance(ids, BitMap):
        ids = found[ledger_id] = BitMap(ids or ())
    return ids
