"""Many entries of the delayed index (:mod:`.time_buckets`) in few bytes, whatever their ids and times. Pure.

A *chunk* is a stretch of the log, of one ledger or of many (:mod:`.log_stretch`): up to 32,768 entries, which need not
be in a row. An entry's *key* is its bucket, less the chunk's lowest, followed by its place in the stretch. Keys are
sorted, 2,048 of them are a *unit*, and what is kept of a unit is the differences of its keys: all lowest bytes, then
all bytes above, deflated with runs and Huffman codes.

```
every second entry, times rising        differences are 2                  0.04 bytes an entry
one of ten at random, times rising      a Huffman code for a small number  0.64
contiguous, times by Zipf over a day    most in a few buckets              1.84
contiguous, times random over a day     one random byte or two             2.70
```

(By ``python -m bench delayed``; what is random takes what its entropy is, and a tenth more.) Units are in the order of
time: the first one is unpacked when its time comes, and gives from its beginning.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import add, lshift, sub
from typing import Final, NamedTuple

from pyroaring import BitMap

from geminga.broker.core.delayed.column import COLUMN_MAX, Column
from geminga.broker.core.delayed.log_stretch import LogStretch
from geminga.broker.core.delayed.packed_positions import (
    BUCKET_SHIFT,
    ENTRY_BITS,
    SLOT_BITS,
    SLOT_MASK,
    PackedPositions,
    bitmap_bytes,
)
from geminga.model import invariant

#: Entries of one unit.
UNIT: Final = 1 << 11
#: Entries from which a column is worth a chunk: its objects take as much as eight bytes for each.
CHUNK_MIN: Final = 64
#: Entries given together with those that are due, if they are all that the slot has.
_EARLY_MAX: Final = 1 << 10
#: Entries of a bucket, on average, from which they are given as bitmaps.
_BITMAP_MIN: Final = 32
#: The members are kept beside the units if they take one part in so many of them; otherwise they are found anew.
_VIEW_SHARE: Final = 8
#: Keys have no more bits.
_KEY_BITS: Final = 63
_KEY_BYTES: Final = 8
#: Objects of a chunk, and of a unit.
_OBJECT_BYTES: Final = 450
_UNIT_BYTES: Final = 60
#: zlib: no header, a small window since nothing is looked for in it.
_WINDOW_BITS: Final = -12
_LEVEL: Final = 6
_MEMORY_LEVEL: Final = 9


class ChunkSizes(NamedTuple):
    """Entries of a chunk at most and at least, and of one of its units; tests make chunks of a few."""

    entries: int = COLUMN_MAX
    least: int = CHUNK_MIN
    unit: int = UNIT


class DelayedChunk:
    """See the module. Made by :func:`pack`."""

    __slots__ = ("base", "count", "firsts", "floor", "lengths", "open", "shift", "stretch", "units", "view")

    def __init__(self, stretch: LogStretch, base: int, shift: int) -> None:
        #: What places stand for.
        self.stretch = stretch
        #: The lowest bucket, and bits of a place in a key.
        self.base = base
        self.shift = shift
        #: Units in the order of time, the first key of each, and how many each has.
        self.units: list[bytes] = []
        self.firsts = array("Q")
        self.lengths = array("H")
        #: The keys that are left of the unit before these, which is unpacked.
        self.open = array("Q")
        #: Entries up to this place were discarded, whatever the units say.
        self.floor = -1
        #: Entries left.
        self.count = 0
        #: Places of what is left; None: to be found from the units.
        self.view: BitMap | None = None

    @property
    def first_bucket(self) -> int:
        """The bucket of the entry that is due first, or of one that was discarded."""
        return self.base + ((self.open[0] if self.open else self.firsts[0]) >> self.shift)

    @property
    def first_mark(self) -> tuple[int, int, int]:
        """That bucket, and the position of the entry."""
        key = self.open[0] if self.open else self.firsts[0]
        return self.base + (key >> self.shift), *self.stretch.positions([key & (1 << self.shift) - 1])[0]

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        size = _OBJECT_BYTES + self.stretch.memory_bytes + 8 * len(self.open) + sum(map(len, self.units))
        return size + _UNIT_BYTES * len(self.units) + (bitmap_bytes(self.view) if self.view is not None else 0)

    # ---- look

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an entry is here."""
        place = self.stretch.place_of(ledger_id, entry_id)
        return place is not None and place in (self.members() if self.view is None else self.view)

    def members(self) -> BitMap:
        """Places of what is left. Not to be changed."""
        if self.view is None:
            mask = (1 << self.shift) - 1
            self.view = BitMap(array("I", [key & mask for key in self._all_keys()]))
            if self.floor >= 0:
                self.view.remove_range(0, self.floor + 1)
        return self.view

    def entry_ids(self, ledger_id: int, first: int, end: int) -> BitMap:
        """What is left of a ledger from ``first`` to before ``end``."""
        low = self.stretch.places_through(ledger_id, first - 1)
        high = self.stretch.places_through(ledger_id, end - 1)
        if low >= high:
            return BitMap()
        return (self.members() & BitMap(range(low, high))).shift(self.stretch.move_of(ledger_id))

    def count_through(self, ledger_id: int, entry_id: int) -> int:
        """How many lie at or before an entry."""
        return self.members().range_cardinality(0, self.stretch.places_through(ledger_id, entry_id))

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """(bucket, ledger id, entry id) of what is left, in the order of time."""
        mask = (1 << self.shift) - 1
        keys = [key for key in self._all_keys() if key & mask > self.floor]
        for key, (ledger_id, entry_id) in zip(keys, self.stretch.positions([key & mask for key in keys]), strict=True):
            yield self.base + (key >> self.shift), ledger_id, entry_id

    # ---- change

    def take_next(self, bucket: int, early_max: int = _EARLY_MAX) -> array[int]:
        """Remove and return keys of buckets up to ``bucket``, and of the same slot if they are not more than
        ``early_max`` together; ascending, and at most a unit: there may be more. What was discarded is left out."""
        if self.first_bucket > bucket:
            return array("Q")
        if not self.open:
            self.open = self.keys_of(0)
            del self.units[0], self.firsts[0], self.lengths[0]
        end = bisect_left(self.open, ((bucket >> SLOT_BITS) + 1 << SLOT_BITS) - self.base << self.shift)
        if end > early_max:
            end = bisect_left(self.open, bucket - self.base + 1 << self.shift)
        taken = self.open[:end]
        del self.open[:end]
        mask, floor = (1 << self.shift) - 1, self.floor
        if floor >= 0:
            taken = array("Q", [key for key in taken if key & mask > floor])
        self.count -= len(taken)
        if self.view is not None and taken:
            self.view -= BitMap(array("I", [key & mask for key in taken]))
        return taken

    def discard_through(self, ledger_id: int, entry_id: int) -> int:
        """Forget what lies at or before an entry; how many those were. What they take, stays taken."""
        end = self.stretch.places_through(ledger_id, entry_id)
        if end <= self.floor + 1:
            return 0
        members = self.members()
        gone = members.range_cardinality(0, end)
        if gone:
            members.remove_range(0, end)
            self.count -= gone
            self.floor = end - 1
        return gone

    def close(self) -> None:
        """Pack what is unpacked of a unit."""
        if self.open:
            keys, self.open = self.open, array("Q")
            self.firsts.insert(0, keys[0])
            self.lengths.insert(0, len(keys))
            self.units.insert(0, pack_unit(keys))

    def keys_of(self, unit: int) -> array[int]:
        """The keys of a unit. Raises zlib.error, ValueError if it is damaged."""
        return unpack_unit(self.units[unit], self.firsts[unit], self.lengths[unit])

    def _all_keys(self) -> Iterator[int]:
        yield from self.open
        for unit in range(len(self.units)):
            yield from self.keys_of(unit)

    # ---- as packed positions

    def unpack(self, keys: array[int], number_of: Callable[[int], int]) -> Iterator[tuple[int, PackedPositions]]:
        """Slots, ascending, and what ``keys``, ascending, have in them; ``number_of``: of a ledger."""
        start = 0
        while start < len(keys):
            slot = self.base + (keys[start] >> self.shift) >> SLOT_BITS
            end = bisect_left(keys, (slot + 1 << SLOT_BITS) - self.base << self.shift, start)
            packed = PackedPositions()
            part = keys[start:end]
            buckets = (part[-1] >> self.shift) - (part[0] >> self.shift) + 1
            if len(self.stretch) == 1 and end - start >= _BITMAP_MIN * buckets:
                self._give_bitmaps(part, number_of, packed)
            else:
                self._give_singles(part, number_of, packed)
            yield slot, packed
            start = end

    def _give_bitmaps(self, keys: array[int], number_of: Callable[[int], int], packed: PackedPositions) -> None:
        first = self.stretch.first
        number = number_of(first.ledger_id)
        start = 0
        while start < len(keys):
            bucket = keys[start] >> self.shift
            end = bisect_left(keys, bucket + 1 << self.shift, start)
            less = (bucket << self.shift) - first.entry_id
            item = (self.base + bucket & SLOT_MASK) << BUCKET_SHIFT | number << ENTRY_BITS
            if keys[end - 1] - keys[start] == end - start - 1:
                packed.add_range(item | keys[start] - less, end - start)
            else:
                packed.bitmaps[item >> ENTRY_BITS] = BitMap(array("I", map(sub, keys[start:end], repeat(less))))
            start = end

    def _give_singles(self, keys: array[int], number_of: Callable[[int], int], packed: PackedPositions) -> None:
        shift, base, mask = self.shift, self.base, (1 << self.shift) - 1
        if len(self.stretch) == 1:
            ledger_id, first = self.stretch.first
            ledger = number_of(ledger_id) << ENTRY_BITS
            packed.singles.extend(
                [(base + (key >> shift) & SLOT_MASK) << BUCKET_SHIFT | ledger | first + (key & mask) for key in keys]
            )
            return
        for key, (ledger_id, entry_id) in zip(keys, self.stretch.positions([key & mask for key in keys]), strict=True):
            bucket = base + (key >> shift) & SLOT_MASK
            packed.singles.append(bucket << BUCKET_SHIFT | number_of(ledger_id) << ENTRY_BITS | entry_id)


