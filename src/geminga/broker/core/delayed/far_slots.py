"""The slots of the delayed index (:mod:`.time_buckets`) whose time is not near: what no chunk holds. Pure.

A slot is a set of packed positions, in no order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from heapq import heappop, heappush
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.packed_positions import PackedPositions
from geminga.model import invariant

#: Slots looked at for whether singles should become bitmaps; the others have their turn at the next looks.
_COMPACT_SLOTS: Final = 64
#: Slots searched in one step for what was discarded.
_KEPT_SLOTS: Final = 16
#: What a small object takes: a set, an array, a place in a dict.
_OBJECT_BYTES: Final = 250

#: What still counts of a ledger, given its number; None: nothing.
Members = Callable[[int], BitMap | None]


class FarSlots:
    """See the module."""

    __slots__ = ("_by_slot", "_order", "_to_compact")

    def __init__(self) -> None:
        self._by_slot: dict[int, PackedPositions] = {}
        #: A heap of the same slots.
        self._order: list[int] = []
        #: Slots that have not had their turn in being compacted.
        self._to_compact: list[int] = []

    def __contains__(self, slot: int) -> bool:
        return slot in self._by_slot

    @property
    def first(self) -> int | None:
        """The earliest slot."""
        return self._order[0] if self._order else None

    @property
    def memory_bytes(self) -> int:
        """About what all of it takes."""
        return sum(_OBJECT_BYTES + packed.memory_bytes for packed in self._by_slot.values())

    def of(self, slot: int) -> PackedPositions:
        """Where to add to a slot."""
        packed = self._by_slot.get(slot)
        if packed is None:
            invariant(slot >= 0, f"slot {slot}")
            packed = self._by_slot[slot] = PackedPositions()
            heappush(self._order, slot)
        return packed

    def take_first(self) -> tuple[int, PackedPositions]:
        """Remove the earliest slot."""
        slot = heappop(self._order)
        return slot, self._by_slot.pop(slot)

    def compact(self) -> None:
        """Let a few slots see whether their singles should become bitmaps."""
        for _ in range(min(_COMPACT_SLOTS, len(self._by_slot))):
            if not self._to_compact:
                self._to_compact = list(self._by_slot)
            packed = self._by_slot.get(self._to_compact.pop())
            if packed is not None:
                packed.compact()

    def parts(self) -> Iterator[tuple[int, PackedPositions]]:
        """Every slot that is here now, unless it is taken in the meantime, and what is in it; not to be changed."""
        for slot in list(self._by_slot):
            packed = self._by_slot.get(slot)
            if packed is not None:
                yield slot, packed

    def keep(self, members: Members) -> Iterator[None]:
        """Drop what is not in ``members`` any more, a piece a step; between two of them anything may change."""
        for count, slot in enumerate(list(self._by_slot), 1):
            packed = self._by_slot.get(slot)
            if packed is not None:
                packed.keep(members)
            if not count % _KEPT_SLOTS:
                yield

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Replace each ledger's number by that in ``numbers``."""
        for packed in self._by_slot.values():
            packed.renumber(numbers)

    def check_invariants(self, opened: Container[int]) -> None:
        """Raise InvariantError if the state can not be; ``opened``: slots that must not be here."""
        invariant(sorted(self._by_slot) == sorted(self._order), "far slots and their order differ")
        invariant(not any(slot in opened for slot in self._by_slot), "a slot is near and far")
