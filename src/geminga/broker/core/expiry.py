"""How old an entry is, and which entries of a backlog are too old. Pure.

What an entry says of its own time is a client's word: a publish time, from a clock that may be an hour slow, or no
clock at all. It counts only within what the broker knows by itself, :func:`stored_between`. And whatever an entry
says, it says of itself alone: entries are looked at one by one from the oldest on, and the first that is not too old
ends the expiry (:class:`ExpiryWalk`). A search by halves would take one entry's word for all before it.

Apache Pulsar drops ledgers by the time they were closed as well, and searches the rest by halves
(``PersistentMessageExpiryMonitor``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.position import Position

#: Entries looked at with the first read of a walk, which nearly always is the last, and with each later one at most.
FIRST_LOOK_ENTRIES: Final = 8
LOOK_ENTRIES_MAX: Final = 512


class Look(NamedTuple):
    """What is to be read next: entries of one ledger."""

    first: Position
    entries_max: int


def stored_between(ledgers: LedgerList, info: LedgerInfo, now_ms: int) -> tuple[int, int]:
    """The earliest and the latest time at which an entry of the ledger can have been stored, ms since the epoch.

    Not before the ledger was made and the one before it closed, as far as that is known (0: it is not); not after it
    was closed, or now.
    """
    previous = ledgers.before(info.ledger_id)
    latest_ms = min(info.closed_ms or now_ms, now_ms)
    earliest_ms = max(info.opened_ms, previous.closed_ms if previous is not None else 0)
    # A clock that stepped back: what is kept longer for it is not lost.
    return earliest_ms, max(earliest_ms, latest_ms)


def stored_ms(ledgers: LedgerList, info: LedgerInfo, claimed_ms: int, now_ms: int) -> int:
    """When an entry of the ledger counts as stored, which itself says ``claimed_ms``; never later than now."""
    earliest_ms, latest_ms = stored_between(ledgers, info, now_ms)
    return min(max(claimed_ms, earliest_ms), latest_ms, now_ms)


class ExpiryWalk:
    """Finds the last of the oldest unacknowledged entries that all were stored before a moment.

    Closed ledgers that are wholly older are passed without being read. Of the next one, entries are looked at in
    order: ask :meth:`next_look`, read, tell :meth:`looked_at`, until there is nothing more to look at.
    """

    __slots__ = ("_entries_max", "_is_done", "_ledgers", "_limit_ms", "_next", "_now_ms", "found")

    def __init__(self, ledgers: LedgerList, mark_delete: Position, *, limit_ms: int, now_ms: int) -> None:
        """Entries behind ``mark_delete`` that were stored before ``limit_ms`` are too old."""
        self._ledgers = ledgers
        self._limit_ms = limit_ms
        self._now_ms = now_ms
        self._next = Position(mark_delete.ledger_id, mark_delete.entry_id + 1)
        self._entries_max = FIRST_LOOK_ENTRIES
        self._is_done = False
        #: Up to here everything is acknowledged or too old; None: nothing is.
        self.found: Position | None = None

    def next_look(self) -> Look | None:
        """What is to be read now; None: that was all."""
        while not self._is_done:
            position = self._ledgers.at_or_after(self._next)
            info = self._ledgers.find(position.ledger_id)
            if info is None or position.entry_id >= info.entries:
                break
            earliest_ms, latest_ms = stored_between(self._ledgers, info, self._now_ms)
            if earliest_ms >= self._limit_ms:
                break
            if not info.closed_ms or latest_ms >= self._limit_ms:
                count = min(self._entries_max, info.entries - position.entry_id)
                self._entries_max = min(2 * self._entries_max, LOOK_ENTRIES_MAX)
                return Look(position, count)
            self.found = Position(info.ledger_id, info.entries - 1)
            self._next = Position(info.ledger_id, info.entries)
        self._is_done = True
        return None

    def looked_at(self, claims: Sequence[tuple[Position, int | None]]) -> None:
        """The entries that were read, in order: what each says of its time, None if it is acknowledged already."""
        self._is_done = not claims
        for position, claimed_ms in claims:
            if claimed_ms is not None:
                info = self._ledgers.find(position.ledger_id)
                if info is None:
                    continue  # trimmed meanwhile: nobody needs it
                if stored_ms(self._ledgers, info, claimed_ms, self._now_ms) >= self._limit_ms:
                    self._is_done = True
                    return
                self.found = position
            self._next = Position(position.ledger_id, position.entry_id + 1)
