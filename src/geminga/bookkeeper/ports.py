"""What the ledger client needs of a bookie, in process or remote: the same batches and callbacks.

An *entry* here is what BookKeeper stores: ledger id, entry id, last add confirmed, length (4 x int64, big
endian), digest, payload. The bookie reads only the first 24 bytes; the client makes and checks the digest.
Errors are values of ``model.errors``: a bookie says ``NoSuchEntryError``/``NoSuchLedgerError`` only when it
is certain; an I/O error is ``DiskIOError``, damage ``CorruptionError``, limbo ``UnknownEntryError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from geminga.model.errors import StorageError
from geminga.model.ledger import LacResult as LacResult

#: None once every entry of the call is on stable storage, or the error for the whole call (any prefix may be stored).
AddDone = Callable[[StorageError | None], None]
#: One result per requested entry, in order; fewer if the call had a limit of bytes, the first ones, at least one.
ReadDone = Callable[[Sequence[bytes | StorageError]], None]

LacDone = Callable[[LacResult | StorageError], None]
FenceDone = Callable[[StorageError | None], None]


class Bookie(Protocol):
    """One bookie as the ledger client calls it. Callbacks come on the loop's thread, possibly within the call."""

    def add_entries(
        self,
        ledger_id: int,
        first_entry_id: int,
        entries: Sequence[bytes],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Store consecutive entries durably. Fenced ledger: LedgerFencedError unless ``recovery``. Idempotent."""
        ...

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        """Read entries, whole, with their headers.

        With ``bytes_max``: only the first of them, those that have no more bytes together, but always the first one. An
        error counts as no bytes. The bookie does not read (much) more than it gives: it knows the sizes beforehand.
        """
        ...

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """Durably refuse further ordinary adds to this ledger, also if it has no entries here yet."""
        ...

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """Where the ledger ends here. A ledger never heard of gives NoSuchLedgerError."""
        ...


class BookiePool(Protocol):
    """Reaches bookies by id."""

    def available(self) -> Sequence[str]:
        """Ids of the bookies that take new entries now, sorted."""
        ...

    def get(self, bookie_id: str) -> Bookie:
        """The bookie, connected or not; calls on an unreachable one complete with an error."""
        ...
