"""The pool of the bookies that are in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from geminga.model.bookie_port import (
    AddDone,
    Availability,
    AvailabilityListener,
    Bookie,
    FenceDone,
    InfoDone,
    LacDone,
    ListDone,
    PoolListener,
    ReadDone,
    WriteLacDone,
)
from geminga.model.errors import (
    StorageError,
)

#: Room that a bookie in memory says it has, bytes.
MEMORY_BYTES = 1 << 40


class AbsentBookie:
    """Stands for a bookie id that this process does not have: every call fails, none says "no such entry"."""

    __slots__ = ("_bookie_id",)

    def __init__(self, bookie_id: str) -> None:
        self._bookie_id = bookie_id

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
        """Fails."""
        done(entry_ids, self._error())

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        """Fails."""
        done([self._error()] * len(entry_ids))

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """Fails."""
        done(self._error())

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        """Fails."""
        done(self._error())

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """Fails."""
        done(self._error())

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """Fails."""
        done(self._error())

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        """Fails."""
        done(self._error())

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        """Fails."""
        done(self._error())

    @property
    def is_writable(self) -> bool:
        """Never."""
        return False

    @property
    def availability(self) -> Availability:
        """Down for good."""
        return Availability.DOWN

    def watch(self, listener: AvailabilityListener) -> None:
        """There is nothing to hear of."""

    def read_info(self, *, done: InfoDone) -> None:
        """Fails."""
        done(self._error())

    def _error(self) -> StorageError:
        return StorageError(f"bookie {self._bookie_id} is not available in this process")


class LocalBookiePool:
    """Bookies of this process by id."""

    def __init__(self, bookies: Mapping[str, Bookie]) -> None:
        self._bookies = dict(sorted(bookies.items()))
        #: Ids that the pool hides from new entries, whatever the bookies say.
        self.unavailable: set[str] = set()

    def available(self) -> Sequence[str]:
        """See ``BookiePool.available``."""
        return [
            bookie_id
            for bookie_id, bookie in self._bookies.items()
            if bookie.is_writable and bookie_id not in self.unavailable
        ]

    def read_only(self) -> Sequence[str]:
        """See ``BookiePool.read_only``."""
        return [name for name, bookie in self._bookies.items() if bookie.availability is Availability.READ_ONLY]

    def get(self, bookie_id: str) -> Bookie:
        """See ``BookiePool.get``; an unknown id gives a bookie whose calls all fail."""
        return self._bookies.get(bookie_id) or AbsentBookie(bookie_id)

    def watch(self, listener: PoolListener) -> None:
        """See ``BookiePool.watch``."""
        for bookie_id, bookie in self._bookies.items():
            bookie.watch(partial(listener, bookie_id))
