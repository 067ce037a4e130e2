"""What a bookie answers, as values that a client gets: the same for every version of the protocol.

``status`` is a :class:`~.codes.StatusCode` by number; a code that nobody knows is given as it came, and is no success
(``codes.error_of_status``). Where a version has no ``txn_id`` it is 0.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from geminga.model.bookie_port import EntryData


class AddAnswer(NamedTuple):
    """Of an add."""

    txn_id: int
    status: int
    ledger_id: int
    entry_id: int


class ReadAnswer(NamedTuple):
    """Of a read; ``entry_id`` is the one asked for, of a long poll with an entry that of the entry."""

    txn_id: int
    status: int
    ledger_id: int
    entry_id: int
    entry: bytes | None
    #: The newest last add confirmed that the bookie knows, if it said.
    max_lac: int | None = None
    #: When it learned of that, milliseconds since the epoch.
    lac_update_ms: int | None = None


class BatchReadAnswer(NamedTuple):
    """Of a batch read; ``entries`` follow each other from ``entry_id`` on."""

    txn_id: int
    status: int
    ledger_id: int
    entry_id: int
    entries: list[EntryData]


class ReadLacAnswer(NamedTuple):
    """Of READ_LAC: what a writer announced, and the last entry, each if there is one."""

    txn_id: int
    status: int
    ledger_id: int
    lac: bytes | None
    last_entry: bytes | None


class LedgerAnswer(NamedTuple):
    """Of WRITE_LAC and FORCE_LEDGER."""

    operation: int
    txn_id: int
    status: int
    ledger_id: int


class ListEntriesAnswer(NamedTuple):
    """Of GET_LIST_OF_ENTRIES_OF_LEDGER; ``availability`` as ``availability.decode_availability`` reads it."""

    txn_id: int
    status: int
    ledger_id: int
    availability: bytes


class BookieInfoAnswer(NamedTuple):
    """Of GET_BOOKIE_INFO; bytes, each if it was asked for."""

    txn_id: int
    status: int
    total_bytes: int | None
    free_bytes: int | None
    #: Of entries added since the bookie started; None: it does not tell.
    added_bytes: int | None = None


class AuthAnswer(NamedTuple):
    """Of a step of a handshake."""

    txn_id: int
    status: int
    plugin: str
    payload: bytes


class BareAnswer(NamedTuple):
    """Status without more: of START_TLS, and of whatever was refused as a whole."""

    operation: int
    txn_id: int
    status: int


Answer: TypeAlias = (
    AddAnswer
    | ReadAnswer
    | BatchReadAnswer
    | ReadLacAnswer
    | LedgerAnswer
    | ListEntriesAnswer
    | BookieInfoAnswer
    | AuthAnswer
    | BareAnswer
)
