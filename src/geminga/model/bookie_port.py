"""The bookie port: what a ledger client asks of a bookie, whether it is in this process or behind a network.

Declared once, here, so that a bookie, the ledger client and a pool that reaches bookies by a network share it without
knowing each other. Its shape is that of BookKeeper's wire protocol, in batches: nothing in it needs the same process,
and nothing costs a process that has its bookie inside.

An *entry* is what BookKeeper stores: ledger id, entry id, last add confirmed, length (4 x int64, big endian), digest,
payload. A bookie reads only the first 24 bytes; the client makes and checks the digest. Ids are from 0 to ``ID_MAX``;
anything else is refused with a plain StorageError. A master key that is not the ledger's is a WrongMasterKeyError.

Errors are values of ``model.errors``: a bookie says ``NoSuchEntryError``/``NoSuchLedgerError`` only when it is certain;
an I/O error is ``DiskIOError``, damage ``CorruptionError``, limbo ``UnknownEntryError``; who does not answer, or not
so that one could tell, is any other ``StorageError``. Callbacks come on the loop's thread, possibly within the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from geminga.model.errors import StorageError

#: Largest ledger id and entry id: an int64.
ID_MAX: Final = (1 << 63) - 1
#: What follows it: where a range of ids may stop.
IDS_END: Final = ID_MAX + 1
#: Entries that follow each other from below here on have good ids, however many fit into memory.
FIRST_ID_SURE: Final = IDS_END - (1 << 40)


class LacResult(NamedTuple):
    """A bookie's view of a ledger's end: its newest stored entry (whole, with header), or None if it has none."""

    last_entry_id: int
    last_entry: bytes | None
    #: The newest last add confirmed that the writer announced by itself (``EntryDigest.encode_lac``), or None.
    explicit_lac: bytes | None


class BookieInfo(NamedTuple):
    """Room for entries, and what was written, bytes."""

    total_bytes: int
    free_bytes: int
    #: Added since it started; None: it does not tell.
    added_bytes: int | None = None


class Availability(Enum):
    """Whether a bookie can be used."""

    #: Takes new entries.
    WRITABLE = "writable"
    #: Serves reads, fences and recovery's questions, and takes no entries now (its disk is full).
    READ_ONLY = "read-only"
    #: Answers nothing: closed, failed, or out of reach.
    DOWN = "down"


#: ``done(entry_ids, error)``: these entries of the call are on stable storage (None), or are not known to be. An add
#: answers for each of its entries exactly once, in as many groups as their answers arrive in; a bookie in this
#: process answers for all of them together.
AddDone = Callable[[Sequence[int], StorageError | None], None]
#: A whole entry as it was read: a large one may be a view of what was read with it, for who takes it apart at once.
EntryData = bytes | memoryview
#: One result per requested entry, in order; fewer if the call had a limit of bytes, the first ones, at least one.
ReadDone = Callable[[Sequence[EntryData | StorageError]], None]
FenceDone = Callable[[StorageError | None], None]
LacDone = Callable[[LacResult | StorageError], None]
WriteLacDone = Callable[[StorageError | None], None]
#: Entry ids as ascending, disjoint runs of step 1.
ListDone = Callable[[Sequence[range] | StorageError], None]
InfoDone = Callable[[BookieInfo | StorageError], None]
#: Told of each change, with what it is now.
AvailabilityListener = Callable[[Availability], None]
#: The same for a pool: with the bookie's id.
PoolListener = Callable[[str, Availability], None]


class EntryStore(Protocol):
    """The calls that a ledger client makes for a ledger."""

    def add_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Store entries durably: ``entries[i]`` under ``entry_ids[i]``, at least one, in any order and with any gaps.

        Where they follow each other ``entry_ids`` is a ``range``, which costs nothing per entry. Fenced ledger:
        LedgerFencedError unless ``recovery``. An entry that is there already is answered like a new one; if its bytes
        are others, reads give one of the two, whole: BookKeeper's bookies keep the first or the last, by their storage.
        """
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

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        """:meth:`fence`, and where the ledger ends here then: one request of a bookie behind a network.

        Where it ends is said without an error only if it is fenced; after an error it may be. What the writer announced
        by itself may be missing.
        """
        ...

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """Take a ledger again that this bookie has deleted: without entries, and fenced, as any other from then on.

        Only while the metadata store lists the ledger, else a plain StorageError, and nothing changed. Nothing that it
        had before comes back. After an error, or a crash, it is either deleted still or taken, nothing between: to be
        called again. Of a ledger that is not deleted here it is :meth:`fence`, and no entry goes.
        """
        ...

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """Where the ledger ends here. A ledger never heard of gives NoSuchLedgerError."""
        ...

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        """Keep the last add confirmed that the writer announces, for readers: ledger id, LAC (8 bytes each), digest.

        A hint: an older one than is known changes nothing, a restart may forget it, a fence does not hinder it (what a
        writer calls confirmed was so). No entry may depend on it alone.
        """
        ...

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        """Which entries of a ledger are stored here; UnknownEntryError where that is not certain (limbo)."""
        ...