def pack(column: Column, unit_max: int = UNIT) -> DelayedChunk | None:
    """A chunk of what a column has; None if it can not hold it, because it lies too far apart."""
    invariant(0 < len(column) <= COLUMN_MAX, f"a chunk of {len(column)}")
    ids, buckets = column.ids, column.buckets
    stretch = LogStretch((ledger_id, ids[start], ids[end - 1]) for ledger_id, start, end in column.pieces())
    shift = (stretch.span - 1).bit_length()
    base = min(buckets)
    if (max(buckets) - base).bit_length() + shift > _KEY_BITS or shift > ENTRY_BITS:
        return None
    keys: list[int] = []
    less = 0
    if len(stretch) == 1:
        # Differences are the same with the first id and the lowest bucket still in.
        keys = sorted(map(add, map(lshift, buckets, repeat(shift)), ids))
        less = (base << shift) + ids[0]
    else:
        for ledger_id, start, end in column.pieces():
            moved = (base << shift) + stretch.move_of(ledger_id)
            shifted = map(lshift, buckets[start:end], repeat(shift))
            keys += [key + entry_id - moved for key, entry_id in zip(shifted, ids[start:end], strict=True)]
        keys.sort()
    chunk = DelayedChunk(stretch, base, shift)
    chunk.count = len(keys)
    for start in range(0, len(keys), unit_max):
        unit = keys[start : start + unit_max]
        chunk.units.append(pack_unit(unit))
        chunk.firsts.append(unit[0] - less)
        chunk.lengths.append(len(unit))
    _keep_small_view(chunk, column)
    return chunk


