"""Which bookies of an ensemble hold an entry: BookKeeper's round-robin distribution. Pure.

Entry ``e`` of an ensemble of E bookies lies on the write set ``(e + i) mod E`` for i in [0, Qw). Bookies are named by
their index in the ensemble here. With E == Qw every bookie holds every entry ("uniform").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import compress, cycle
from typing import Final, NamedTuple

from geminga.model.errors import invariant

#: Different (E, Qw, Qa) that are kept.
DISTRIBUTIONS_CACHED_MAX: Final = 64
#: Patterns of striping that are kept: E * E for each of a few different (E, Qw, Qa).
PATTERNS_CACHED_MAX: Final = 1024


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

    def share(self, index: int, entry_ids: range) -> Sequence[int]:
        """Of consecutive entries those that bookie ``index`` holds: ``entry_ids`` itself if that is all of them."""
        if self.is_uniform:
            return entry_ids
        held = _held(self, index, entry_ids.start % self.ensemble_size)
        return entry_ids if len(entry_ids) == 1 and held[0] else tuple(compress(entry_ids, cycle(held)))

    def write_mask(self, entry_id: int) -> int:
        """The write set as a bit mask of indexes."""
        return sum(1 << index for index in self.write_set(entry_id))

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


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def _held(distribution: Distribution, index: int, start: int) -> tuple[bool, ...]:
    """Which of E entries from one with ``entry id mod E == start`` on bookie ``index`` holds; then it repeats."""
    return tuple(distribution.holds(index, start + i) for i in range(distribution.ensemble_size))
