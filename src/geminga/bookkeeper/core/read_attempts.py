"""Which replica is asked for which entries of a read, and when the read is decided. Pure.

Each entry has its replicas in the order they are asked. The next one is asked when all that were asked have failed,
and, so that one that hangs does not hold up the reader, when an answer is late; nobody is asked twice. The first sound
copy counts; what comes after it is passed over. "Left out" is what a bookie did not send for the limit of bytes: the
read ends before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.reads import worst_error
from geminga.model.errors import StorageError, invariant


class BookieRead(NamedTuple):
    """One call of a bookie, for ascending entries."""

    bookie_id: str
    entry_ids: Sequence[int]


class ReadAttempts:
    """One read of consecutive entries."""

    __slots__ = ("_asked", "_end", "_errors", "_first", "_found", "_head", "_outstanding", "_replicas_of")

    def __init__(self, entry_ids: range, replicas_of: Callable[[int], Sequence[str]]) -> None:
        """``replicas_of``: an entry's, the one to ask first first; the same whenever it is asked for."""
        count = len(entry_ids)
        self._first = entry_ids.start
        self._replicas_of = replicas_of
        self._found: list[bytes | None] = [None] * count
        #: How many replicas of each entry were asked, and how many of them have not answered.
        self._asked = [0] * count
        self._outstanding = [0] * count
        self._errors: dict[int, list[StorageError]] = {}
        #: Places from here on were left out.
        self._end = count
        #: Places before it were found.
        self._head = 0

    def begin(self) -> list[BookieRead]:
        """The first replica of each entry."""
        return self._ask(range(self._end))

    def answer(self, ask: BookieRead, results: Sequence[bytes | StorageError]) -> list[BookieRead]:
        """A bookie's answer, sound payloads or errors, perhaps only the first of them; who is asked instead."""
        invariant(len(results) <= len(ask.entry_ids), f"{len(results)} results for {len(ask.entry_ids)} entries")
        failed = []
        for number, entry_id in enumerate(ask.entry_ids):
            place = entry_id - self._first
            self._outstanding[place] -= 1
            if number >= len(results):
                self._end = min(self._end, place)
                continue
            result = results[number]
            if isinstance(result, StorageError):
                self._errors.setdefault(place, []).append(result)
                if not self._outstanding[place]:
                    failed.append(place)
            elif self._found[place] is None:
                self._found[place] = result
        return self._ask(failed)

    def answer_is_late(self) -> list[BookieRead]:
        """The next replica of each entry that is still waited for."""
        return self._ask(place for place in range(self._head, self._end) if self._outstanding[place])

    @property
    def late_bookie(self) -> str | None:
        """Who was asked last for the first entry that is waited for, if there is another one to ask."""
        head = self._head
        if head < self._end:
            asked, replicas = self._asked[head], self._replicas(head)
            if self._outstanding[head] and asked < len(replicas):
                return replicas[asked - 1]
        return None

    @property
    def outcome(self) -> Sequence[bytes] | StorageError | None:
        """The payloads, or the error of the first entry that nobody could give; None while it is undecided."""
        while self._head < self._end and self._found[self._head] is not None:
            self._head += 1
        head = self._head
        if head >= self._end:
            return [payload for payload in self._found[: self._end] if payload is not None]
        if self._outstanding[head]:
            return None
        return worst_error(self._errors[head])

    def _replicas(self, place: int) -> Sequence[str]:
        return self._replicas_of(self._first + place)

    def _ask(self, places: Iterable[int]) -> list[BookieRead]:
        by_bookie: dict[str, list[int]] = {}
        for place in places:
            if place >= self._end or self._found[place] is not None:
                continue
            asked, replicas = self._asked[place], self._replicas(place)
            if asked < len(replicas):
                self._asked[place] = asked + 1
                self._outstanding[place] += 1
                by_bookie.setdefault(replicas[asked], []).append(self._first + place)
        return [BookieRead(bookie_id, sorted(entry_ids)) for bookie_id, entry_ids in by_bookie.items()]


class StickyReplica:
    """Which index of the ensemble a ledger's reads begin with: the same one, so that what it read ahead is used.

    It moves on when that bookie fails or is late. Only where every bookie has every entry.
    """

    __slots__ = ("_size", "index")

    def __init__(self, distribution: Distribution, ledger_id: int) -> None:
        self._size = distribution.ensemble_size
        # Ledgers begin with different ones, so that all bookies are read from.
        self.index = ledger_id % self._size

    def failed(self, index: int) -> None:
        """The bookie at ``index`` failed or was late."""
        if index == self.index:
            self.index = (index + 1) % self._size


def read_order(
    ensemble: Sequence[str], write_set: Sequence[int], start: int, rank: Callable[[str], int]
) -> tuple[str, ...]:
    """An entry's replicas as they are asked: by their rank, equal ones from ``start`` of its write set on."""
    size = len(write_set)
    order = [ensemble[write_set[(start + i) % size]] for i in range(size)]
    return tuple(sorted(order, key=rank))
