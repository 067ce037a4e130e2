"""How many messages a move of a cursor redelivers or skips, counted in entries of the topic's ledgers.

An entry is a message, or a batch of them. What is counted is never less than what is hit: entries between the cursor
and its goal that were acknowledged one by one are counted as skipped, though they were not waited for any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from geminga.app.console.core.positions import EntryPlace, LogPiece

#: Before the first entry.
BEGINNING: Final = EntryPlace(-1, -1)


class CursorMove(NamedTuple):
    """What a move does."""

    #: Entries that are delivered again.
    redelivered: int
    #: Entries that are not delivered any more.
    skipped: int

    @property
    def hits(self) -> int:
        """All that it is about."""
        return self.redelivered + self.skipped

    def plus(self, other: CursorMove) -> CursorMove:
        """Both."""
        return CursorMove(self.redelivered + other.redelivered, self.skipped + other.skipped)


NOWHERE: Final = CursorMove(0, 0)


def place_of(text: str) -> EntryPlace:
    """``5:3`` as ``internalStats`` has it; raises ValueError."""
    ledger, _, entry = text.partition(":")
    return EntryPlace(int(ledger), int(entry))


def entries_before(ledgers: Sequence[LogPiece], place: EntryPlace) -> int:
    """Entries of the log that lie before ``place``."""
    found = 0
    for piece in ledgers:
        if piece.ledger_id < place.ledger_id:
            found += piece.entries
        elif piece.ledger_id == place.ledger_id:
            found += min(max(place.entry_id, 0), piece.entries)
    return found


def move_to(ledgers: Sequence[LogPiece], cursor: Mapping[str, Any], goal: EntryPlace | None) -> CursorMove:
    """Of a cursor (``internalStats``) so that ``goal`` is next; None: behind everything."""
    marked = place_of(str(cursor.get("markDeletePosition", "-1:-1")))
    done = entries_before(ledgers, EntryPlace(marked.ledger_id, marked.entry_id + 1))
    total = sum(piece.entries for piece in ledgers)
    wanted = total if goal is None else entries_before(ledgers, goal)
    single = int(cursor.get("geminga", {}).get("acknowledgedEntries", 0))
    if wanted <= done:
        return CursorMove(done - wanted + single, 0)
    # What was acknowledged behind the goal one by one comes again; how much of it lies there is not told.
    return CursorMove(single if wanted < total else 0, wanted - done)
