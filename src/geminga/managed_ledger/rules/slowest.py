"""The read position of the slowest of many readers, who each move on at their own pace. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Final, Protocol

from geminga.model.position import Position

#: As many are asked one by one; of more an order is kept.
FEW_READERS: Final = 8


class TailReader(Protocol):
    """Who reads."""

    @property
    def read_position(self) -> Position:
        """The next entry that it reads."""
        ...


class SlowestReader:
    """Where the slowest of some readers is, in time that grows with the logarithm of their number.

    An order is kept by positions as they were seen last, of which the least is looked at again: whoever has moved on
    since goes behind others. Whoever goes back has to say so.
    """

    __slots__ = ("_added", "_order", "_order_max")

    def __init__(self) -> None:
        #: A heap of what was seen: position, a number that tells equal ones apart, reader. None: not needed so far.
        self._order: list[tuple[Position, int, TailReader]] | None = None
        self._added = 0
        #: As many are kept until somebody looks; above that the order is made anew then.
        self._order_max = 0

    @property
    def size(self) -> int:
        """What is kept, of those too that went."""
        return len(self._order or ())

    def see(self, reader: TailReader) -> None:
        """It begins to read, or went back."""
        if self._order is not None and len(self._order) >= self._order_max:
            self._order = None
        elif self._order is not None:
            heapq.heappush(self._order, (reader.read_position, self._added, reader))
            self._added += 1

    def position(self, readers: Collection[TailReader]) -> Position:
        """Of the slowest of ``readers``, all of whom were seen; others of those may have gone. Not empty."""
        if len(readers) <= FEW_READERS:
            self._order = None
            if len(readers) == 1:
                (only,) = readers
                return only.read_position
            return min(reader.read_position for reader in readers)
        order = self._order
        # Of those that went some are still in it, and who went back is in it twice.
        if order is None or len(order) > 2 * len(readers):
            order = self._order = [(reader.read_position, number, reader) for number, reader in enumerate(readers)]
            self._added = len(order)
            heapq.heapify(order)
            self._order_max = 4 * len(order)
        while True:
            seen, number, reader = order[0]
            if reader not in readers:
                heapq.heappop(order)
                continue
            now = reader.read_position
            if now <= seen:
                return now
            heapq.heapreplace(order, (now, number, reader))
