"""A bookie over several pairs of directories, on disks of their own: each pair is a whole :class:`LocalBookie`.

A ledger belongs to the pair ``ledger id % pairs``, as BookKeeper's storage of several directories has it: one disk's
journal, flushes and collections hold up no other's. So number and order of the pairs stay what they were at the first
start; each directory's own cookie says which it is (``recovery.establish_identity``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from geminga.bookie.bookie import LocalBookie
from geminga.bookie.config import BookieConfig, of_part
from geminga.bookie.disk_io import DiskLanes
from geminga.bookie.ports import LiveLedgers
from geminga.model.bookie_port import (
    AddDone,
    Availability,
    AvailabilityListener,
    AvailabilityState,
    BookieInfo,
    FenceDone,
    InfoDone,
    LacDone,
    ListDone,
    ReadDone,
    WriteLacDone,
)
from geminga.model.errors import StorageError
from geminga.runtime import Runtime, value_of


class SpreadBookie:
    """Implements the port ``model.bookie_port.Bookie``."""

    def __init__(self, parts: Sequence[LocalBookie]) -> None:
        """``parts``: open, in the order that ledgers are spread in; closed by :meth:`close`."""
        self.parts = tuple(parts)
        self._availability = AvailabilityState(self._together())
        for part in self.parts:
            part.watch(lambda _: self._availability.set(self._together()))

    @classmethod
    async def open(
        cls, runtime: Runtime, pairs: Sequence[tuple[str, str]], config: BookieConfig, *, ledgers: LiveLedgers
    ) -> Self:
        """Recover what is in ``pairs`` (journal's and ledgers' directory), one pair after the other.

        What ``config`` bounds they share in equal parts. Raises what :meth:`LocalBookie.open` raises, after closing
        those that were open.
        """
        parts: list[LocalBookie] = []
        try:
            for number, (journal, ledger) in enumerate(pairs, 1):
                parts.append(
                    await LocalBookie.open(
                        runtime,
                        "",
                        of_part(config, journal, ledger, len(pairs)),
                        ledgers=ledgers,
                        lanes=DiskLanes.of(number),
                        part=f"{number}-of-{len(pairs)}" if len(pairs) > 1 else "",
                    )
                )
        except BaseException:
            for part in reversed(parts):
                await part.close()
            raise
        return cls(parts)

    @property
    def has_ledgers(self) -> bool:
        """Whether it ever stored anything."""
        return any(part.has_ledgers for part in self.parts)

    @property
    def availability(self) -> Availability:
        """The worst of its parts: a new ledger may belong to any of them."""
        return self._availability.current

    @property
    def is_writable(self) -> bool:
        """Whether all parts take new entries."""
        return self._availability.current is Availability.WRITABLE

    def watch(self, listener: AvailabilityListener) -> None:
        """Call ``listener`` after each change."""
        self._availability.watch(listener)

    def stay_read_only(self) -> None:
        """Take no entries any more in this life, whatever room there is; what is stored is read as before."""
        for part in self.parts:
            part.room.stay_read_only()

    def _together(self) -> Availability:
        found = {part.availability for part in self.parts}
        return next(
            each for each in (Availability.DOWN, Availability.READ_ONLY, Availability.WRITABLE) if each in found
        )

    def _part(self, ledger_id: int) -> LocalBookie:
        return self.parts[ledger_id % len(self.parts)]

    # ---- the port's calls, each by the part that has the ledger

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
        """See the port."""
        self._part(ledger_id).add_entries(
            ledger_id, entry_ids, entries, master_key=master_key, recovery=recovery, done=done
        )

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        """See the port."""
        self._part(ledger_id).read_entries(ledger_id, entry_ids, done, bytes_max=bytes_max)

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See the port."""
        self._part(ledger_id).fence(ledger_id, master_key=master_key, done=done)

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        """See the port."""
        self._part(ledger_id).fence_and_read_lac(ledger_id, master_key=master_key, done=done)

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See the port."""
        self._part(ledger_id).readmit(ledger_id, master_key=master_key, done=done)

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """See the port."""
        self._part(ledger_id).read_lac(ledger_id, done=done)

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        """See the port."""
        self._part(ledger_id).write_lac(ledger_id, lac, master_key=master_key, done=done)

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        """See the port."""
        self._part(ledger_id).list_entries(ledger_id, done=done)

    def read_info(self, *, done: InfoDone) -> None:
        """The room of all parts; directories on one disk count its room once each."""
        answers: list[BookieInfo | StorageError] = []

        def have(answer: BookieInfo | StorageError) -> None:
            answers.append(answer)
            if len(answers) < len(self.parts):
                return
            infos = [each for each in answers if isinstance(each, BookieInfo)]
            if len(infos) < len(answers):
                done(next(each for each in answers if isinstance(each, StorageError)))
            else:
                total, free = sum(info.total_bytes for info in infos), sum(info.free_bytes for info in infos)
                done(BookieInfo(total, free, sum(info.added_bytes or 0 for info in infos)))

        for part in self.parts:
            part.read_info(done=have)

    async def close(self) -> None:
        """Close all parts, the last one first; one that can not be closed does not keep the rest open."""
        error: BaseException | None = None
        for part in reversed(self.parts):
            try:
                await part.close()
            except (OSError, StorageError) as failed:
                error = failed
        try:
            value_of(error)
        finally:
            del error  # see value_of
