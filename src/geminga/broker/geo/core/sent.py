"""Entries on their way to another cluster, in the order of the log: how far all is done. Pure.

The cursor of a replicator moves to the last position before which nothing is missing, and no further: what is passed
over waits for what was sent before it. So there are no holes in what is acknowledged, and after any end the copying
goes on at the first entry that the other cluster has not answered for.
"""

from __future__ import annotations

from collections import deque

from geminga.model.errors import invariant
from geminga.model.position import Position


class _Item:
    """An entry on its way, or a stretch of entries that are passed over, whose last it is."""

    __slots__ = ("position", "published_ms", "size_bytes")

    def __init__(self, position: Position, size_bytes: int | None, published_ms: int = 0) -> None:
        self.position = position
        #: None: passed over.
        self.size_bytes = size_bytes
        self.published_ms = published_ms


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
        return self._items[0].published_ms if self._items else None

    def add(self, position: Position, size_bytes: int, published_ms: int = 0) -> None:
        """It is sent."""
        self._items.append(_Item(position, size_bytes, published_ms))
        self.entries += 1
        self.bytes += size_bytes

    def passed_over(self, position: Position) -> Position | None:
        """It is not sent. How far all is done now; None: as before."""
        if not self._items:
            return position
        if self._items[-1].size_bytes is None:
            self._items[-1].position = position
        else:
            self._items.append(_Item(position, None))
        return None

    def answered(self) -> Position:
        """The first on its way is stored there: answers come in order. How far all is done now."""
        invariant(self.entries > 0, "an answer for nothing that was sent")
        first = self._items.popleft()
        self.entries -= 1
        self.bytes -= first.size_bytes or 0
        if self._items and self._items[0].size_bytes is None:
            return self._items.popleft().position
        return first.position
