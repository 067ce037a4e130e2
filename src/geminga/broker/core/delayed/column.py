"""What the delayed index (:mod:`.time_buckets`) was given last, as it came: the buffer before a chunk. Pure.

Positions ascend, so that "is it here?" is a search; a due time may be anything. 12 bytes an entry, at most
:data:`COLUMN_MAX` of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from pyroaring import BitMap

from geminga.model import Position

#: Entries of one column, and of a chunk: some 15 ms to sort and pack if their times are drawn at random.
COLUMN_MAX: Final = 1 << 15
#: Ledgers of one column: 24 bytes each in its chunk.
PIECES_MAX: Final = 1 << 12
#: Behind every bucket.
NO_BUCKET: Final = 1 << 64
_ENTRY_BYTES: Final = 12


class Column:
    """See the module. ``ids`` and ``buckets`` are of the same length; whoever appends does so to both."""

    __slots__ = ("_lowest", "_seen", "buckets", "entries_max", "ids", "ledgers", "starts")

    def __init__(self, entries_max: int = COLUMN_MAX) -> None:
        self.entries_max = entries_max
        self.ids = array("I")
        self.buckets = array("Q")
        #: Ledger ids, ascending, and where in ``ids`` each begins; the last may have nothing.
        self.ledgers: list[int] = []
        self.starts: list[int] = []
        #: How many were looked at for the lowest bucket, and that.
        self._seen = 0
        self._lowest = NO_BUCKET

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_full(self) -> bool:
        """Whether it is to become a chunk."""
        return len(self.ids) >= self.entries_max or len(self.ledgers) >= PIECES_MAX

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        return _ENTRY_BYTES * len(self.ids) + 64 * len(self.ledgers)

    @property
    def last(self) -> Position | None:
        """The last position; None: there is none."""
        index = bisect_right(self.starts, len(self.ids) - 1) - 1
        return Position(self.ledgers[index], self.ids[-1]) if self.ids else None

    def begin(self, ledger_id: int) -> None:
        """What is appended from now on is of this ledger, which lies behind the last one."""
        if self.starts and self.starts[-1] == len(self.ids):
            self.ledgers[-1] = ledger_id
        else:
            self.ledgers.append(ledger_id)
            self.starts.append(len(self.ids))

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """(ledger id, start, end in ``ids``)."""
        ends = [*self.starts[1:], len(self.ids)]
        for ledger_id, start, end in zip(self.ledgers, self.starts, ends, strict=False):
            if start < end:
                yield ledger_id, start, end

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """(bucket, ledger id, entry id) in log order."""
        for ledger_id, start, end in self.pieces():
            for index in range(start, end):
                yield self.buckets[index], ledger_id, self.ids[index]

    def parts(self) -> Iterator[Column]:
        """The same in columns of at most ``entries_max``; a run may have made it longer."""
        if len(self.ids) <= self.entries_max:
            if self.ids:
                yield self
            return
        for begin in range(0, len(self.ids), self.entries_max):
            part = Column()
            for ledger_id, start, end in self.pieces():
                low, high = max(start, begin), min(end, begin + self.entries_max)
                if low < high:
                    part.begin(ledger_id)
                    part.ids.extend(self.ids[low:high])
                    part.buckets.extend(self.buckets[low:high])
            yield part

    def lowest(self) -> int:
        """The lowest bucket of all; :data:`NO_BUCKET`: nothing is here. Costs by what was added since the last call."""
        if self._seen < len(self.buckets):
            self._lowest = min(self._lowest, min(self.buckets[self._seen :]))
            self._seen = len(self.buckets)
        return self._lowest

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an entry is here."""
        start, end = self._piece_of(ledger_id)
        index = bisect_left(self.ids, entry_id, start, end)
        return index < end and self.ids[index] == entry_id

    def members(self, ledger_id: int, first: int, end: int) -> BitMap:
        """The entry ids of a ledger from ``first`` to before ``end``."""
        low, high = self._piece_of(ledger_id)
        return BitMap(self.ids[bisect_left(self.ids, first, low, high) : bisect_left(self.ids, end, low, high)])

    def count_before(self, position: Position) -> int:
        """How many entries lie before ``position``."""
        start, end = self._piece_of(position.ledger_id)
        return bisect_left(self.ids, position.entry_id, start, end)

    def take_through(self, bucket: int) -> list[tuple[int, int, int]]:
        """Remove what lies in buckets up to ``bucket``, as :meth:`entries`."""
        if self.lowest() > bucket:
            return []
        taken, left = [], Column()
        for ledger_id, start, end in self.pieces():
            left.begin(ledger_id)
            for at, entry_id in zip(self.buckets[start:end], self.ids[start:end], strict=True):
                if at <= bucket:
                    taken.append((at, ledger_id, entry_id))
                else:
                    left.buckets.append(at)
                    left.ids.append(entry_id)
        self._become(left)
        return taken

    def discard_before(self, position: Position) -> int:
        """Remove what lies before ``position``; how many those were."""
        count = self.count_before(position)
        if count:
            left = Column()
            for ledger_id, start, end in self.pieces():
                if end > count:
                    left.begin(ledger_id)
                    left.ids.extend(self.ids[max(start, count) : end])
                    left.buckets.extend(self.buckets[max(start, count) : end])
            self._become(left)
        return count

    def _become(self, other: Column) -> None:
        # The ledger of the last piece stays that of what is appended next.
        if other.ledgers[-1:] != self.ledgers[-1:]:
            other.begin(self.ledgers[-1])
        self.ids, self.buckets = other.ids, other.buckets
        self.ledgers, self.starts = other.ledgers, other.starts
        self._seen, self._lowest = 0, NO_BUCKET

    def _piece_of(self, ledger_id: int) -> tuple[int, int]:
        index = bisect_left(self.ledgers, ledger_id)
        if index == len(self.ledgers):
            return len(self.ids), len(self.ids)
        start = self.starts[index]
        if self.ledgers[index] != ledger_id:
            return start, start
        return start, self.starts[index + 1] if index + 1 < len(self.starts) else len(self.ids)
