"""Whose reads a bookie carries out next: connections take turns, and each turn is one group of bounded size. Pure.

A reader that catches up asks for a great many entries at once; another one's read waits for one group of each other
connection at most, and adds, which are never queued here, for none. Reads of one ledger that wait behind each other on
a connection make a group: they lie close together on the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

OwnerT = TypeVar("OwnerT", bound=Hashable)
ItemT = TypeVar("ItemT")


class ReadTurns(Generic[OwnerT, ItemT]):
    """Reads that wait, by the connection that asked."""

    __slots__ = ("_group_max", "_key", "_waiting", "_waiting_max")

    def __init__(self, key: Callable[[ItemT], Hashable], *, group_max: int, waiting_max: int) -> None:
        """``key``: items that follow each other with one key may be a group; None: alone.

        ``group_max``: items in a group; ``waiting_max``: items of one owner.
        """
        self._key = key
        self._group_max = group_max
        self._waiting_max = waiting_max
        #: In the order of turns: whoever was served goes to the end.
        self._waiting: dict[OwnerT, deque[ItemT]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, owner: OwnerT, item: ItemT) -> bool:
        """Let it wait behind the owner's others; False if that are too many already."""
        items = self._waiting.setdefault(owner, deque())
        if len(items) >= self._waiting_max:
            return False
        items.append(item)
        return True

    def put_back(self, owner: OwnerT, items: Sequence[ItemT]) -> None:
        """What was taken and not carried out is the owner's next again."""
        self._waiting.setdefault(owner, deque()).extendleft(reversed(items))

    def forget(self, owner: OwnerT) -> list[ItemT]:
        """Drop what the owner has waiting, and give it."""
        return list(self._waiting.pop(owner, ()))

    def take(self, may_serve: Callable[[OwnerT], bool]) -> tuple[OwnerT, list[ItemT]] | None:
        """The next group of the next owner that may be served; None: none may, or nothing waits."""
        for owner in self._waiting:
            if may_serve(owner):
                break
        else:
            return None
        items = self._waiting.pop(owner)
        group = [items.popleft()]
        key = self._key(group[0])
        while items and key is not None and len(group) < self._group_max and self._key(items[0]) == key:
            group.append(items.popleft())
        if items:
            self._waiting[owner] = items
        return owner, group
