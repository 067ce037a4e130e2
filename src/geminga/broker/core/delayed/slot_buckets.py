"""Waiting entries as packed positions: slots that are far, and the buckets that are near. Pure.

The part of the delayed index (:mod:`.time_buckets`) that brings what is due into order; what is far off is here only if
it is a long run, or too little for a chunk. Who asks for what lies up to a bucket opens its slot first
(:meth:`SlotBuckets.open_far`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.far_slots import FarSlots
from geminga.broker.core.delayed.marks import Mark, groups_through, index_after
from geminga.broker.core.delayed.packed_positions import (
    BUCKET_SHIFT,
    ENTRY_BITS,
    LEDGERS_MAX,
    SLOT_BITS,
    SLOT_MASK,
    Group,
    PackedPositions,
)
from geminga.broker.core.delayed.waiting_entries import WaitingEntries
from geminga.model import Position, invariant

#: Discarded positions that buckets may still name before they are searched for them.
_STALE_MIN: Final = 4096
#: Ledgers that may be numbered in vain before numbers are given anew.
_LEDGERS_MIN: Final = 1024
#: Entries added between two looks whether singles should become bitmaps.
_COMPACT_STEP: Final = 1 << 14
#: What a small object takes: a bitmap, an array, a place in a dict.
_OBJECT_BYTES: Final = 250


class SlotBuckets:
    """See the module."""

    __slots__ = (
        "_far",
        "_fresh",
        "_ledger_ids",
        "_ledger_numbers",
        "_near",
        "_near_order",
        "_opened",
        "_purging",
        "_stale",
        "waiting",
    )

    def __init__(self) -> None:
        #: What is in ``_far`` and ``_near``.
        self.waiting = WaitingEntries()
        #: Entries added to them since anybody looked whether singles should become bitmaps.
        self._fresh = 0
        #: Entries discarded that buckets still name.
        self._stale = 0
        #: The search for them, while there is one.
        self._purging: Iterator[bool] | None = None
        self._far = FarSlots()
        self._near: dict[int, PackedPositions] = {}
        self._near_order: list[int] = []
        #: Slots whose buckets are in ``_near``.
        self._opened: set[int] = set()
        self._ledger_ids: list[int] = []
        self._ledger_numbers: dict[int, int] = {}

    @property
    def ledger_ids(self) -> Sequence[int]:
        """Ledger ids by the number that packed items have."""
        return self._ledger_ids

    @property
    def memory_bytes(self) -> int:
        """About what all of it takes."""
        size = sum(_OBJECT_BYTES + packed.memory_bytes for packed in self._near.values())
        return size + self._far.memory_bytes + self.waiting.memory_bytes + _OBJECT_BYTES * len(self._ledger_ids)

    # ---- add

    def add_run(self, bucket: int, ledger_id: int, first: int, count: int) -> None:
        """Add entries that follow each other, are of one bucket, and are not here."""
        self.waiting.add_range(ledger_id, first, first + count)
        base = (bucket & SLOT_MASK) << BUCKET_SHIFT | self.number_of(ledger_id) << ENTRY_BITS
        self._target_of(bucket).add_range(base | first, count)

    def add_singles(self, entries: Iterator[tuple[int, int, int]]) -> None:
        """Add (bucket, ledger id, entry id) that are not here."""
        for bucket, ledger_id, entry_id in entries:
            self.waiting.add(ledger_id, entry_id)
            item = (bucket & SLOT_MASK) << BUCKET_SHIFT | self.number_of(ledger_id) << ENTRY_BITS | entry_id
            self._target_of(bucket).singles.append(item)
            self._fresh += 1
        if self._fresh > _COMPACT_STEP:
            self._fresh = 0
            self._far.compact()

    def add_near(self, entries: Iterable[tuple[int, int, int]]) -> None:
        """The same of entries that are soon due, whether or not their slots were opened."""
        for bucket, ledger_id, entry_id in entries:
            self.waiting.add(ledger_id, entry_id)
            item = (bucket & SLOT_MASK) << BUCKET_SHIFT | self.number_of(ledger_id) << ENTRY_BITS | entry_id
            self._near_of(bucket).singles.append(item)

    def add_near_slot(self, slot: int, packed: PackedPositions) -> None:
        """The same of a slot, or a part of one; ``packed`` must not be used afterwards."""
        for number, ids in packed.by_ledger().items():
            self.waiting.add_new(self._ledger_ids[number], ids)
        self._bring_near(slot, packed)

    def _target_of(self, bucket: int) -> PackedPositions:
        slot = bucket >> SLOT_BITS
        return self._near_of(bucket) if slot in self._opened else self._far.of(slot)

    def _near_of(self, bucket: int) -> PackedPositions:
        target = self._near.get(bucket)
        if target is None:
            target = self._near[bucket] = PackedPositions()
            insort(self._near_order, bucket)
        return target

    def number_of(self, ledger_id: int) -> int:
        """The number that packed items have for a ledger; a new one if it has none."""
        number = self._ledger_numbers.get(ledger_id)
        if number is None:
            number = self._ledger_numbers[ledger_id] = len(self._ledger_ids)
            invariant(number < LEDGERS_MAX, f"{number} ledgers numbered")
            self._ledger_ids.append(ledger_id)
        return number

    def put(self, slot: int, packed: PackedPositions) -> None:
        """Add to a slot what is counted among :attr:`waiting` already."""
        if slot in self._opened:
            for number, part in packed.split().items():
                self._target_of(slot << SLOT_BITS | number).extend(part)
        elif not packed.is_empty:
            self._target_of(slot << SLOT_BITS).extend(packed)

    # ---- bring near

    def open_far(self, slot: int) -> None:
        """Spread the slots up to ``slot`` into buckets."""
        while (far := self._far.first) is not None and far <= slot:
            first, found = self._far.take_first()
            self._opened.add(first)
            self._bring_near(first, found)

    def _bring_near(self, slot: int, packed: PackedPositions) -> None:
        for number, part in packed.split().items():
            bucket = slot << SLOT_BITS | number
            if bucket in self._near:
                self._near[bucket].extend(part)
            else:
                self._near[bucket] = part
                insort(self._near_order, bucket)

    def _sealed(self, bucket: int) -> list[Group]:
        packed = self._near.get(bucket)
        if packed is None:
            return []
        return packed.seal(self._ledger_ids, self.waiting.by_ledger.get if self._stale else None)

    # ---- what is near

    @property
    def is_empty(self) -> bool:
        """Whether no bucket and no slot is left."""
        return not self._near and self._far.first is None

    @property
    def first_far(self) -> int | None:
        """The first bucket that anything far may be in; None: nothing is far."""
        first = self._far.first
        return None if first is None else first << SLOT_BITS

    def next_after(self, after: Mark) -> int | None:
        """The first near bucket that has anything behind ``after``."""
        order = self._near_order
        for index in range(bisect_left(order, after[0]), len(order)):
            bucket = order[index]
            groups = self._sealed(bucket)
            if groups and (bucket > after[0] or groups_through(groups, after) < len(groups)):
                return bucket
        return None

    def bucket_of(self, position: Position, first: int, last: int) -> int | None:
        """The near bucket, of those from ``first`` to ``last``, that an entry is in."""
        order = self._near_order
        for bucket in order[bisect_left(order, first) : bisect_right(order, last)]:
            if any(ledger_id == position[0] and position[1] in ids for ledger_id, ids in self._sealed(bucket)):
                return bucket
        return None

    def count_between(self, after: Mark, mark: Mark) -> int:
        """How many near entries lie behind ``after``, up to and including ``mark``."""
        count = 0
        order = self._near_order
        for bucket in order[bisect_left(order, after[0]) : bisect_right(order, mark[0])]:
            for ledger_id, ids in self._sealed(bucket):
                low = index_after(ids, ledger_id, after) if bucket == after[0] else 0
                high = index_after(ids, ledger_id, mark) if bucket == mark[0] else len(ids)
                count += max(0, high - low)
        return count

    def take(self, after: Mark, before: Mark, room: int) -> tuple[list[tuple[int, list[int]]], Mark]:
        """Up to ``room`` positions that are near and lie between these marks, and the mark of the last one. They stay
        here."""
        result: list[tuple[int, list[int]]] = []
        order = self._near_order
        last = before[0], before[1], before[2] - 1
        for bucket in order[bisect_left(order, after[0]) : bisect_right(order, before[0])]:
            for ledger_id, ids in self._sealed(bucket):
                start = index_after(ids, ledger_id, after) if bucket == after[0] else 0
                end = index_after(ids, ledger_id, last) if bucket == before[0] else len(ids)
                taken = list(ids[start : min(end, start + room)])
                if not taken:
                    continue
                result.append((ledger_id, taken))
                room -= len(taken)
                after = bucket, ledger_id, taken[-1]
                if not room:
                    return result, after
        return result, after

    def release(self, mark: Mark) -> None:
        """Drop what is near up to and including ``mark``."""
        order = self._near_order
        end = bisect_right(order, mark[0])
        for bucket in order[:end]:
            groups = self._sealed(bucket)
            if bucket == mark[0] and (split := groups_through(groups, mark)) < len(groups):
                end -= 1
                self.waiting.remove(groups[:split])
                ledger_id, ids = groups[split]
                through = index_after(ids, ledger_id, mark)
                if through:
                    self.waiting.remove([(ledger_id, ids[:through])])
                    groups[split] = (ledger_id, ids[through:])
                del groups[:split]
            else:
                self.waiting.remove(groups)
                del self._near[bucket]
        del order[:end]
        if self._opened:
            first = order[0] >> SLOT_BITS if order else mark[0] >> SLOT_BITS
            self._opened = {slot for slot in self._opened if slot >= first}
        if len(self._ledger_ids) > _LEDGERS_MIN + 4 * len(self.waiting.by_ledger):
            self._number_anew()

    # ---- discard

    def discard_through(self, position: Position) -> None:
        """Forget what lies at or before ``position``."""
        gone = self.waiting.remove_through(position)
        self._stale += gone
        if gone:
            self._purge_near()
        if self._stale > _STALE_MIN and self._stale > self.waiting.count and self._purging is None:
            self._purging = self._purge()

    def purge_step(self) -> bool:
        """Search some slots for what was discarded; whether to call again. Until all are searched, it takes memory."""
        if self._purging is not None and next(self._purging, False):
            return True
        self._purging = None
        return False

    def _purge(self) -> Iterator[bool]:
        stale = self._stale
        for _ in self._far.keep(self._members_by_number):
            yield True
        self._stale -= stale

    def _members_by_number(self, number: int) -> BitMap | None:
        return self.waiting.by_ledger.get(self._ledger_ids[number])

    def _purge_near(self) -> None:
        for bucket in self._near_order:
            self._sealed(bucket)
            packed = self._near[bucket]
            packed.groups = [
                (ledger_id, left)
                for ledger_id, ids in packed.groups
                if (members := self.waiting.by_ledger.get(ledger_id)) and (left := BitMap(ids) & members)
            ]

    def _number_anew(self) -> None:
        """Number only the ledgers of which something waits."""
        for bucket in self._near_order:
            self._sealed(bucket)
        self._purging = self._purge()
        while self.purge_step():
            pass
        old = self._ledger_numbers
        self._ledger_ids = sorted(self.waiting.by_ledger)
        self._ledger_numbers = {ledger_id: number for number, ledger_id in enumerate(self._ledger_ids)}
        numbers = {old[ledger_id]: number for ledger_id, number in self._ledger_numbers.items()}
        self._far.renumber(numbers)

    # ---- as a whole

    def parts(self) -> Iterator[tuple[int, PackedPositions]]:
        """Every slot and what is in it, some in parts, less what was discarded. Not to be changed. What is in chunks
        is not there. The index may change between two of them: what is added or moved meanwhile may be missing."""
        for slot, packed in self._far.parts():
            if self._stale:
                packed.keep(self._members_by_number)
            yield slot, packed
        for bucket in list(self._near_order):
            part = PackedPositions()
            base = (bucket & SLOT_MASK) << BUCKET_SHIFT
            for ledger_id, ids in self._sealed(bucket):
                key = base | self._ledger_numbers[ledger_id] << ENTRY_BITS
                if isinstance(ids, BitMap):
                    part.bitmaps[key >> ENTRY_BITS] = ids
                else:
                    part.singles.extend([key | entry_id for entry_id in ids])
            yield bucket >> SLOT_BITS, part

    def check_invariants(self) -> None:
        """Raise InvariantError if the state can not be."""
        self.waiting.check_invariants()
        invariant(sorted(self._near) == self._near_order, "near buckets and their order differ")
        self._far.check_invariants(self._opened)
