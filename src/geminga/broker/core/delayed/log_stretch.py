"""A stretch of the log as places: of one ledger or of many, from an entry to another. Pure.

An entry's *place* is its distance from the first one; a ledger goes on at the place behind the last one of the ledger
before it, however far its own end is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from geminga.model import Position

#: Arrays of a stretch.
_OBJECT_BYTES: Final = 320
_PIECE_BYTES: Final = 24


class LogStretch:
    """See the module."""

    __slots__ = ("_ids", "_ledgers", "_moves", "_starts", "span")

    def __init__(self, pieces: Iterable[tuple[int, int, int]]) -> None:
        """``pieces``: ledger id, first and last entry id, ascending; at least one."""
        self._ledgers = array("Q")
        #: The place of the first entry of each ledger, its id, and what a place is less than an id.
        self._starts = array("Q")
        self._ids = array("Q")
        self._moves = array("q")
        #: Places.
        self.span = 0
        for ledger_id, first, last in pieces:
            self._ledgers.append(ledger_id)
            self._starts.append(self.span)
            self._ids.append(first)
            self._moves.append(first - self.span)
            self.span += last - first + 1

    def __len__(self) -> int:
        """Ledgers."""
        return len(self._ledgers)

    @property
    def first(self) -> Position:
        """The first position."""
        return Position(self._ledgers[0], self._ids[0])

    @property
    def last(self) -> Position:
        """The last position."""
        return Position(self._ledgers[-1], self.span - 1 + self._moves[-1])

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        return _OBJECT_BYTES + _PIECE_BYTES * len(self._ledgers)

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """What it was made of."""
        ends = [*self._starts[1:], self.span]
        for ledger_id, first, move, end in zip(self._ledgers, self._ids, self._moves, ends, strict=True):
            yield ledger_id, first, end - 1 + move

    def place_of(self, ledger_id: int, entry_id: int) -> int | None:
        """The place of an entry; None if it has none."""
        index = bisect_left(self._ledgers, ledger_id)
        if index == len(self._ledgers) or self._ledgers[index] != ledger_id:
            return None
        place = entry_id - self._moves[index]
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self.span
        return place if self._starts[index] <= place < end else None

    def places_through(self, ledger_id: int, entry_id: int) -> int:
        """How many places lie at or before an entry, which need not be in the stretch."""
        index = bisect_right(self._ledgers, ledger_id) - 1
        if index < 0:
            return 0
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self.span
        if self._ledgers[index] < ledger_id:
            return end
        return max(self._starts[index], min(end, entry_id - self._moves[index] + 1))

    def move_of(self, ledger_id: int) -> int:
        """What a place of a ledger is less than its entry id."""
        return self._moves[bisect_left(self._ledgers, ledger_id)]

    def positions(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """(ledger id, entry id) of places."""
        ledgers, starts, moves = self._ledgers, self._starts, self._moves
        if len(ledgers) == 1:
            ledger_id, move = ledgers[0], moves[0]
            return [(ledger_id, place + move) for place in places]
        pieces = [bisect_right(starts, place) - 1 for place in places]
        return [(ledgers[piece], place + moves[piece]) for piece, place in zip(pieces, places, strict=True)]
