"""What a managed ledger uses of the ledgers below it: made, appended to, read, deleted, whoever keeps them.

``geminga.bookkeeper`` has them on bookies. One that lies elsewhere, offloaded or remote, can stand in where a
:class:`Ledger` is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from geminga.model.errors import StorageError

#: Payloads of consecutive entries, or why there are none.
PayloadsDone = Callable[[Sequence[bytes] | StorageError], None]
#: Entry id of the first of an append, how many, and None once they are stored, or why they may not be.
AddsDone = Callable[[int, int, StorageError | None], None]


class LedgerFacts(Protocol):
    """What is written down of a ledger."""

    @property
    def created_ms(self) -> int | None:
        """When it was made, ms since the epoch; None: unknown."""
        ...

    @property
    def ensemble_size(self) -> int:
        """Bookies that had entries of it."""
        ...

    @property
    def write_quorum(self) -> int:
        """Copies of an entry."""
        ...

    @property
    def ack_quorum(self) -> int:
        """Answers that were waited for."""
        ...

    @property
    def digest_type(self) -> Enum:
        """How its entries are checked; its name is BookKeeper's."""
        ...

    @property
    def custom_metadata(self) -> Mapping[str, bytes]:
        """What its maker said of it."""
        ...


class StoredLedger(Protocol):
    """A ledger that was looked up and not opened."""

    @property
    def metadata(self) -> LedgerFacts:
        """What is written down of it."""
        ...


class VersionedLedger(StoredLedger, Protocol):
    """The same, with the version of what is written down."""

    @property
    def version(self) -> int:
        """It grows with each change."""
        ...


class Ledger(StoredLedger, Protocol):
    """A ledger to read from."""

    @property
    def ledger_id(self) -> int:
        """Its id."""
        ...

    @property
    def last_add_confirmed(self) -> int:
        """The newest entry that may be read; -1 if there is none."""
        ...

    @property
    def length_bytes(self) -> int:
        """Payload bytes of the ledger, appended ones included."""
        ...

    def read(
        self, first_entry_id: int, last_entry_id: int, done: PayloadsDone, *, bytes_max: int | None = None
    ) -> None:
        """Payloads of consecutive entries, ends included, or with ``bytes_max`` of the first of them, at least one.

        ``done`` is called once, possibly within the call; NoSuchEntryError past the last add confirmed.
        """
        ...

    async def read_entries(self, first_entry_id: int, last_entry_id: int) -> Sequence[bytes]:
        """As :meth:`read`; raises its error."""
        ...

    async def close(self) -> None:
        """Fix its end behind what is confirmed, unless that is done. Raises StorageError; LedgerFencedError if another
        owner did."""
        ...


class FollowedLedger(Ledger, Protocol):
    """A ledger to read from while somebody else appends to it."""

    def confirm(self, last_entry_id: int) -> None:
        """Who appends to it says that everything up to ``last_entry_id`` is stored for good: it may be read."""
        ...


class OpenLedger(Ledger, Protocol):
    """A ledger to append to."""

    @property
    def last_add_pushed(self) -> int:
        """The newest entry that was appended, confirmed or not."""
        ...

    @property
    def error(self) -> StorageError | None:
        """Why nothing can be appended any more, None while that is possible."""
        ...

    def append(self, entries: Sequence[bytes], done: AddsDone) -> int:
        """Append consecutive entries; their first id. ``done`` is called in the order of appends."""
        ...


class Ledgers(Protocol):
    """Where ledgers are kept."""

    async def create_ledger(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom_metadata: Mapping[str, bytes],
        newer_than: int,
    ) -> OpenLedger:
        """A new one, whose id is greater than ``newer_than``. Raises NotEnoughBookiesError, MetadataError."""
        ...

    async def readmit_ledger(
        self,
        ledger_id: int,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom_metadata: Mapping[str, bytes],
    ) -> OpenLedger:
        """One that was deleted, made anew under its id, empty. Raises StorageError, also if it is there."""
        ...

    async def open_ledger(self, ledger_id: int, *, recover: bool) -> Ledger:
        """One that is there; ``recover``: its end is found and fixed first, whoever appends to it.

        Raises NoSuchLedgerError, StorageError.
        """
        ...

    async def follow_ledger(self, ledger_id: int) -> FollowedLedger:
        """One that somebody else may be appending to, who goes on undisturbed. Raises as :meth:`open_ledger`."""
        ...

    async def read_ledger(self, ledger_id: int) -> VersionedLedger:
        """Look one up without opening it. Raises NoSuchLedgerError, StorageError."""
        ...

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete one; fine if it is gone. Raises StorageError."""
        ...

    async def delete_sealed_ledger(self, ledger_id: int, version: int) -> bool:
        """Delete one that nobody appends to, if its metadata have this version still; False if not. StorageError."""
        ...
