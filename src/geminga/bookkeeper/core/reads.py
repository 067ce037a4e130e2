"""What the answers of replicas to a read mean. Pure.

An I/O error or limbo is never "no such entry": a recovery read is absent only if so many bookies are
certain not to have the entry that it can never have been acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from geminga.bookkeeper.core.distribution import Distribution
from geminga.model.errors import (
    CorruptionError,
    DiskIOError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    invariant,
)


class ReadVerdict(Enum):
    """What is known of an entry that recovery asks for."""

    #: Answers that come may still decide it.
    UNDECIDED = "undecided"
    FOUND = "found"
    #: It can not have been acknowledged.
    ABSENT = "absent"
    #: Every bookie answered and it is still open.
    UNKNOWN = "unknown"


class RecoveryRead:
    """The answers of one entry's write set."""

    __slots__ = ("_absences", "_absences_needed", "_silent", "entry", "entry_id", "errors")

    def __init__(self, distribution: Distribution, entry_id: int, *, is_acknowledged: bool = False) -> None:
        """``is_acknowledged``: it is known to have been; who has lost it says nothing of the others."""
        self._absences_needed = distribution.write_quorum if is_acknowledged else distribution.absences_needed
        self.entry_id = entry_id
        #: The entry, whole and checked, once one bookie returned it.
        self.entry: bytes | None = None
        self.errors: list[StorageError] = []
        self._absences = 0
        self._silent = set(distribution.write_set(entry_id))

    def answer(self, index: int, result: bytes | StorageError) -> ReadVerdict:
        """Bookie ``index`` answered with a checked entry or an error."""
        invariant(index in self._silent, f"entry {self.entry_id}: an answer too many from bookie {index}")
        self._silent.discard(index)
        if isinstance(result, StorageError):
            self.errors.append(result)
            if is_certain_absence(result):
                self._absences += 1
        elif self.entry is None:
            self.entry = result
        return self.verdict

    @property
    def verdict(self) -> ReadVerdict:
        """What the answers so far mean; a found entry counts, whatever the others say."""
        if self.entry is not None:
            return ReadVerdict.FOUND
        if self._absences >= self._absences_needed:
            return ReadVerdict.ABSENT
        return ReadVerdict.UNDECIDED if self._silent else ReadVerdict.UNKNOWN


def is_certain_absence(error: StorageError) -> bool:
    """Whether a bookie's error says that it never had the entry."""
    return isinstance(error, (NoSuchEntryError, NoSuchLedgerError))


def worst_error(errors: Iterable[StorageError]) -> StorageError:
    """The one error to report for an entry that no replica could give: damage first, "no such entry" last."""
    ranked = sorted(errors, key=_rank)
    invariant(ranked, "a read failed without an error")
    return ranked[0]


def _rank(error: StorageError) -> int:
    if isinstance(error, CorruptionError):
        return 0
    if isinstance(error, DiskIOError):
        return 1
    return 3 if is_certain_absence(error) else 2
