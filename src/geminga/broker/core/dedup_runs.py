"""Sequence ids whose messages may come to nothing: those of open transactions, and those of aborted ones.

The highest stored number of a producer (:mod:`.dedup`) says nothing of the numbers below that a transaction published:
while it is open nobody knows whether they count, and after an abort they do not: what is sent again with them is no
repetition. (Pulsar takes it for one: it gets a receipt and is never stored.) Here they are kept as runs, apart from
each other and in order, for each producer that has any. What is in no run and not above the highest number is stored
for good. Numbers that the producer left out before those of a transaction go with them.

The oldest runs are forgotten beyond :data:`RUNS_MAX`; their numbers are stored for good then, as in Pulsar.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from geminga.model.txn_id import TxnId

#: Runs of all producers of a topic together.
RUNS_MAX: Final = 10_000
#: Free ones of them that a snapshot keeps.
FREE_SAVED_MAX: Final = 1_000
#: Bytes of their producers' names, as JSON: a snapshot keeps them in a node, which has little room.
FREE_SAVED_BYTES_MAX: Final = 128 * 1024

_last = attrgetter("last")


class Run:
    """Numbers from ``first`` to ``last`` that one transaction published, or nobody."""

    __slots__ = ("first", "is_coming", "last", "txn_id")

    def __init__(self, first: int, last: int, txn_id: TxnId | None, *, is_coming: bool = False) -> None:
        self.first = first
        self.last = last
        #: None: of an aborted one, so the numbers are free.
        self.txn_id = txn_id
        #: They were free, and are being stored again.
        self.is_coming = is_coming

    @property
    def is_free(self) -> bool:
        """Whether a message with these numbers is a new one."""
        return self.txn_id is None and not self.is_coming


class SequenceRuns:
    """See the module."""

    __slots__ = ("_by_name", "_count", "_of_transaction")

    def __init__(self) -> None:
        #: Of each producer, ascending and apart from each other.
        self._by_name: dict[str, list[Run]] = {}
        self._count = 0
        #: Producers of each open transaction.
        self._of_transaction: dict[TxnId, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[tuple[str, Run]]:
        for name, runs in self._by_name.items():
            for run in runs:
                yield name, run

    # ---- questions

    def within(self, name: str, first: int, last: int) -> list[Run]:
        """Runs of a producer that have any of these numbers, ascending."""
        runs = self._by_name.get(name, [])
        index = bisect_left(runs, first, key=_last)
        found = []
        while index < len(runs) and runs[index].first <= last:
            found.append(runs[index])
            index += 1
        return found

    def free(self, runs_max: int = FREE_SAVED_MAX) -> dict[str, list[tuple[int, int]]]:
        """Numbers of aborted transactions, for a snapshot: what is being stored again included; at most the last
        ``runs_max`` runs, whose producers' names have at most :data:`FREE_SAVED_BYTES_MAX`."""
        free = [(name, run) for name, run in self if run.txn_id is None]
        found: dict[str, list[tuple[int, int]]] = {}
        size_bytes = 0
        for name, run in reversed(free[max(0, len(free) - runs_max) :]):
            if name not in found:
                size_bytes += len(json.dumps(name))
                if size_bytes > FREE_SAVED_BYTES_MAX:
                    break
            found.setdefault(name, []).append((run.first, run.last))
        return {name: pairs[::-1] for name, pairs in reversed(found.items())}

    # ---- changes

    def restored(self, free: Mapping[str, Iterable[tuple[int, int]]]) -> None:
        """What :meth:`free` told, before anything else."""
        for name, pairs in free.items():
            for first, last in pairs:
                self._put(name, Run(first, last, None))

    def coming(self, name: str, first: int, last: int) -> None:
        """Free ones of these numbers are being stored again."""
        for run in self.within(name, first, last):
            if run.is_free:
                low, high = max(first, run.first), min(last, run.last)
                self._cut(name, low, high)
                self._put(name, Run(low, high, None, is_coming=True))

    def settled(self) -> None:
        """Nothing is being stored: what was coming and did not come is free."""
        for _, run in self:
            run.is_coming = False

    def stored(self, name: str, first: int, last: int, txn_id: TxnId | None, before: int = -1) -> None:
        """A message is stored: in a transaction, or for good. ``before``: the producer's highest number until now."""
        if txn_id is None:
            if name in self._by_name:
                self._cut(name, first, last)
            return
        runs = self._by_name.get(name)
        if runs and runs[-1].txn_id == txn_id and runs[-1].last < first and runs[-1].last in (first - 1, before):
            # Nothing else of the producer is in between.
            runs[-1].last = last
            return
        self._cut(name, first, last)
        below = bisect_left(runs, first, key=_last) if (runs := self._by_name.get(name)) else 0
        if runs and below:
            before = max(before, runs[below - 1].last)
        self._put(name, Run(min(first, before + 1), last, txn_id))
        self._of_transaction.setdefault(txn_id, set()).add(name)

    def ended(self, txn_id: TxnId, *, is_committed: bool) -> list[str]:
        """Its numbers are stored for good, or free; producers of which some are free now."""
        names = self._of_transaction.pop(txn_id, set())
        for name in names:
            runs = self._by_name.get(name, [])
            if is_committed:
                self._replace(name, [run for run in runs if run.txn_id != txn_id])
                continue
            for run in runs:
                if run.txn_id == txn_id:
                    run.txn_id = None
        return [] if is_committed else sorted(names)

    def top(self, name: str, highest: int) -> int:
        """The highest number up to ``highest`` that is not free; -1: they all are."""
        while (runs := self.within(name, highest, highest)) and runs[0].is_free:
            highest = runs[0].first - 1
        return highest

    def forget(self, name: str) -> None:
        """The producer is forgotten."""
        self._replace(name, [])

    def _put(self, name: str, run: Run) -> None:
        runs = self._by_name.setdefault(name, [])
        runs.insert(bisect_left(runs, run.first, key=_last), run)
        self._count += 1
        if self._count > RUNS_MAX:
            oldest = next(iter(self._by_name))
            self._replace(oldest, self._by_name[oldest][1:])

    def _cut(self, name: str, first: int, last: int) -> None:
        """These numbers are in no run."""
        cut = self.within(name, first, last)
        if not cut:
            return
        left: list[Run] = []
        for run in self._by_name[name]:
            if run.last < first or run.first > last:
                left.append(run)
                continue
            if run.first < first:
                left.append(Run(run.first, first - 1, run.txn_id, is_coming=run.is_coming))
            if run.last > last:
                left.append(Run(last + 1, run.last, run.txn_id, is_coming=run.is_coming))
        self._replace(name, left)

    def _replace(self, name: str, runs: list[Run]) -> None:
        self._count += len(runs) - len(self._by_name.get(name, []))
        if runs:
            self._by_name[name] = runs
        else:
            self._by_name.pop(name, None)