class Bookie(EntryStore, Protocol):
    """One bookie as a pool has it."""

    @property
    def is_writable(self) -> bool:
        """Whether it takes new entries: ``availability`` is WRITABLE."""
        ...

    @property
    def availability(self) -> Availability:
        """What it can be used for, as far as is known now."""
        ...

    def watch(self, listener: AvailabilityListener) -> None:
        """Call ``listener`` after each change, for as long as the bookie lives; what is now it is not told."""
        ...

    def read_info(self, *, done: InfoDone) -> None:
        """How much room it has."""
        ...


class BookiePool(Protocol):
    """Reaches bookies by id."""

    def available(self) -> Sequence[str]:
        """Ids of the bookies that take new entries now, sorted."""
        ...

    def read_only(self) -> Sequence[str]:
        """Ids of the bookies that are there and take none, sorted: a disk is full, or they were started so."""
        ...

    def get(self, bookie_id: str) -> Bookie:
        """The bookie, connected or not; calls on an unreachable one complete with an error that is no absence."""
        ...

    def watch(self, listener: PoolListener) -> None:
        """Call ``listener`` when a bookie comes, goes, or changes between writable and read-only."""
        ...


class _Fencing(Protocol):
    """Of an :class:`EntryStore`."""

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See there."""
        ...

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """See there."""
        ...


def fence_then_read_lac(store: _Fencing, ledger_id: int, master_key: bytes, done: LacDone) -> None:
    """``fence_and_read_lac`` of a bookie in this process, where two calls cost no more than one."""

    def fenced(error: StorageError | None) -> None:
        if error is not None:
            done(error)
        else:
            store.read_lac(ledger_id, done=done)

    store.fence(ledger_id, master_key=master_key, done=fenced)


def ids_error(ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes]) -> StorageError | None:
    """Why these can not be the arguments of an add; None if they can. The same for every bookie."""
    # len() of a range raises where it is beyond an int64.
    run = entry_ids if isinstance(entry_ids, range) and entry_ids.step == 1 else None
    count = len(entry_ids) if run is None else max(0, run.stop - run.start)
    if count != len(entries) or not count:
        return StorageError(f"ledger {ledger_id}: {len(entries)} entries with {count} ids")
    least, greatest = (min(entry_ids), max(entry_ids)) if run is None else (run.start, run.stop - 1)
    if least < 0 or greatest > ID_MAX:
        return StorageError(f"ledger {ledger_id}: entry ids from {least} to {greatest}, beyond 0 to {ID_MAX}")
    return None


class AvailabilityState:
    """What a bookie can be used for now, and who wants to hear of changes."""

    __slots__ = ("_listeners", "current")

    def __init__(self, current: Availability) -> None:
        self.current = current
        self._listeners: list[AvailabilityListener] = []

    def watch(self, listener: AvailabilityListener) -> None:
        """See :meth:`Bookie.watch`."""
        self._listeners.append(listener)

    def set(self, availability: Availability) -> None:
        """Tell the listeners, in the order they came, if this is a change."""
        if availability is not self.current:
            self.current = availability
            for listener in self._listeners:
                listener(availability)
