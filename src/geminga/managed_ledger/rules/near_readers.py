"""What is read from storage once for all readers of a log that follow near each other: who needs it still. Pure.

Where the readers are is given in order, so that who is near is found without a look at each of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from geminga.model.position import Position

#: Whoever is at most so many entries behind what was read comes for it; who is further behind finds it gone.
NEAR_ENTRIES: Final = 20_000


class Span(NamedTuple):
    """Consecutive entries of one ledger: those from ``first`` on, before ``end``."""

    ledger_id: int
    first: int
    end: int

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry is one of them."""
        return self.ledger_id == ledger_id and self.first <= entry_id < self.end


class CameFrom(Enum):
    """Where entries come from."""

    MEMORY = "memory"
    #: Another reader asked for them.
    COMING = "coming"
    STORAGE = "storage"


class Supply(NamedTuple):
    """Where the first of the entries asked for come from, and up to which."""

    way: CameFrom
    last: int


class Near(NamedTuple):
    """The readers that come for a span: how many, and the least entry that one of them reads next."""

    readers: int
    least: int


def plan(ledger_id: int, first: int, last: int, held: Sequence[Span], coming: Sequence[Span]) -> Supply:
    """How to get entries ``first`` to ``last``, or the first of them: none is read that is there or on its way."""
    for way, spans in ((CameFrom.MEMORY, held), (CameFrom.COMING, coming)):
        for span in spans:
            if span.holds(ledger_id, first):
                return Supply(way, min(last, span.end - 1))
    for span in (*held, *coming):
        if span.ledger_id == ledger_id and first < span.first <= last and span.first < span.end:
            last = span.first - 1
    return Supply(CameFrom.STORAGE, last)


def least_needed(held: Sequence[Span], positions: Sequence[Position]) -> list[int]:
    """Of each span that is held, the least entry that is needed still; its end: none is.

    ``held`` in the order of their ledgers: who is near one of them comes for all of the next.
    """
    needed, is_awaited = [], False
    for span in held:
        found = near(span, positions)
        needed.append(span.first if is_awaited else found.least)
        is_awaited = is_awaited or found.readers > 0
    return needed


def coming_for(span: Span, held: Sequence[Span], positions: Sequence[Position]) -> int:
    """How many readers come for a span: those near it, and near what is held of ledgers before."""
    before = [each for each in held if each.ledger_id < span.ledger_id]
    return near(span, positions).readers + sum(near(each, positions).readers for each in before)


def near(span: Span, positions: Sequence[Position]) -> Near:
    """The readers at ``positions`` that come for ``span``; 0 and its end: nobody does."""
    first = bisect_left(positions, Position(span.ledger_id, span.first - NEAR_ENTRIES))
    end = bisect_left(positions, Position(span.ledger_id, span.end), lo=first)
    return Near(end - first, positions[first].entry_id if first < end else span.end)
