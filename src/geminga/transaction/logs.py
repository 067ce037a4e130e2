"""Where records are kept: in a managed ledger with one cursor, or in memory.

What is appended in one turn of the loop is one append of the ledger. A failed append leaves it open whether the
entry is stored; who appends must not guess, but open the log anew and read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from geminga.managed_ledger import AppendResult, ManagedCursor, ManagedLedger
from geminga.model.errors import GemingaError, LedgerClosedError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import Contained, Part

#: Entries, and bytes, that one read of a replay brings.
REPLAY_ENTRIES: Final = 1_000
REPLAY_BYTES: Final = 1 << 20


class LedgerRecordLog:
    """See the module. Opened by :meth:`open`."""

    __slots__ = ("_batch", "_cursor", "_is_closed", "_ledger", "_part", "_waiting")

    def __init__(self, ledger: ManagedLedger, cursor: ManagedCursor, part: Part) -> None:
        self._ledger = ledger
        self._cursor = cursor
        #: Who answers for what goes wrong in callbacks of storage.
        self._part = part
        #: Entries that go with the next append, and who waits for them.
        self._batch: list[bytes] = []
        self._waiting: list[asyncio.Future[Position | GemingaError]] = []
        self._is_closed = False

    @classmethod
    async def open(cls, ledger: ManagedLedger, cursor_name: str, part: Part) -> LedgerRecordLog:
        """On an open managed ledger; its cursor is made if there is none. Raises StorageError."""
        return cls(ledger, await ledger.open_cursor(cursor_name, initial=EARLIEST), part)

    @property
    def properties(self) -> Mapping[str, str]:
        """As :class:`RecordLog` says."""
        return self._ledger.properties

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """As :class:`RecordLog` says."""
        await self._ledger.set_properties(properties)

    async def append(self, data: bytes) -> Position:
        """As :class:`RecordLog` says."""
        if self._is_closed:
            raise LedgerClosedError(f"{self._ledger.name} is closed")
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[Position | GemingaError] = loop.create_future()
        if not self._batch:
            loop.call_soon(self._append_batch)
        self._batch.append(data)
        self._waiting.append(stored)
        result = await stored
        if isinstance(result, GemingaError):
            raise result
        return result

    def _append_batch(self) -> None:
        batch, self._batch = self._batch, []
        waiting, self._waiting = self._waiting, []

        def done(result: AppendResult) -> None:
            with Contained(self._part, "an append to a transaction's log", is_last=True):
                for index in range(result.count):
                    stored = waiting[result.index + index]
                    if not stored.done():
                        position = Position(result.ledger_id, result.first_entry_id + index)
                        stored.set_result(position if result.error is None else result.error)

        self._ledger.append(batch, done)

    async def replay(self, take: Callable[[bytes, Position], None]) -> None:
        """As :class:`RecordLog` says."""
        ledger, cursor = self._ledger, self._cursor
        next_position = ledger.next_position(cursor.mark_delete_position)
        last = ledger.last_confirmed_position
        while next_position <= last:
            entries = await ledger.read_range(next_position, REPLAY_ENTRIES, REPLAY_BYTES, is_limited=False)
            if not entries:
                return
            for entry in await cursor.unacknowledged(entries):
                take(entry.data, entry.position)
            next_position = ledger.next_position(entries[-1].position)

    def delete(self, positions: Sequence[Position]) -> None:
        """As :class:`RecordLog` says; saved within about a second."""
        if not self._is_closed:
            self._cursor.acknowledge(positions)

    async def close(self) -> None:
        """As :class:`RecordLog` says. Raises StorageError."""
        self._is_closed = True
        await self._cursor.close()
        await self._ledger.close()

    async def abandon(self) -> None:
        """As :class:`RecordLog` says."""
        self._is_closed = True
        await self._ledger.close(is_broken=True)


class MemoryRecordLog:
    """A log that ends with the process: for trying out, and as the model of the other."""

    __slots__ = ("_entries", "_next_entry_id", "properties")

    def __init__(self) -> None:
        self._entries: dict[Position, bytes] = {}
        self._next_entry_id = 0
        self.properties: Mapping[str, str] = {}

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """As :class:`RecordLog` says."""
        self.properties = dict(properties)

    async def append(self, data: bytes) -> Position:
        """As :class:`RecordLog` says."""
        position = Position(0, self._next_entry_id)
        self._next_entry_id += 1
        self._entries[position] = data
        return position

    async def replay(self, take: Callable[[bytes, Position], None]) -> None:
        """As :class:`RecordLog` says."""
        for position, data in list(self._entries.items()):
            take(data, position)

    def delete(self, positions: Sequence[Position]) -> None:
        """As :class:`RecordLog` says."""
        for position in positions:
            self._entries.pop(position, None)

    async def close(self) -> None:
        """As :class:`RecordLog` says; the entries stay for who opens it again."""

    async def abandon(self) -> None:
        """As :class:`RecordLog` says."""
