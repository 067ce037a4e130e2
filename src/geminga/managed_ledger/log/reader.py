"""``LogReader``: the entries of one log that lie on bookies or in the lake, and reads that belong to no cursor.

Those are by position, by range and by search. They stop at the read limit too, unless what is stored is asked for,
readable or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.managed_ledger.log.reads import READ_RUN_ENTRIES_MAX, LedgerReads, ReadDone, runs_of
from geminga.managed_ledger.log.shared_reads import SharedReads
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.log.tail import Tail
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
from geminga.managed_ledger.shared.entry import Entry
from geminga.managed_ledger.shared.ports import Ledger
from geminga.managed_ledger.shared.services import LedgerHome, StorageServices
from geminga.model.byte_budget import Claim
from geminga.model.errors import LedgerClosedError, NoSuchLedgerError, StorageError
from geminga.model.limits import count_within
from geminga.model.position import Position
from geminga.runtime import value_of
from geminga.wire.managed_ledger.offload_context import decode_offload_context

if TYPE_CHECKING:
    from geminga.lake.service import LakeFile
    from geminga.managed_ledger.shared.entry_cache import EntryCache

#: Bytes asked for with one call where all entries are wanted.
READ_BYTES: Final = 1024 * 1024


class LogReader:
    """See the module."""

    __slots__ = (
        "_home",
        "_reads",
        "_services",
        "_shared",
        "_stored",
        "_tenure",
        "extent",
        "is_bookkeeper_first",
        "open_ledger",
        "tail",
    )

    def __init__(
        self, tenure: Tenure, stored: StoredList, tail: Tail, services: StorageServices, home: LedgerHome
    ) -> None:
        self._tenure = tenure
        self._stored = stored
        self.tail = tail
        self._services = services
        self._home = home
        self.extent = stored.extent
        #: The ledger that appends go to.
        self.open_ledger: Ledger | None = None
        #: Ledgers that are in the lake too are read from the bookies.
        self.is_bookkeeper_first = False
        #: Of ledgers that are not open; made by the first read.
        self._reads: LedgerReads | None = None
        #: Of cursors; made by the first of them.
        self._shared: SharedReads | None = None

    @property
    def catch_up(self) -> CatchUpTurns:
        """The turns of those who read what lies behind: for long work with what they read."""
        return self._home.cursor_services.catch_up

    @property
    def cache(self) -> EntryCache:
        """Whose budget counts what is read ahead."""
        return self._home.cursor_services.cache

    # ---- one ledger

    def read_ledger(self, info: LedgerInfo, first: int, last: int, bytes_max: int, done: ReadDone) -> Claim:
        """Payloads of consecutive entries of one ledger, from the bookies: see ``LedgerReads.read``."""
        reads = self._reads or self._new_reads()
        return reads.read(info, first, last, bytes_max, done, handle=self.open_ledger)

    def read_for_cursor(self, info: LedgerInfo, first: int, last: int, bytes_max: int, done: ReadDone) -> Claim:
        """As :meth:`read_ledger`, and what another cursor near by read, or asked for, is not read again."""
        reads = self._reads or self._new_reads()
        shared = self._shared = self._shared or SharedReads(self.tail)
        return reads.read(info, first, last, bytes_max, done, handle=self.open_ledger, shared=shared)

    def keep(self, ledger: Ledger) -> None:
        """A ledger that is open no more is read through this."""
        self.open_ledger = None
        (self._reads or self._new_reads()).keep(ledger)

    def forget(self, ledger_id: int) -> None:
        """It is deleted, or lies elsewhere now: the next read opens it anew."""
        if self._reads is not None:
            self._reads.forget(ledger_id)
        if self._shared is not None:
            self._shared.forget(ledger_id)

    def _new_reads(self) -> LedgerReads:
        budget, entry_bytes_max = self._home.read_budget, self._home.entry_bytes_max
        part, failures, withheld = self._tenure.part, self._stored.failures, self._stored.withheld
        self._reads = LedgerReads(self.open_to_read, budget, entry_bytes_max, part, failures, withheld)
        return self._reads

    async def open_to_read(self, info: LedgerInfo) -> Ledger:
        """A ledger that is open no more, wherever it lies. Raises StorageError."""
        name, is_bookkeeper_first = self._tenure.name, self.is_bookkeeper_first
        return await self._services.open_to_read(name, info, is_bookkeeper_first=is_bookkeeper_first)

    async def open_lake_file(self, info: LedgerInfo) -> LakeFile:
        """The file of a ledger that is in the lake, whether the bookies have it still or not. Raises StorageError."""
        from geminga.managed_ledger.shared.lake_ledger import open_file

        record = decode_offload_context(info.offload_context)
        return await open_file(self._services.lake(), self._tenure.name, info, record)

    async def missing_lake_files(self, infos: Sequence[LedgerInfo]) -> list[str]:
        """Of ledgers that are in the lake, the files that are not there. Raises StorageError."""
        from geminga.managed_ledger.shared.lake_ledger import missing_files

        return await missing_files(self._services.lake(), self._tenure.name, infos)

    async def look_up_creation(self) -> None:
        """Have the time when the last ledger was made: a list that was loaded does not say. Raises StorageError."""
        last = self.extent.ledgers.last
        if last is not None and not last.opened_ms:
            ledgers = self._services.ledgers
            stored = await (self.open_to_read(last) if last.offload_context else ledgers.read_ledger(last.ledger_id))
            last.opened_ms = stored.metadata.created_ms or 0

    # ---- the log

    async def read(self, positions: Sequence[Position], *, is_limited: bool = True) -> list[Entry]:
        """The entries at ``positions``, in that order; those that do not exist (any more) are left out."""
        found: dict[Position, Entry] = {}
        behind = sorted(positions)
        while behind:
            entries, behind = await self.read_some(behind, READ_BYTES, is_limited=is_limited)
            found.update((entry.position, entry) for entry in entries)
        return [found[position] for position in positions if position in found]

    async def read_some(
        self, positions: Sequence[Position], bytes_max: int, *, is_limited: bool = True
    ) -> tuple[list[Entry], list[Position]]:
        """The entries at ``positions``, in that order, and the positions that were not looked at, for the limit.

        Those that no longer exist are in neither. The limit is gone over by one entry at most; at least one is looked
        at.
        """
        found: dict[tuple[int, int], bytes] = {}
        left = bytes_max
        for run in runs_of(positions):
            info = (self.extent.readable if is_limited else self.extent.ledgers).find(run.ledger_id)
            first, last = max(run.first, 0), min(run.last, info.entries - 1 if info is not None else -1)
            if info is None or first > last:
                continue
            if found and left <= 0:
                return _found(positions, found, Position(run.ledger_id, run.first))
            payloads = await self._payloads(info, first, last, max(0, left))
            for entry_id, payload in enumerate(payloads, first):
                found[run.ledger_id, entry_id] = payload
                left -= len(payload)
            if payloads and first + len(payloads) <= last:
                return _found(positions, found, Position(run.ledger_id, first + len(payloads)))
        return _found(positions, found, None)

    async def read_range(
        self, first: Position, max_entries: int, max_bytes: int, *, is_limited: bool = True
    ) -> list[Entry]:
        """Entries from ``first`` on, acknowledged or not; at least one if there is any."""
        entries: list[Entry] = []
        size_bytes = 0
        position = first
        while len(entries) < max_entries and size_bytes < max_bytes:
            ledgers = self.extent.readable if is_limited else self.extent.ledgers
            position = ledgers.at_or_after(position)
            info = ledgers.find(position.ledger_id)
            if info is None or position.entry_id >= info.entries:
                break
            count = min(max_entries - len(entries), info.entries - position.entry_id, READ_RUN_ENTRIES_MAX)
            last = position.entry_id + count - 1
            payloads = await self._payloads(info, position.entry_id, last, max_bytes - size_bytes)
            for entry_id, payload in enumerate(payloads, position.entry_id):
                size_bytes += len(payload)
                if size_bytes > max_bytes and entries:
                    return entries
                entries.append(Entry(position.ledger_id, entry_id, payload))
            if 0 < len(payloads) < count:
                break  # the limit of bytes
            position = Position(position.ledger_id, position.entry_id + count)
        return entries

    async def find_last(self, predicate: Callable[[Entry], bool]) -> Position | None:
        """The newest readable entry for which ``predicate`` holds, given that it does for all older ones, or None.

        Binary search, one entry read a step. Of a ledger that can not be read the first entry behind it says whether
        all of it is passed; else what is found is before it.
        """
        found: Position | None = None
        low, high = self.extent.ledgers.first_position, self.extent.readable_position
        while (count := self.extent.ledgers.count_between(low, high)) > 0:
            middle = self.extent.ledgers.position_at(self.extent.ledgers.index_of(low) + (count - 1) // 2)
            try:
                entries = await self.read([middle])
            except LedgerClosedError:
                raise
            except StorageError:
                behind = await self._first_behind(middle.ledger_id, high)
                if behind is None or not predicate(behind):
                    high = self.extent.ledgers.previous_position(Position(middle.ledger_id, 0))
                    continue
                entries, middle = [behind], behind.position
            if entries and not predicate(entries[0]):
                high = self.extent.ledgers.previous_position(middle)
                continue
            # An entry trimmed meanwhile was older than any that can be found.
            found = middle if entries else found
            low = self.extent.ledgers.next_position(middle)
        return found

    async def _first_behind(self, ledger_id: int, last: Position) -> Entry | None:
        """The first entry behind a ledger that can be read, of those that begin their ledgers, up to ``last``."""
        while (info := self.extent.ledgers.after(ledger_id)) is not None:
            ledger_id = info.ledger_id
            if not info.entries or Position(ledger_id, 0) > last:
                continue
            try:
                entries = await self.read([Position(ledger_id, 0)])
            except LedgerClosedError:
                raise
            except StorageError:
                continue
            return entries[0] if entries else None
        return None

    async def _payloads(self, info: LedgerInfo, first: int, last: int, bytes_max: int) -> Sequence[bytes]:
        """The first of consecutive entries that ``bytes_max`` allows, at least one; none if the ledger went meanwhile.

        From the cache if all are there.
        """
        if self._tenure.is_closed:
            raise LedgerClosedError(f"{self._tenure.name} is closed")
        window = self.tail.window
        if window is not None and window.ledger_id == info.ledger_id:
            cached = window.get(first, last)
            if len(cached) == last - first + 1:
                return cached[: count_within(map(len, cached), bytes_max)]
        future: asyncio.Future[Sequence[bytes] | StorageError] = asyncio.get_running_loop().create_future()
        claim = self.read_ledger(info, first, last, bytes_max, partial(_tell, future))
        try:
            result = await future
        finally:
            if future.cancelled():
                claim.release()
            del future, claim  # see runtime's value_of
        if isinstance(result, NoSuchLedgerError) and self.extent.ledgers.find(info.ledger_id) is None:
            return ()
        try:
            return value_of(result)
        finally:
            del result


def _tell(future: asyncio.Future[Sequence[bytes] | StorageError], result: Sequence[bytes] | StorageError) -> None:
    if not future.done():
        future.set_result(result)


def _found(
    positions: Sequence[Position], found: dict[tuple[int, int], bytes], end: Position | None
) -> tuple[list[Entry], list[Position]]:
    """What is known of the positions before ``end``, and those from there on; None: all were looked at."""
    entries = [Entry(*position, found[position]) for position in positions if position in found]
    return entries, [] if end is None else [position for position in positions if position >= end]
