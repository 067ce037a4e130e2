"""Which bookies of an ensemble hold an entry: BookKeeper's round-robin distribution. Pure.

Entry ``e`` of an ensemble of E bookies lies on the write set ``(e + i) mod E`` for i in [0, Qw). Bookies are named by
their index in the ensemble here. With E == Qw every bookie holds every entry ("uniform").
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

from geminga.model.errors import invariant

#: Different (E, Qw, Qa) that are kept.
DISTRIBUTIONS_CACHED_MAX: Final = 64


class Distribution(NamedTuple):
    """E, Qw and Qa of a ledger."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    @property
    def is_uniform(self) -> bool:
        """Whether every bookie of the ensemble holds every entry."""
        return self.ensemble_size == self.write_quorum

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Indexes of the bookies that hold the entry, in the order reads try them."""
        size = self.ensemble_size
        return tuple((entry_id + i) % size for i in range(self.write_quorum))

    def holds(self, index: int, entry_id: int) -> bool:
        """Whether the bookie at ``index`` is in the entry's write set."""
        return (index - entry_id) % self.ensemble_size < self.write_quorum

    def runs(self, index: int, first_entry_id: int, count: int) -> list[tuple[int, int]]:
        """Of ``count`` consecutive entries those that bookie ``index`` holds, as (first entry id, count) runs."""
        if self.is_uniform:
            return [(first_entry_id, count)] if count else []
        runs: list[tuple[int, int]] = []
        end = first_entry_id + count
        entry_id = first_entry_id
        while entry_id < end:
            into_run = (index - entry_id) % self.ensemble_size
            if into_run >= self.write_quorum:
                entry_id += into_run - self.write_quorum + 1
                continue
            length = min(into_run + 1, end - entry_id)
            runs.append((entry_id, length))
            entry_id += length
        return runs

    def is_covered(self, answered: Collection[int]) -> bool:
        """Whether no write set can reach its ack quorum among the bookies that did *not* answer.

        Then every acknowledged entry is known to one that did (and, if they were fenced, no further entry can be
        acknowledged). BookKeeper protocol: at least (Qw - Qa) + 1 of every write set.
        """
        invariant(all(0 <= i < self.ensemble_size for i in answered), f"bookie indexes {answered} outside {self}")
        silent = [0 if i in answered else 1 for i in range(self.ensemble_size)]
        return all(
            sum(silent[i] for i in self.write_set(start)) < self.ack_quorum for start in range(self.ensemble_size)
        )

    @staticmethod
    @lru_cache(maxsize=DISTRIBUTIONS_CACHED_MAX)
    def of(ensemble_size: int, write_quorum: int, ack_quorum: int) -> Distribution:
        """One object for all ledgers that have these sizes."""
        return Distribution(ensemble_size, write_quorum, ack_quorum)

    @property
    def absences_needed(self) -> int:
        """How many bookies of a write set must be certain not to have an entry until it can not be acknowledged."""
        return self.write_quorum - self.ack_quorum + 1
