"""Which entries of a log nobody needs any more, where entries hold records of several transactions (Pulsar's batches).

The records of a transaction go together, once it is over. Where one of them shares its entry with a record of another,
both go together, and so on: with some of its records gone, one that is over would be open when the log is read again,
and one that is open would be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from geminga.model.position import Position

K = TypeVar("K")


class _Bound(Generic[K]):
    """Transactions whose records can only go together."""

    __slots__ = ("members", "open", "over")

    def __init__(self) -> None:
        self.members: set[K] = set()
        self.open: set[K] = set()
        #: Records of those that are over.
        self.over: list[Sequence[Position]] = []


class SharedEntries(Generic[K]):
    """Of one log, whose transactions are named by ``K``. First all that is shared is told, then what is over."""

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound: dict[K, _Bound[K]] = {}

    def add(self, owners: Iterable[K]) -> None:
        """An entry holds records of these."""
        members = set(owners)
        if len(members) < 2:
            return
        found = {id(bound): bound for each in members if (bound := self._bound.get(each)) is not None}
        # The smaller ones into the largest, so that each transaction is moved few times.
        largest = max(found.values(), key=lambda bound: len(bound.members), default=_Bound[K]())
        for bound in found.values():
            if bound is not largest:
                members |= bound.members
        members -= largest.members
        largest.members |= members
        largest.open |= members
        for each in members:
            self._bound[each] = largest

    def over(self, owner: K, positions: Sequence[Position]) -> list[Sequence[Position]]:
        """A transaction is over, whose records lie there: what may go now, each together. Again is fine."""
        bound = self._bound.get(owner)
        if bound is None:
            return [positions]
        bound.over.append(positions)
        bound.open.discard(owner)
        if bound.open:
            return []
        for each in bound.members:
            del self._bound[each]
        return bound.over
