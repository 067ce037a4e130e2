"""A bookie in memory, and a pool of bookies in this process.

``MemoryBookie`` keeps the contract of ``model.bookie_port.Bookie`` without files; its switches make it fail, hang,
forget and damage, for the tests of everything above it. ``LocalBookiePool`` serves in-process bookies of any
make: it is what a standalone uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from functools import partial
from itertools import groupby

from geminga.model.bookie_port import (
    ID_MAX,
    AddDone,
    Availability,
    AvailabilityListener,
    AvailabilityState,
    BookieInfo,
    FenceDone,
    InfoDone,
    LacDone,
    LacResult,
    ListDone,
    ReadDone,
    WriteLacDone,
    fence_then_read_lac,
    ids_error,
)
from geminga.model.errors import (
    CorruptionError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    WrongMasterKeyError,
)
from geminga.wire.bookkeeper.digest import read_lac_ids

#: Room that a bookie in memory says it has, bytes.
MEMORY_BYTES = 1 << 40


class _StoredLedger:
    """One ledger on one bookie."""

    __slots__ = ("entries", "explicit_lac", "is_fenced", "last_entry_id", "master_key")

    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.entries: dict[int, bytes] = {}
        self.last_entry_id = -1
        self.explicit_lac: bytes | None = None
        self.is_fenced = False


class MemoryBookie:
    """A bookie without a disk. Calls take effect at once; replies come on the loop's next turn.

    With ``replies_at_once`` they come within the call.
    """

    def __init__(self, *, replies_at_once: bool = False) -> None:
        #: Not None: adds / reads / fences and LAC reads fail with it.
        self.add_error: StorageError | None = None
        self.read_error: StorageError | None = None
        self.fence_error: StorageError | None = None
        #: True: calls take effect but their replies wait for :meth:`release`.
        self.holds_replies = False
        #: True: adds are stored, then answered with ``add_error`` all the same.
        self.stores_before_error = False
        #: Adds are answered in groups of so many entries, as answers of a network come; 0: all at once.
        self.answers_in_groups_of = 0
        self._availability = AvailabilityState(Availability.WRITABLE)
        #: Calls of add_entries so far, recovery adds included.
        self.add_calls = 0
        #: Calls of read_entries so far.
        self.read_calls = 0
        #: Bytes of entries given to readers so far.
        self.read_bytes = 0
        #: Ledgers that garbage collection deleted, and whether the metadata list one now.
        self.deleted: set[int] = set()
        self.is_listed: Callable[[int], bool] = lambda _: True
        self._replies_at_once = replies_at_once
        self._ledgers: dict[int, _StoredLedger] = {}
        self._held: list[Callable[[], None]] = []

    # ---- the Bookie port

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
        """See ``Bookie.add_entries``."""
        self.add_calls += 1
        error = self.add_error
        if error is None or self.stores_before_error:
            refused = ids_error(ledger_id, entry_ids, entries)
            error = refused or self._store(ledger_id, entry_ids, entries, master_key, recovery) or error
        size = self.answers_in_groups_of or len(entry_ids)
        for start in range(0, len(entry_ids), size):
            self._reply(partial(done, entry_ids[start : start + size], error))

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        """See ``Bookie.read_entries``."""
        self.read_calls += 1
        results: list[bytes | StorageError] = []
        size_bytes = 0
        for entry_id in entry_ids:
            result = self._read(ledger_id, entry_id)
            size_bytes += 0 if isinstance(result, StorageError) else len(result)
            if results and bytes_max is not None and size_bytes > bytes_max:
                break
            results.append(result)
        self.read_bytes += sum(len(result) for result in results if isinstance(result, bytes))
        self._reply(lambda: done(results))

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See ``Bookie.fence``."""
        error = self.fence_error
        if error is None and not 0 <= ledger_id <= ID_MAX:
            error = StorageError(f"{ledger_id} is no ledger id")
        if error is None and ledger_id in self.deleted:
            error = NoSuchLedgerError(f"ledger {ledger_id} was deleted")
        if error is None:
            ledger = self._ledger(ledger_id, master_key)
            if ledger.master_key != master_key:
                error = WrongMasterKeyError(f"ledger {ledger_id} has another master key")
            else:
                ledger.is_fenced = True
        self._reply(lambda: done(error))

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        """See ``Bookie.fence_and_read_lac``."""
        fence_then_read_lac(self, ledger_id, master_key, done)

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See ``Bookie.readmit``."""
        if self.fence_error is None and ledger_id in self.deleted:
            if not self.is_listed(ledger_id):
                self._reply(lambda: done(StorageError(f"ledger {ledger_id} is not listed")))
                return
            self.deleted.discard(ledger_id)
        self.fence(ledger_id, master_key=master_key, done=done)

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """See ``Bookie.read_lac``."""
        ledger = self._ledgers.get(ledger_id)
        result: LacResult | StorageError
        if self.fence_error is not None:
            result = self.fence_error
        elif ledger is None:
            result = NoSuchLedgerError(f"no ledger {ledger_id}")
        else:
            result = LacResult(ledger.last_entry_id, ledger.entries.get(ledger.last_entry_id), ledger.explicit_lac)
        self._reply(lambda: done(result))

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        """See ``Bookie.write_lac``."""
        error = self.add_error or self._keep_lac(ledger_id, lac, master_key)
        self._reply(lambda: done(error))

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        """See ``Bookie.list_entries``."""
        result: list[range] | StorageError
        if self.read_error is not None:
            result = self.read_error
        elif ledger_id not in self._ledgers:
            result = NoSuchLedgerError(f"no ledger {ledger_id}")
        else:
            runs = groupby(enumerate(self.entry_ids(ledger_id)), key=lambda item: item[1] - item[0])
            ends = [[entry_id for _, entry_id in run] for _, run in runs]
            result = [range(run[0], run[-1] + 1) for run in ends]
        self._reply(lambda: done(result))

    @property
    def is_writable(self) -> bool:
        """What the pool says of it. Setting it makes the bookie read-only or writable."""
        return self.availability is Availability.WRITABLE

    @is_writable.setter
    def is_writable(self, is_writable: bool) -> None:
        self._availability.set(Availability.WRITABLE if is_writable else Availability.READ_ONLY)

    @property
    def availability(self) -> Availability:
        """See ``Bookie.availability``."""
        return self._availability.current

    def watch(self, listener: AvailabilityListener) -> None:
        """See ``Bookie.watch``."""
        self._availability.watch(listener)

    def read_info(self, *, done: InfoDone) -> None:
        """See ``Bookie.read_info``."""
        used = sum(len(entry) for ledger in self._ledgers.values() for entry in ledger.entries.values())
        self._reply(lambda: done(self.read_error or BookieInfo(MEMORY_BYTES, MEMORY_BYTES - used)))

    # ---- what a test does to it

    def release(self) -> None:
        """Let the held replies go, in order, and hold no more."""
        self.holds_replies = False
        held, self._held = self._held, []
        for reply in held:
            reply()

    def fail(self, error: StorageError | None) -> None:
        """Every call fails with ``error`` (None: works again); nobody is told beforehand."""
        self.add_error = self.read_error = self.fence_error = error

    def go_down(self, error: StorageError) -> None:
        """Like :meth:`fail`, and whoever watches it is told."""
        self.fail(error)
        self._availability.set(Availability.DOWN)

    def come_back(self) -> None:
        """It works again, with what it had, and whoever watches it is told."""
        self.fail(None)
        self._availability.set(Availability.WRITABLE)

    def forget_ledger(self, ledger_id: int) -> None:
        """Drop the ledger with its fence, as garbage collection or a wiped disk would."""
        self._ledgers.pop(ledger_id, None)

    def collect_garbage(self, live: Container[int]) -> None:
        """Delete for good what the metadata do not list (any more)."""
        gone = {ledger_id for ledger_id in self._ledgers if ledger_id not in live}
        self.deleted |= gone
        for ledger_id in gone:
            del self._ledgers[ledger_id]

    def forget_entry(self, ledger_id: int, entry_id: int) -> None:
        """Drop one entry."""
        self._ledgers[ledger_id].entries.pop(entry_id, None)

    def corrupt(self, ledger_id: int, entry_id: int, offset: int = -1) -> None:
        """Flip one bit of a stored entry."""
        entries = self._ledgers[ledger_id].entries
        damaged = bytearray(entries[entry_id])
        damaged[offset] ^= 1
        entries[entry_id] = bytes(damaged)

    def ledger_ids(self) -> list[int]:
        """Ledgers it has heard of, sorted."""
        return sorted(self._ledgers)

    def entry_ids(self, ledger_id: int) -> list[int]:
        """Entries it has of a ledger, sorted."""
        ledger = self._ledgers.get(ledger_id)
        return [] if ledger is None else sorted(ledger.entries)

    def entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        """A stored entry, whole."""
        ledger = self._ledgers.get(ledger_id)
        return None if ledger is None else ledger.entries.get(entry_id)

    def is_fenced(self, ledger_id: int) -> bool:
        """Whether the ledger is fenced here."""
        ledger = self._ledgers.get(ledger_id)
        return ledger is not None and ledger.is_fenced

    # ---- inside

    def _ledger(self, ledger_id: int, master_key: bytes) -> _StoredLedger:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _StoredLedger(master_key)
        return ledger

    def _keep_lac(self, ledger_id: int, lac: bytes, master_key: bytes) -> StorageError | None:
        try:
            found_ledger, announced = read_lac_ids(lac)
        except CorruptionError as error:
            return StorageError(str(error))
        if found_ledger != ledger_id or announced < -1 or ledger_id < 0:
            return StorageError(f"ledger {ledger_id}: announced LAC {announced} of ledger {found_ledger}")
        ledger = self._ledger(ledger_id, master_key)
        if ledger.master_key != master_key:
            return WrongMasterKeyError(f"ledger {ledger_id} has another master key")
        if ledger.explicit_lac is None or read_lac_ids(ledger.explicit_lac)[1] < announced:
            ledger.explicit_lac = lac
        return None

    def _store(
        self, ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes], master_key: bytes, recovery: bool
    ) -> StorageError | None:
        if not 0 <= ledger_id <= ID_MAX:
            return StorageError(f"{ledger_id} is no ledger id")
        if ledger_id in self.deleted:
            return NoSuchLedgerError(f"ledger {ledger_id} was deleted")
        ledger = self._ledger(ledger_id, master_key)
        if ledger.master_key != master_key:
            return WrongMasterKeyError(f"ledger {ledger_id} has another master key")
        if ledger.is_fenced and not recovery:
            return LedgerFencedError(f"ledger {ledger_id} is fenced")
        for entry_id, entry in zip(entry_ids, entries, strict=True):
            ledger.entries[entry_id] = bytes(entry)
        ledger.last_entry_id = max(ledger.last_entry_id, *entry_ids)
        return None

    def _read(self, ledger_id: int, entry_id: int) -> bytes | StorageError:
        if self.read_error is not None:
            return self.read_error
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return NoSuchLedgerError(f"no ledger {ledger_id}")
        entry = ledger.entries.get(entry_id)
        return NoSuchEntryError(f"no entry {ledger_id}:{entry_id}") if entry is None else entry

    def _reply(self, reply: Callable[[], None]) -> None:
        if self.holds_replies:
            self._held.append(reply)
        elif self._replies_at_once:
            reply()
        else:
            asyncio.get_running_loop().call_soon(reply)
