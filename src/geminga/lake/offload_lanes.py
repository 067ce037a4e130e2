"""Lanes for offloads, which are few, for each holds a part of a file in memory: who gets one when.

Roots take turns, each in the order in which its offloads came. As long as there are several, one that has a lane does
not get the last free one: a mount that hangs in the midst of a write gives none back, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Hashable, Sequence


class OffloadLanes:
    """See the module."""

    __slots__ = ("_count", "_free", "_held", "_waiting")

    def __init__(self, names: Sequence[str]) -> None:
        self._free = list(names)
        self._count = len(names)
        #: By root.
        self._held: Counter[Hashable] = Counter()
        #: By root, whose turn is next first.
        self._waiting: dict[Hashable, deque[asyncio.Future[str]]] = {}

    async def take(self, root: Hashable, roots: int) -> str:
        """A lane, when one is free for ``root``; given back by :meth:`give`. ``roots``: how many there are."""
        if root not in self._waiting and self._may_take(root, roots):
            return self._taken(root)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(root, deque()).append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give(root, future.result(), roots)
            raise

    def give(self, root: Hashable, lane: str, roots: int) -> None:
        """After :meth:`take`."""
        self._held[root] -= 1
        if not self._held[root]:
            del self._held[root]
        self._free.append(lane)
        while (future := self._next(roots)) is not None:
            future.set_result(self._free.pop())

    def _next(self, roots: int) -> asyncio.Future[str] | None:
        """Who has the next turn, and has it now."""
        for root in tuple(self._waiting):
            waiting = self._waiting[root]
            while waiting and waiting[0].done():  # called off
                waiting.popleft()
            if waiting and not self._may_take(root, roots):
                continue
            del self._waiting[root]
            if waiting:
                future = waiting.popleft()
                self._held[root] += 1
                if waiting:
                    self._waiting[root] = waiting
                return future
        return None

    def _may_take(self, root: Hashable, roots: int) -> bool:
        is_last_kept = roots > 1 and self._count > 1 and self._held[root] > 0
        return len(self._free) > is_last_kept

    def _taken(self, root: Hashable) -> str:
        self._held[root] += 1
        return self._free.pop()
