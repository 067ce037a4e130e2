"""Deduplication of publishes: which sequence ids of each producer are stored, and which are on their way.

Per producer name two numbers: the highest sequence id *pushed* (handed to the managed ledger) and the highest
*persisted*. A message at or below persisted is a duplicate; above pushed it is new; in between the answer is
not known yet, and never rounded to "duplicate": acknowledging it would lose it if the write fails.

After a failed write nothing in between is certain until the topic's tail was read again: from
:meth:`begin_settling` to :meth:`settled` every message at hand is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from geminga.model.errors import invariant

#: Said to a producer whose message can not be judged now; it reconnects and sends again.
UNKNOWN_TEXT: Final = "Cannot determine whether the message is a duplicate at this time"


class Verdict(Enum):
    """What is known of a message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


class Deduplication:
    """The sequence ids of one topic's producers."""

    __slots__ = ("_is_settling", "_persisted", "_pushed")

    def __init__(self) -> None:
        #: Highest sequence id handed to the ledger, by producer name. Invariant: never below persisted.
        self._pushed: dict[str, int] = {}
        #: Highest sequence id on stable storage, by producer name.
        self._persisted: dict[str, int] = {}
        self._is_settling = False

    @property
    def is_settling(self) -> bool:
        """Whether a failed write is still being looked into."""
        return self._is_settling

    @property
    def persisted(self) -> Mapping[str, int]:
        """Highest stored sequence id of each producer."""
        return self._persisted

    def published(self, producer_name: str, sequence_id: int, highest_sequence_id: int) -> Verdict:
        """Judge a message about to be stored; if accepted, it counts as pushed.

        ``highest_sequence_id`` is that of the batch's last message, or at most ``sequence_id`` without one.
        """
        if self._is_settling:
            return Verdict.UNKNOWN
        pushed = self._pushed.get(producer_name, -1)
        if sequence_id <= pushed:
            if sequence_id <= self._persisted.get(producer_name, -1):
                return Verdict.DUPLICATE
            return Verdict.UNKNOWN
        self._pushed[producer_name] = max(sequence_id, highest_sequence_id)
        return Verdict.ACCEPTED

    def stored(self, producer_name: str, highest_sequence_id: int) -> None:
        """An entry of this producer is on stable storage (or was found there by a replay)."""
        if highest_sequence_id > self._persisted.get(producer_name, -1):
            self._persisted[producer_name] = highest_sequence_id
        if highest_sequence_id > self._pushed.get(producer_name, -1):
            self._pushed[producer_name] = highest_sequence_id

    def begin_settling(self) -> None:
        """A write failed: what was pushed and not persisted may or may not be stored."""
        self._is_settling = True

    def settled(self) -> None:
        """The topic's tail was read again through :meth:`stored`, with no write under way: persisted is the truth."""
        self._pushed = dict(self._persisted)
        self._is_settling = False

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest stored sequence id of a producer, -1 if it has none: what it learns when it connects."""
        return self._persisted.get(producer_name, -1)

    def check_invariants(self) -> None:
        """Raise InvariantError if pushed is behind persisted anywhere."""
        for name, persisted in sorted(self._persisted.items()):
            invariant(
                self._pushed.get(name, -1) >= persisted,
                f"producer {name}: pushed {self._pushed.get(name)} is behind persisted {persisted}",
            )
