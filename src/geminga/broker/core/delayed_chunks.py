"""Many entries in a row of the log, each with a time of its own, sorted by slot: 3 bytes an entry. Pure.

What the delayed index (:mod:`.time_buckets`) is given entry by entry in log order is a *column* of buckets: the entry
ids follow from the first. A column becomes a :class:`DelayedChunk` without a step of Python for each entry: the bytes
of the buckets are sliced into keys of slot and place, a bitmap sorts these, and its bytes are sliced again. When the
time of a slot comes, the chunk gives up its items.

```
column:  [bucket of entry 65536, bucket of 65537, ...]
chunk:   order  places (entry id less the block's first), by slot          2 bytes an entry
         lows   low byte of the bucket (its place in the slot), by place    1 byte an entry
                until somebody sorts them, then as ``order``
         slots, starts, ends: which part of these is whose                    10 bytes a slot
```
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, Self, cast

from pyroaring import BitMap

from geminga.broker.core.packed_positions import ENTRY_BITS, SLOT_BITS, PackedPositions

#: Entry ids of one chunk: a block of so many, aligned.
BLOCK_BITS: Final = 16
BLOCK_MASK: Final = (1 << BLOCK_BITS) - 1
#: Entries from which a column is worth a chunk.
CHUNK_MIN: Final = 1024
#: No slot is as far off.
NO_SLOT: Final = 1 << 64
#: Bits of a slot's number that a chunk's keys have; the others are the same for all of its entries.
_SLOT_KEY_BITS: Final = 16
_BUCKET_KEY_BITS: Final = _SLOT_KEY_BITS + SLOT_BITS
#: The places of a block: their low and their high bytes.
_LOWS: Final = bytes(range(256)) * 256
_HIGHS: Final = bytes(byte for byte in range(256) for _ in range(256))
_OBJECT_BYTES: Final = 600
#: Of no entry.
_SORTED: Final = -1
#: One bucket in so many is looked at for whether they are few: with as many entries in each, bitmaps are smaller.
_SAMPLE_STEP: Final = 64


class Column(array):  # type: ignore[type-arg]  # at run time it takes no parameter
    """Buckets (64 bits each) of entries in a row, in one block of one ledger."""

    __slots__ = ("end", "first", "holes", "lowest_slot", "seen")

    def __new__(cls) -> Self:
        return cast("Self", super().__new__(cls, "Q"))

    def __init__(self) -> None:
        self.restart(-1)

    def restart(self, first: int) -> None:
        """Begin anew with the entry ``first``."""
        del self[:]
        self.first = first
        #: The id behind the last entry there is room for.
        self.end = (first | BLOCK_MASK) + 1
        #: How many buckets were looked at, indices of those that were taken, and the lowest slot of the others.
        self.seen = 0
        self.holes: list[int] = []
        self.lowest_slot = NO_SLOT

    def restart_empty(self, first: int) -> None:
        """As :meth:`restart`, quicker for a column of one bucket, which every long run ends with."""
        if self.seen or first >= self.end:
            self.restart(first)
        else:
            self.pop()
            self.first = first

    def look(self, slot: int) -> bool:
        """See what was added since the last look; whether any of it lies in slots up to ``slot``."""
        fresh = self[self.seen :]
        lowest = min(fresh) >> SLOT_BITS if fresh else NO_SLOT
        if lowest <= slot:
            return True
        self.seen = len(self)
        self.lowest_slot = min(self.lowest_slot, lowest)
        return False

    def take_near(self, slot: int) -> Iterator[tuple[int, int]]:
        """After a look: take what was added and lies in slots up to ``slot``, as (bucket, entry id)."""
        for index in range(self.seen, len(self)):
            bucket = self[index]
            if bucket >> SLOT_BITS <= slot:
                self.holes.append(index)
                yield bucket, self.first + index
            else:
                self.lowest_slot = min(self.lowest_slot, bucket >> SLOT_BITS)
        self.seen = len(self)

    def entries(self) -> Iterator[tuple[int, int]]:
        """What was not taken, as (bucket, entry id)."""
        holes = set(self.holes)
        for index, bucket in enumerate(self):
            if index not in holes:
                yield bucket, self.first + index


class DelayedChunk:
    """See the module. Entries of one ledger and one block."""

    __slots__ = ("_base", "_ends", "_first_place", "_lows", "_order", "_slot_base", "_slots", "_starts", "number")

    def __init__(self, number: int, base: int, slot_base: int) -> None:
        #: The ledger's number in the index's table.
        self.number = number
        #: The first entry id of the block, and slot number of the keys' range.
        self._base = base
        self._slot_base = slot_base
        #: The place of the first entry of the column; :data:`_SORTED` when ``_lows`` lies as ``_order`` does.
        self._first_place = 0
        self._order = array("H")
        self._lows = b""
        #: By slot, ascending: its key, and where it begins and ends in ``_order`` and ``_lows``.
        self._slots = array("H")
        self._starts = array("I")
        self._ends = array("I")

    @property
    def is_empty(self) -> bool:
        """Whether it gave everything."""
        return not self._slots

    @property
    def slots(self) -> list[int]:
        """The slots of which it has anything, ascending."""
        return [self._slot_base + key for key in self._slots]

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        return _OBJECT_BYTES + len(self._lows) + 2 * len(self._order) + 10 * len(self._slots)

    @property
    def is_sorted(self) -> bool:
        """Whether a slot's share is copied, and not picked from everywhere, which takes five times as long."""
        return self._first_place == _SORTED

    def sort(self) -> None:
        """Do that for all slots at once: some 3 ms for a whole block."""
        if not self.is_sorted:
            self._lows = self._lows_of(self._order)
            self._first_place = _SORTED

    def _lows_of(self, order: array[int]) -> bytes:
        lows, first = self._lows, self._first_place
        return bytes([lows[place - first] for place in order] if first else [lows[place] for place in order])

    def copy_to(self, slot: int, packed: PackedPositions) -> bool:
        """Add the items of a slot to ``packed``; False if there are none."""
        index = self._index_of(slot)
        if index is None:
            return False
        start, end = self._starts[index], self._ends[index]
        order = self._order[start:end]
        places = order.tobytes()
        items = bytearray((self.number << ENTRY_BITS | self._base).to_bytes(8, "little") * (end - start))
        items[0::8] = places[0::2]
        items[1::8] = places[1::2]
        items[7::8] = self._lows[start:end] if self.is_sorted else self._lows_of(order)
        packed.singles.frombytes(items)
        return True

    def give_to(self, slot: int, packed: PackedPositions) -> None:
        """As :meth:`copy_to`, and forget them."""
        if self.copy_to(slot, packed):
            index = bisect_left(self._slots, slot - self._slot_base)
            for parts in (self._slots, self._starts, self._ends):
                del parts[index]

    def entry_ids(self) -> BitMap:
        """Everything that it has."""
        places = BitMap()
        for start, end in zip(self._starts, self._ends, strict=True):
            places.update(array("I", self._order[start:end]))
        return places.shift(self._base)

    def _index_of(self, slot: int) -> int | None:
        key = slot - self._slot_base
        if not 0 <= key < 1 << _SLOT_KEY_BITS:
            return None
        index = bisect_left(self._slots, key)
        return index if index < len(self._slots) and self._slots[index] == key else None


