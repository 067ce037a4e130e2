"""How many messages each entry of a log has, in little memory: the second reading need not take entries apart."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

#: Runs of entries alike that are remembered, 8 bytes each: of what comes behind them nothing is known.
RUNS_MAX: Final = 4 << 20
_REPEATED_MAX: Final = (1 << 32) - 1


class EntryCounts:
    """Numbers of messages, in the order of the entries."""

    __slots__ = ("_counts", "_is_full", "_repeated")

    def __init__(self) -> None:
        self._counts = array("I")
        #: How many entries that follow each other have this number.
        self._repeated = array("I")
        self._is_full = False

    def add(self, count: int, entries: int = 1) -> None:
        """The next so many entries have ``count`` messages each."""
        counts, repeated = self._counts, self._repeated
        if self._is_full:
            return
        if counts and counts[-1] == count and repeated[-1] + entries <= _REPEATED_MAX:
            repeated[-1] += entries
        elif len(counts) < RUNS_MAX:
            counts.append(count)
            repeated.append(entries)
        else:
            self._is_full = True

    def read(self) -> CountReader:
        """All of them from the first entry on."""
        return CountReader(zip(self._counts, self._repeated, strict=True))


class CountReader:
    """See :meth:`EntryCounts.read`."""

    __slots__ = ("_count", "_left", "_runs")

    def __init__(self, runs: Iterator[tuple[int, int]]) -> None:
        self._runs = runs
        self._count = self._left = 0

    def take(self, entries: int) -> Iterator[tuple[int | None, int]]:
        """Of the next ``entries``: number of messages and how many entries in a row have it. None: it is not known."""
        while entries:
            if not self._left:
                run = next(self._runs, None)
                if run is None:
                    yield None, entries
                    return
                self._count, self._left = run
            step = min(entries, self._left)
            self._left -= step
            entries -= step
            yield self._count, step
