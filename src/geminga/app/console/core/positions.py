"""Where the messages of a topic lie, and which of them a page looks at next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_ID: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::-?[0-9]{1,9}){0,2}")


class LogPiece(NamedTuple):
    """A piece of a topic's log."""

    ledger_id: int
    entries: int


class Place(NamedTuple):
    """An entry; it need not be there."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


class PlaceError(ValueError):
    """A text that is no place; it says what was expected."""


def ledgers_of(internal: Mapping[str, Any]) -> list[LogPiece]:
    """Those of ``internalStats`` that have entries, oldest first.

    Pulsar says of the one that is written to that it has none, and how many beside it.
    """
    given = internal.get("ledgers") or []
    found = []
    for number, each in enumerate(given):
        entries = int(each.get("entries", 0))
        if number == len(given) - 1:
            entries = max(entries, int(internal.get("currentLedgerEntries", 0)))
        if entries > 0:
            found.append(LogPiece(int(each["ledgerId"]), entries))
    return found


def place_of(text: str) -> Place:
    """``LEDGER:ENTRY``; a partition or an index of a batch behind it does not matter. Raises PlaceError."""
    found = _ID.fullmatch(text.strip())
    if found is None:
        raise PlaceError(f"{text[:40]!r} is no message id: expected LEDGER:ENTRY, such as 12:3")
    return Place(int(found[1]), int(found[2]))


def places(ledgers: Sequence[LogPiece], start: Place | None, *, newest_first: bool) -> Iterator[Place]:
    """All entries from ``start`` on, itself first; None: from the end that the order begins with.

    Where ``start`` was deleted meanwhile: from the next that is there.
    """
    for ledger in reversed(ledgers) if newest_first else ledgers:
        first, last = 0, ledger.entries - 1
        if start is not None and newest_first:
            if ledger.ledger_id > start.ledger_id:
                continue
            if ledger.ledger_id == start.ledger_id:
                last = min(last, start.entry_id)
        elif start is not None:
            if ledger.ledger_id < start.ledger_id:
                continue
            if ledger.ledger_id == start.ledger_id:
                first = start.entry_id
        entries = range(last, first - 1, -1) if newest_first else range(first, last + 1)
        for entry_id in entries:
            yield Place(ledger.ledger_id, entry_id)