def chunk_of(column: Column, number: int) -> DelayedChunk | None:
    """What was not taken of a column, for the ledger with that number. None if a chunk can not hold it, because its
    buckets lie too far apart (99 days for buckets of 512 ms), or should not, because they are few."""
    sample = column[::_SAMPLE_STEP]
    if sys.byteorder != "little" or 2 * len(set(sample)) < len(sample):
        return None
    count = len(column)
    buckets = column.tobytes()
    if any(buckets[byte::8].count(buckets[byte]) < count for byte in range(_BUCKET_KEY_BITS // 8, 8)):
        return None
    place = column.first & BLOCK_MASK
    keys = bytearray(4 * count)
    keys[0::4] = _LOWS[place : place + count]
    keys[1::4] = _HIGHS[place : place + count]
    keys[2::4] = buckets[1::8]
    keys[3::4] = buckets[2::8]
    unsorted = array("I")
    unsorted.frombytes(keys)
    sorter = BitMap(unsorted)
    for index in column.holes:
        sorter.discard(column[index] >> SLOT_BITS << BLOCK_BITS & 0xFFFFFFFF | place + index)
    slot_base = column[0] >> _BUCKET_KEY_BITS << _SLOT_KEY_BITS
    chunk = DelayedChunk(number, column.first & ~BLOCK_MASK, slot_base)
    if not sorter:
        return chunk
    ordered = sorter.to_array().tobytes()
    order = bytearray(len(ordered) // 2)
    order[0::2] = ordered[0::4]
    order[1::2] = ordered[1::4]
    chunk._order.frombytes(order)
    chunk._first_place = place
    chunk._lows = buckets[0::8]
    start = 0
    last = sorter.max() >> BLOCK_BITS
    key = sorter.min() >> BLOCK_BITS
    while True:
        end = start + sorter.range_cardinality(key << BLOCK_BITS, key + 1 << BLOCK_BITS)
        chunk._slots.append(key)
        chunk._starts.append(start)
        chunk._ends.append(end)
        if key == last:
            return chunk
        start = end
        key = sorter.next_set_bit(key + 1 << BLOCK_BITS) >> BLOCK_BITS
