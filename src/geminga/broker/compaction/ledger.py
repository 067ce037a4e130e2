"""A ledger of compacted messages: read by the position that each had in its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from geminga.managed_ledger import ManagedLedger
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.entry import Entry
from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.runtime import again
from geminga.wire.pulsar.compacted import compacted_parts

#: Places that are remembered, of readers that go on: the one used longest ago is forgotten.
PLACES_MAX: Final = 64
#: Bytes asked for to find a place: one entry.
ONE_ENTRY: Final = 1


class CompactedLedger:
    """One that is written and closed. Its entries ascend by their positions in the topic."""

    __slots__ = ("_log", "_places", "horizon", "info", "ledger_id")

    def __init__(self, log: ManagedLedger, ledger_id: int, horizon: Position, info: LedgerInfo | None = None) -> None:
        """``horizon``: up to here the topic was compacted into it. ``info``: how long it is, if that is known."""
        self._log = log
        self.ledger_id = ledger_id
        self.horizon = horizon
        #: How long it is; None: nobody read it yet.
        self.info = info
        #: Which entry is the first at or behind a position, for those who go on there.
        self._places: dict[Position, int] = {}

    async def open(self) -> LedgerInfo:
        """How long it is. Raises StorageError: NoSuchLedgerError if it is gone."""
        if self.info is None:
            found = LedgerInfo(self.ledger_id, closed_ms=1)
            ledger = await self._log.reader.open_to_read(found)
            found.entries, found.size_bytes = ledger.last_add_confirmed + 1, ledger.length_bytes
            self.info = found
        return self.info

    async def at(self, index: int, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from the ``index``-th on as they were in the topic, at least one if there is any."""
        info = await self.open()
        if index >= info.entries:
            return []
        last = min(index + entries_max, info.entries) - 1
        return await self._read(info, index, last, bytes_max)

    async def read(self, first: Position, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries at or behind ``first`` in the topic; none: there are none. Raises StorageError."""
        index = self._places.pop(first, None)
        if index is None:
            index = await self._find(first)
        entries = await self.at(index, entries_max, bytes_max)
        if entries:
            ledger_id, entry_id = entries[-1].position
            self._places[Position(ledger_id, entry_id + 1)] = index + len(entries)
            while len(self._places) > PLACES_MAX:
                del self._places[next(iter(self._places))]
        return entries

    async def last(self) -> Entry | None:
        """The newest entry; None: nothing was kept. Raises StorageError."""
        info = await self.open()
        entries = await self.at(info.entries - 1, 1, ONE_ENTRY) if info.entries else []
        return entries[0] if entries else None

    async def _find(self, first: Position) -> int:
        """The first entry at or behind ``first``: halving, one entry read a step."""
        info = await self.open()
        low, high = 0, info.entries
        while low < high:
            middle = (low + high) // 2
            entry = (await self._read(info, middle, middle, ONE_ENTRY))[0]
            if entry.position < first:
                low = middle + 1
            else:
                high = middle
        return low

    async def _read(self, info: LedgerInfo, first: int, last: int, bytes_max: int) -> list[Entry]:
        answer: asyncio.Future[Sequence[bytes] | StorageError] = asyncio.get_running_loop().create_future()

        def done(result: Sequence[bytes] | StorageError) -> None:
            if not answer.done():
                answer.set_result(result)

        claim = self._log.reader.read_ledger(info, first, last, bytes_max, done)
        try:
            result = await answer
        finally:
            if answer.cancelled():
                claim.release()
        if isinstance(result, StorageError):
            # It is none of the log's: what can not be read of the log is told elsewhere.
            self._log.stored.failures.pop(self.ledger_id, None)
            raise again(result)  # the error's frames have the future
        return [Entry(*compacted_parts(data)) for data in result]