def _keep_small_view(chunk: DelayedChunk, column: Column) -> None:
    """Of entries in a row the members take nothing, and are often asked for."""
    view = BitMap()
    for ledger_id, start, end in column.pieces():
        view |= BitMap(column.ids[start:end]).shift(-chunk.stretch.move_of(ledger_id))
    view.run_optimize()
    if bitmap_bytes(view) * _VIEW_SHARE <= sum(map(len, chunk.units)):
        chunk.view = view


def pack_unit(keys: Sequence[int]) -> bytes:
    """The number of planes (bytes of a difference), and the planes deflated."""
    steps = array("Q", map(sub, keys[1:], keys))
    if sys.byteorder == "big":
        steps.byteswap()
    data = steps.tobytes()
    planes = (max(steps, default=0).bit_length() + 7) // 8
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zlib.Z_RLE)
    packed = packer.compress(b"".join([data[plane::_KEY_BYTES] for plane in range(planes)]))
    return bytes([planes]) + packed + packer.flush()


def unpack_unit(unit: bytes, first: int, length: int) -> array[int]:
    """The inverse. Raises zlib.error, ValueError."""
    planes, steps = unit[0], length - 1
    if planes > _KEY_BYTES:
        raise ValueError(f"differences of {planes} bytes")
    unpacker = zlib.decompressobj(_WINDOW_BITS)
    data = unpacker.decompress(unit[1:], planes * steps + 1)
    if len(data) != planes * steps or not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"{length} keys of {planes} bytes are {len(data)} bytes")
    spread = bytearray(_KEY_BYTES * steps)
    for plane in range(planes):
        spread[plane::_KEY_BYTES] = data[plane * steps : (plane + 1) * steps]
    values = array("Q")
    values.frombytes(spread)
    if sys.byteorder == "big":
        values.byteswap()
    return array("Q", accumulate(values, initial=first))
