"""What of a log can not be read: for good, as far as anybody can tell, or for now. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from geminga.model.errors import (
    CorruptionError,
    MissingFileError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
)

#: Property of the managed ledger: JSON, the ledgers that were given up, oldest first, with what they had.
SKIPPED_PROPERTY: Final = "geminga.skipped-ledgers"
#: So many of them are remembered.
SKIPPED_MAX: Final = 100
_ERROR_CHARACTERS_MAX: Final = 200


class Gap(NamedTuple):
    """Entries of one ledger that a replay passed over."""

    ledger_id: int
    first: int
    last: int
    #: So many of them the read that failed asked for, and the bytes it was to have at most.
    asked_entries: int
    asked_bytes: int
    error: StorageError


class Hole(NamedTuple):
    """A ledger that can not be read as a whole."""

    ledger_id: int
    entries: int
    #: Payload bytes of the ledger.
    size_bytes: int
    #: When it was closed, ms since the epoch.
    closed_ms: int
    #: Why, in words.
    error: str
    #: Whether it is gone, or damaged, for certain; else it may come back.
    is_lost: bool
    #: Entries that were read all the same: they go, too, if the ledger does.
    readable: int


class Skipped(NamedTuple):
    """A ledger that was given up."""

    ledger_id: int
    entries: int
    size_bytes: int
    closed_ms: int
    skipped_ms: int
    error: str


def is_lost(error: StorageError) -> bool:
    """Whether the error says for certain that the data are gone or damaged, and not only out of reach."""
    return isinstance(error, MissingFileError | CorruptionError | NoSuchLedgerError | NoSuchEntryError)


def skipped_of(properties: Mapping[str, str]) -> list[Skipped]:
    """What was given up, as the properties say. Raises CorruptionError."""
    try:
        return [Skipped(*row) for row in json.loads(properties.get(SKIPPED_PROPERTY, "[]"))]
    except (ValueError, TypeError) as error:
        raise CorruptionError(f"the property {SKIPPED_PROPERTY}: {error}") from error


def with_skipped(properties: Mapping[str, str], skipped: Iterable[Skipped]) -> dict[str, str]:
    """The properties with these among those that were given up."""
    known = skipped_of(properties)
    known += [one._replace(error=one.error[:_ERROR_CHARACTERS_MAX]) for one in skipped]
    return {**properties, SKIPPED_PROPERTY: json.dumps(known[-SKIPPED_MAX:], separators=(",", ":"))}
