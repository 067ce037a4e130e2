"""Entries on their way to another cluster, in the order of the log: how far all is done. Pure.

The cursor of a replicator moves to the last position before which nothing is missing, and no further: what is passed
over waits for what was sent before it. So there are no holes in what is acknowledged, and after any end the copying
goes on at the first entry that the other cluster has not answered for.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from geminga.model.errors import invariant
from geminga.model.position import Position


class Advance(NamedTuple):
    """What the other cluster has answered for."""

    #: Of the log, and all before it.
    position: Position
    messages: int
    size_bytes: int


#: An entry on its way: its position, bytes (None: a stretch of entries that are passed over, whose last it is), when it
#: was published, and its messages.
_Item = tuple[Position, int | None, int, int]


class Sent:
    """See the module; one for each time that a replicator begins."""

    __slots__ = ("_items", "bytes", "entries")

    def __init__(self) -> None:
        #: The first is on its way. Neighbours that are passed over are one.
        self._items: deque[_Item] = deque()
        #: On their way.
        self.entries = 0
        self.bytes = 0

    @property
    def oldest_ms(self) -> int | None:
        """When the first on its way was published, ms since the epoch; None: nothing is."""
        return self._items[0][2] if self._items else None

    def add(self, position: Position, size_bytes: int, published_ms: int = 0, messages: int = 1) -> None:
        """It is sent."""
        self._items.append((position, size_bytes, published_ms, messages))
        self.entries += 1
        self.bytes += size_bytes

    def passed_over(self, position: Position) -> Position | None:
        """It is not sent. How far all is done now; None: as before."""
        items = self._items
        if not items:
            return position
        if items[-1][1] is None:
            items.pop()
        items.append((position, None, 0, 0))
        return None

    def answered(self, count: int = 1) -> Advance:
        """The first ``count`` on their way, at least one, are stored there: answers come in order. How far all is done
        now."""
        invariant(0 < count <= self.entries, f"{count} answers for {self.entries} that were sent")
        items = self._items
        last = items[0][0]
        messages = size_bytes = 0
        left = count
        while left:
            last, size, _, held = items.popleft()
            if size is not None:
                left -= 1
                messages += held
                size_bytes += size
        if items and items[0][1] is None:
            last = items.popleft()[0]
        self.entries -= count
        self.bytes -= size_bytes
        return Advance(last, messages, size_bytes)
