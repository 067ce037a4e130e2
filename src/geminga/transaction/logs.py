"""Where records are kept: in a managed ledger with one cursor, or in memory.

What is appended in one turn of the loop, and what was to be appended later, is one append of the ledger. A failed one
leaves it open whether the entry is stored; who appends must not guess, but open the log anew and read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from geminga.managed_ledger import AppendResult, ManagedCursor, ManagedLedger
from geminga.model.errors import GemingaError, LedgerClosedError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import Contained, Part, answer_of, next_turn

#: Entries, and bytes, that one read of a replay brings.
REPLAY_ENTRIES: Final = 1_000
REPLAY_BYTES: Final = 1 << 20
#: Those that are the newest.
NEWEST_ENTRIES: Final = 100
#: Bytes of entries that are given in one turn of the loop.
REPLAY_TURN_BYTES: Final = 16 << 10
#: Milliseconds after which an entry is appended for which nobody waits, if nothing else was until then.
LATER_MS: Final = 50

#: Hears the position of an entry, or the error.
Done = Callable[[Position | GemingaError], None]


class LedgerRecordLog:
    """See the module. Opened by :meth:`open`."""

    __slots__ = ("_batch", "_cursor", "_due", "_is_closed", "_is_due_now", "_ledger", "_loop", "_part", "_waiting")

    def __init__(self, ledger: ManagedLedger, cursor: ManagedCursor, part: Part) -> None:
        self._ledger = ledger
        self._cursor = cursor
        #: Who answers for what goes wrong in callbacks of storage.
        self._part = part
        #: Entries that go with the next append, and who waits for them.
        self._batch: list[bytes] = []
        self._waiting: list[Done] = []
        #: When that is: in this turn, or soon; None: there is nothing.
        self._due: asyncio.Handle | None = None
        self._is_due_now = False
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    @classmethod
    async def open(cls, ledger: ManagedLedger, cursor_name: str, part: Part) -> LedgerRecordLog:
        """On an open managed ledger; its cursor is made if there is none. Raises StorageError."""
        return cls(ledger, await ledger.open_cursor(cursor_name, initial=EARLIEST), part)

    @property
    def properties(self) -> Mapping[str, str]:
        """As :class:`RecordLog` says."""
        return self._ledger.stored.properties

    async def add_properties(self, properties: Mapping[str, str]) -> None:
        """As :class:`RecordLog` says."""
        await self._ledger.stored.add_properties(properties)

    async def claim(self) -> None:
        """As :class:`RecordLog` says."""
        await self._ledger.stored.claim()

    async def append(self, data: bytes) -> Position:
        """As :class:`RecordLog` says."""
        return await answer_of(partial(self.append_now, data))

    def append_now(self, data: bytes, done: Done) -> None:
        """As :class:`RecordLog` says: at the end of this turn, with all that comes until then."""
        if self._is_closed:
            done(LedgerClosedError(f"{self._ledger.name} is closed"))
            return
        self._batch.append(data)
        self._waiting.append(done)
        self._append_soon()

    def append_later(self, data: bytes, done: Done) -> None:
        """As :class:`RecordLog` says."""
        if self._is_closed:
            done(LedgerClosedError(f"{self._ledger.name} is closed"))
            return
        self._batch.append(data)
        self._waiting.append(done)
        if self._due is None:
            self._due = self._loop.call_later(LATER_MS / 1000, self._append_batch)

    def _append_soon(self) -> None:
        if not self._is_due_now:
            if self._due is not None:
                self._due.cancel()
            self._is_due_now = True
            self._due = self._loop.call_soon(self._append_batch)

    def _append_batch(self) -> None:
        self._due, self._is_due_now = None, False
        batch, self._batch = self._batch, []
        waiting, self._waiting = self._waiting, []

        def done(result: AppendResult) -> None:
            with Contained(self._part, "an append to a transaction's log", is_last=True):
                for index in range(result.count):
                    position = Position(result.ledger_id, result.first_entry_id + index)
                    waiting[result.index + index](position if result.error is None else result.error)

        self._ledger.append(batch, done)

    async def _append_rest(self) -> None:
        """What was to be appended later is, before it is closed."""
        if self._due is None:
            return
        stored: asyncio.Future[None] = self._loop.create_future()
        last = self._waiting[-1]

        def done(result: Position | GemingaError) -> None:
            last(result)
            stored.set_result(None)

        self._waiting[-1] = done
        self._append_soon()
        await stored

    async def replay(self, take: Callable[[bytes, Position], None]) -> None:
        """As :class:`RecordLog` says."""
        ledger, cursor = self._ledger, self._cursor
        # A trim that a kill cut off has no other occasion until the cursor moves on.
        ledger.trimmer.trim_later()
        next_position = ledger.ledgers.next_position(cursor.mark_delete_position)
        last = ledger.extent.last_confirmed_position
        while next_position <= last:
            entries = await ledger.reader.read_range(next_position, REPLAY_ENTRIES, REPLAY_BYTES, is_limited=False)
            if not entries:
                return
            taken_bytes = 0
            for entry in await cursor.unacknowledged(entries):
                if taken_bytes > REPLAY_TURN_BYTES:
                    taken_bytes = 0
                    await next_turn()
                take(entry.data, entry.position)
                taken_bytes += len(entry.data)
            next_position = ledger.ledgers.next_position(entries[-1].position)

    async def newest(self, take: Callable[[bytes, Position], None]) -> None:
        """As :class:`RecordLog` says: of the last ledger that has any, at most :data:`NEWEST_ENTRIES`."""
        ledger = self._ledger
        last = ledger.extent.last_confirmed_position
        position = max(
            ledger.ledgers.first_position, Position(last.ledger_id, max(0, last.entry_id + 1 - NEWEST_ENTRIES))
        )
        while position <= last:
            entries = await ledger.reader.read_range(position, NEWEST_ENTRIES, REPLAY_BYTES, is_limited=False)
            if not entries:
                return
            for entry in entries:
                take(entry.data, entry.position)
            position = ledger.ledgers.next_position(entries[-1].position)

    def delete(self, positions: Sequence[Position]) -> None:
        """As :class:`RecordLog` says; saved within about a second."""
        if not self._is_closed:
            self._cursor.acknowledge(positions)

    async def flush(self) -> None:
        """As :class:`RecordLog` says."""
        await self._cursor.flush()

    async def close(self) -> None:
        """As :class:`RecordLog` says. Raises StorageError."""
        await self._append_rest()
        self._is_closed = True
        await self._cursor.close()
        await self._ledger.close()

    async def abandon(self) -> None:
        """As :class:`RecordLog` says."""
        self.drop()
        await self._ledger.close(is_broken=True)

    def drop(self) -> None:
        """Its ledger is not to be written any more: what was to be appended is not, and who waits for it is told."""
        self._is_closed = True
        if self._due is not None:
            self._due.cancel()
            self._due = None
        waiting, self._batch, self._waiting = self._waiting, [], []
        with Contained(self._part, "an append to a transaction's log", is_last=True):
            for done in waiting:
                done(LedgerClosedError(f"{self._ledger.name} is closed"))


class MemoryRecordLog:
    """A log that ends with the process: for trying out, and as the model of the other."""

    __slots__ = ("_entries", "_next_entry_id", "properties")

    def __init__(self) -> None:
        self._entries: dict[Position, bytes] = {}
        self._next_entry_id = 0
        self.properties: Mapping[str, str] = {}

    async def add_properties(self, properties: Mapping[str, str]) -> None:
        """As :class:`RecordLog` says."""
        self.properties = {**self.properties, **properties}

    async def claim(self) -> None:
        """As :class:`RecordLog` says: nobody else can."""

    async def append(self, data: bytes) -> Position:
        """As :class:`RecordLog` says."""
        position = Position(0, self._next_entry_id)
        self._next_entry_id += 1
        self._entries[position] = data
        return position

    def append_now(self, data: bytes, done: Done) -> None:
        """As :class:`RecordLog` says: at once."""
        self.append_later(data, done)

    def append_later(self, data: bytes, done: Done) -> None:
        """As :class:`RecordLog` says: at once."""
        position = Position(0, self._next_entry_id)
        self._next_entry_id += 1
        self._entries[position] = data
        done(position)

    async def replay(self, take: Callable[[bytes, Position], None]) -> None:
        """As :class:`RecordLog` says."""
        for position, data in list(self._entries.items()):
            take(data, position)

    async def newest(self, take: Callable[[bytes, Position], None]) -> None:
        """As :class:`RecordLog` says: those that were deleted are gone."""
        await self.replay(take)

    def delete(self, positions: Sequence[Position]) -> None:
        """As :class:`RecordLog` says."""
        for position in positions:
            self._entries.pop(position, None)

    async def flush(self) -> None:
        """As :class:`RecordLog` says: at once."""

    async def close(self) -> None:
        """As :class:`RecordLog` says; the entries stay for who opens it again."""

    async def abandon(self) -> None:
        """As :class:`RecordLog` says."""
