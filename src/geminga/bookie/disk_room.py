"""``DiskRoom``: whether a bookie takes entries, as far as its disks decide that.

It takes none while the disk is full or nearly so, until a look finds space again; none for good after a failed write or
sync, since nothing unsynced may be trusted then; and none in this life if it was started read-only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from geminga.bookie.disk_io import is_disk_full
from geminga.bookie.stats import BookieStats
from geminga.model.bookie_port import Availability, AvailabilityState
from geminga.model.errors import DiskFullError, DiskIOError, StorageError
from geminga.runtime import Runtime, get_logger

_log = get_logger(__name__)


class DiskRoom:
    """See the module."""

    __slots__ = (
        "_directories",
        "_is_looking",
        "_refuse",
        "_runtime",
        "_stats",
        "_stays_read_only",
        "_threshold",
        "availability",
        "disk_usage",
        "failed",
        "is_writable",
        "where",
    )

    def __init__(
        self,
        runtime: Runtime,
        where: str,
        directories: Collection[str],
        threshold: float,
        stats: BookieStats,
        refuse: Callable[[StorageError], None],
    ) -> None:
        """``where``: the directory that errors name. ``directories``: on the disks that are looked at.

        ``threshold``: the share of a disk that may be in use, 0 to 1. ``refuse``: adds that wait for room are refused
        with an error.
        """
        self._runtime = runtime
        self.where = where
        self._directories = directories
        self._threshold = threshold
        self._stats = stats
        self._refuse = refuse
        #: False while the disk is full or nearly so: adds fail with ``DiskFullError``. Read by every add.
        self.is_writable = True
        self._stays_read_only = False
        self._is_looking = False
        #: Set for good by a failed sync.
        self.failed: StorageError | None = None
        #: Share of the disk that was in use at the last look; None before the first one.
        self.disk_usage: float | None = None
        #: What the bookie can be used for, and who is told of changes.
        self.availability = AvailabilityState(Availability.WRITABLE)

    def refusal(self, *, is_recovery: bool = False) -> StorageError | None:
        """Why no add can be taken; None: one can.

        ``is_recovery``: the end of a ledger is written back, which a full disk takes as long as the journal does: what
        can not be recovered can not be deleted.
        """
        if self.failed is not None:
            return self.failed
        if self.is_writable or (is_recovery and not self._stays_read_only):
            return None
        full = f"the disk of {self.where} is full"
        return DiskFullError("the bookie was started read-only" if self._stays_read_only else full)

    def became_full(self, error: StorageError) -> None:
        """There is no space: read-only until :meth:`look` finds some."""
        if self.is_writable:
            _log.error("bookie becomes read-only: %s", error)
            self.is_writable = False
            self.availability.set(Availability.READ_ONLY)
            self._stats.disk_full_count += 1
        self._refuse(error)

    def fail(self, part: str, error: OSError) -> None:
        """A write or sync failed: take nothing more, tell the process."""
        self.failed = DiskIOError(f"{part}: {error}")
        self.is_writable = False
        self.availability.set(Availability.DOWN)
        self._runtime.on_fatal(part, error)
        self._refuse(self.failed)

    def stay_read_only(self) -> None:
        """Take no entries any more in this life, whatever room there is; what is stored is read as before."""
        self._stays_read_only = True
        self.is_writable = False
        self.availability.set(Availability.READ_ONLY)

    async def look(self, make_good: Callable[[], Awaitable[bool]]) -> None:
        """Read-only when a disk is nearly full; writable again once there is space and ``make_good``, which does what
        failed for want of it, says that it succeeded: it is tried while the bookie is read-only. May raise OSError."""
        if self._is_looking or self.failed is not None:
            return
        self._is_looking = True
        try:
            usage = self.disk_usage = max([await self._usage(path) for path in self._directories])
            if usage > self._threshold:
                self.became_full(DiskFullError(f"{usage:.1%} of the disk of {self.where} is used"))
            # Above the threshold, too: fences and the ends of ledgers are taken as long as the journal has room.
            is_good = self.is_writable or await make_good()
            if is_good and not self.is_writable and usage <= self._threshold and not self._stays_read_only:
                _log.warning("bookie is writable again: there is space in %s", self.where)
                self.is_writable = True
                self.availability.set(Availability.WRITABLE)
        except OSError as error:
            if not is_disk_full(error):
                self.fail("bookie disk check", error)
        finally:
            self._is_looking = False

    async def _usage(self, path: str) -> float:
        disk = self._runtime.disk
        total = await disk.total_bytes(path)
        return 1 - await disk.free_bytes(path) / total if total > 0 else 0.0
