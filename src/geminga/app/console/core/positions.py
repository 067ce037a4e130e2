"""Where the messages of a topic lie, and which of them a page looks at next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
#: As the console and ``geminga messages`` write it, as Pulsar's clients do with a partition, and in brackets.
_ID: Final = re.compile(r"\(?([0-9]{1,19})[:,]([0-9]{1,19})(?:[:,](-?[0-9]{1,9}))?(?:[:,](-?[0-9]{1,9}))?\)?")


class LogPiece(NamedTuple):
    """A piece of a topic's log."""

    ledger_id: int
    entries: int


class EntryPlace(NamedTuple):
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


class StartPlace(NamedTuple):
    """A message to begin with."""

    place: EntryPlace
    #: In a batch; -1: the first that is looked at.
    batch_index: int = -1

    def __str__(self) -> str:
        return f"{self.place}:{self.batch_index}" if self.batch_index >= 0 else str(self.place)


def start_of(text: str) -> StartPlace:
    """``LEDGER:ENTRY[:INDEX]``, or ``LEDGER:ENTRY:PARTITION:INDEX`` as clients write it. Raises PlaceError."""
    found = _ID.fullmatch("".join(text.split()))
    if found is None:
        expected = "LEDGER:ENTRY, or LEDGER:ENTRY:INDEX in a batch, such as 12:3"
        raise PlaceError(f"{text[:40]!r} is no message id: expected {expected}")
    index = found[4] if found[4] is not None else found[3]
    return StartPlace(EntryPlace(int(found[1]), int(found[2])), -1 if index is None else int(index))


def places(ledgers: Sequence[LogPiece], start: EntryPlace | None, *, newest_first: bool) -> Iterator[EntryPlace]:
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
            yield EntryPlace(ledger.ledger_id, entry_id)
