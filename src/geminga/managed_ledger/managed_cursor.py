"""A cursor: where one subscription stands in a managed ledger, and its reads.

Decisions are those of ``core.cursor``; a durable cursor's state goes to disk through ``cursor_store``. One read
at a time. Acknowledgements take effect in memory at once; ``done`` says when they are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.managed_ledger.core.cursor import CROSSED, CursorState
from geminga.managed_ledger.cursor_store import CursorStore
from geminga.managed_ledger.entry import AckDone, Entry
from geminga.managed_ledger.entry_cache import TailWindow
from geminga.model.errors import LedgerClosedError, NoSuchLedgerError, StorageError, invariant
from geminga.model.position import LATEST, Position

if TYPE_CHECKING:
    from geminga.managed_ledger.core.positions import LedgerInfo
    from geminga.managed_ledger.managed_ledger import ManagedLedger

EntriesDone = Callable[[Sequence[Entry] | StorageError], None]

#: Bytes a reader that lags behind may hold beyond what was asked for.
READ_AHEAD_BYTES: Final = 256 * 1024
#: Entries of one read from the bookies, read-ahead included.
READ_ENTRIES_MAX: Final = 1000

_NO_PROPERTIES: Final[Mapping[str, str]] = {}


class _Read(NamedTuple):
    """The read under way."""

    max_entries: int
    max_bytes: int
    done: EntriesDone
    max_position: Position


class ManagedCursor:
    """See the module. Made by ``ManagedLedger.open_cursor`` and ``new_non_durable_cursor``."""

    __slots__ = (
        "_ahead",
        "_epoch",
        "_is_stepping",
        "_is_waiting",
        "_ml",
        "_read",
        "cursor_properties",
        "is_active",
        "is_closed",
        "name",
        "state",
        "store",
    )

    def __init__(
        self,
        ml: ManagedLedger,
        name: str,
        state: CursorState,
        store: CursorStore | None,
        cursor_properties: Mapping[str, str] = _NO_PROPERTIES,
    ) -> None:
        self.name = name
        self.state = state
        #: None: not durable.
        self.store = store
        #: Text properties of the subscription.
        self.cursor_properties = cursor_properties
        #: Whether it reads: appended entries are cached for it.
        self.is_active = False
        self.is_closed = False
        self._ml = ml
        self._read: _Read | None = None
        #: The read is being served from memory right now / waits for a bookie.
        self._is_stepping = False
        self._is_waiting = False
        #: Payloads read from a bookie beyond what was asked for.
        self._ahead: TailWindow | None = None
        #: Grows with every jump of the read position: a read under way then starts anew.
        self._epoch = 0

    # ---- state

    @property
    def is_durable(self) -> bool:
        """Whether it outlives the broker."""
        return self.store is not None

    @property
    def read_position(self) -> Position:
        """The next position to read."""
        return self.state.read_position

    @property
    def mark_delete_position(self) -> Position:
        """Every entry up to and including it is acknowledged."""
        return self.state.mark_delete

    @property
    def properties(self) -> Mapping[str, int]:
        """What is saved along with the position."""
        return self.state.properties

    @property
    def backlog_count(self) -> int:
        """Entries not acknowledged."""
        return self.state.backlog(self._ml.ledgers)

    @property
    def individually_acknowledged_count(self) -> int:
        """Entries acknowledged beyond the mark-delete position."""
        return self.state.acked.count

    @property
    def has_more_entries(self) -> bool:
        """Whether there is any entry at or behind the read position."""
        lac = self._ml.last_confirmed_position
        position = self.state.read_position
        return lac.entry_id >= 0 and position <= lac and self._ml.ledgers.at_or_after(position) <= lac

    def is_acknowledged(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        return self.state.is_acknowledged(position)

    def ack_set(self, position: Position) -> Sequence[int] | None:
        """Unacknowledged indexes of a partly acknowledged batch (set bit = unacknowledged); None: all of them."""
        return self.state.ack_set(position)

    # ---- read

    def read_entries(
        self, max_entries: int, max_bytes: int, done: EntriesDone, *, max_position: Position = LATEST
    ) -> None:
        """Read forward from the read position, which advances; acknowledged entries are left out.

        ``done`` gets at least one entry, or none at the end (or past ``max_position``); possibly within the call.
        """
        invariant(self._read is None, f"{self._ml.name}/{self.name}: a read is under way")
        if self.is_closed:
            done(LedgerClosedError(f"cursor {self.name} is closed"))
            return
        if not self.is_active:
            self.is_active = True
            self._ml.on_cursor_active(self)
        self._read = _Read(max(1, max_entries), max_bytes, done, max_position)
        if not self._is_stepping:
            self._step()

    def rewind(self) -> None:
        """The next read starts at the first entry that is not acknowledged."""
        self.state.rewind(self._ml.ledgers)
        self._jumped()

    def deactivate(self) -> None:
        """No consumer reads any more: nothing is cached for it until the next read."""
        if self.is_active:
            self.is_active = False
            self._drop_ahead()
            self._ml.on_cursor_inactive(self)

    def _jumped(self) -> None:
        self._epoch += 1
        self._drop_ahead()

    def _step(self) -> None:
        """Serve reads from memory as far as that goes, or start one from the bookies."""
        self._is_stepping = True
        try:
            while (read := self._read) is not None and not self._is_waiting:
                start = self._next_unread(read.max_position)
                if start is None:
                    self._finish(())
                    continue
                info, last = start
                ledger_id, first = self.state.read_position
                payloads = self._cached(ledger_id, first, min(last, first + read.max_entries - 1))
                if payloads:
                    self._ml.cache.hits += len(payloads)
                    self._deliver(ledger_id, first, payloads)
                else:
                    self._is_waiting = True
                    self._read_ledger(info, first, last, read)
        finally:
            self._is_stepping = False

    def _next_unread(self, max_position: Position) -> tuple[LedgerInfo, int] | None:
        """Move the read position to the next unacknowledged entry; its ledger, and the last id to read there."""
        state, ledgers = self.state, self._ml.ledgers
        position = state.read_position
        if position <= state.mark_delete:
            position = Position(state.mark_delete.ledger_id, state.mark_delete.entry_id + 1)
        limit = min(self._ml.last_confirmed_position, max_position)
        acked = state.acked
        while True:
            position = ledgers.at_or_after(position)
            info = ledgers.find(position.ledger_id)
            if position > limit or info is None or position.entry_id >= info.entries:
                state.read_position = position
                return None
            if acked.count:
                clear = acked.first_clear(*position)
                if clear != position.entry_id:
                    position = Position(position.ledger_id, clear)
                    continue
            state.read_position = position
            last = info.entries - 1
            if limit.ledger_id == position.ledger_id:
                last = min(last, limit.entry_id)
            return info, last

    def _cached(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        ahead = self._ahead
        if ahead is not None:
            if ahead.ledger_id == ledger_id and (payloads := ahead.get(first, last)):
                return payloads
            self._drop_ahead()
        window = self._ml.tail_window
        if window is not None and window.ledger_id == ledger_id:
            return window.get(first, last)
        return []

    def _read_ledger(self, info: LedgerInfo, first: int, last: int, read: _Read) -> None:
        average = max(1, info.size_bytes // info.entries)
        asked = min(read.max_entries, max(1, read.max_bytes // average))
        window = self._ml.tail_window
        if window is not None and window.ledger_id == info.ledger_id and first < window.first_entry_id:
            last = min(last, window.first_entry_id - 1)
        count = min(last - first + 1, READ_ENTRIES_MAX, asked + READ_AHEAD_BYTES // average)
        epoch = self._epoch

        def arrived(result: Sequence[bytes] | StorageError) -> None:
            self._arrived(epoch, info.ledger_id, first, result)

        self._ml.cache.misses += count
        self._ml.read_ledger(info, first, first + count - 1, arrived)

    def _arrived(self, epoch: int, ledger_id: int, first: int, result: Sequence[bytes] | StorageError) -> None:
        self._is_waiting = False
        read = self._read
        if read is None:
            return
        if self.is_closed:
            self._finish(LedgerClosedError(f"cursor {self.name} is closed"))
            return
        if epoch == self._epoch and not isinstance(result, StorageError):
            if len(result) > read.max_entries:
                self._look_ahead(ledger_id, first, result)
            self._deliver(ledger_id, first, result[: read.max_entries])
        elif epoch == self._epoch:
            # A ledger that was trimmed meanwhile is passed over; any other error goes to the caller.
            gone = isinstance(result, NoSuchLedgerError) and self._ml.ledgers.find(ledger_id) is None
            if not gone and isinstance(result, StorageError):
                self._finish(result)
                return
        if not self._is_stepping:
            self._step()

    def _deliver(self, ledger_id: int, first: int, payloads: Sequence[bytes]) -> None:
        """Complete the read with what is not acknowledged of ``payloads``; nothing if all of it is."""
        read = self._read
        assert read is not None
        size_bytes = 0
        count = 0
        for payload in payloads:
            size_bytes += len(payload)
            if size_bytes > read.max_bytes and count:
                break
            count += 1
        if count < len(payloads) and self._ahead is None:
            self._look_ahead(ledger_id, first + count, payloads[count:])
        state = self.state
        state.read_position = Position(ledger_id, first + count)
        if state.acked.count and state.acked.has_ledger(ledger_id):
            entries = [
                Entry(ledger_id, entry_id, payloads[entry_id - first])
                for entry_id in state.acked.clear_ids(ledger_id, first, first + count - 1)
            ]
        else:
            entries = [Entry(ledger_id, entry_id, payload) for entry_id, payload in enumerate(payloads[:count], first)]
        if state.mark_delete >= (ledger_id, first):
            entries = [entry for entry in entries if (ledger_id, entry.entry_id) > state.mark_delete]
        if entries:
            self._ml.on_cursor_read()
            self._finish(entries)

    def _look_ahead(self, ledger_id: int, first: int, payloads: Sequence[bytes]) -> None:
        """Keep payloads for the next read, if the cache's budget allows."""
        self._drop_ahead()
        window = self._ml.tail_window
        if window is not None and window.ledger_id == ledger_id and first >= window.first_entry_id:
            return
        size_bytes = sum(map(len, payloads))
        if self._ml.cache.reserve(size_bytes):
            self._ahead = TailWindow(ledger_id, first)
            self._ahead.extend(payloads, size_bytes)

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ml.cache.give_back(self._ahead.size_bytes)
            self._ahead = None

    def _finish(self, result: Sequence[Entry] | StorageError) -> None:
        read, self._read = self._read, None
        assert read is not None
        read.done(result)

    # ---- acknowledge

    def acknowledge(
        self,
        positions: Sequence[Position],
        ack_sets: Sequence[Sequence[int] | None] | None = None,
        done: AckDone | None = None,
    ) -> None:
        """Acknowledge entries; ``ack_sets[i]`` (int64 words, set bit = not acknowledged) restricts to indexes.

        ``done`` is called once the state is durable; without it that happens within about a second.
        """
        self._changed(self.state.acknowledge(positions, ack_sets, self._ml.ledgers), done)

    def acknowledge_cumulative(
        self,
        position: Position,
        ack_set: Sequence[int] | None = None,
        done: AckDone | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """Acknowledge everything up to ``position``; ``properties`` replace those saved with the position."""
        flags = self.state.acknowledge_cumulative(position, ack_set, self._ml.ledgers)
        if properties is not None and properties != self.state.properties:
            self.state.properties = dict(properties)
            flags |= 1
        self._changed(flags, done)

    async def reset(self, position: Position) -> None:
        """Seek: ``position`` (EARLIEST and LATEST too) is delivered next, all holes are gone. Durable on return."""
        self._jumped()
        await self._durably(self.state.reset(position, self._ml.ledgers))

    async def skip(self, count: int) -> None:
        """Acknowledge the oldest ``count`` entries. Durable on return."""
        target = self.state.skipping(count, self._ml.ledgers)
        await self._durably(self.state.acknowledge_cumulative(target, None, self._ml.ledgers))

    async def clear_backlog(self) -> None:
        """Acknowledge everything there is. Durable on return."""
        target = self._ml.ledgers.last_position
        await self._durably(self.state.acknowledge_cumulative(target, None, self._ml.ledgers))

    async def set_properties(self, properties: Mapping[str, int]) -> None:
        """Replace what is saved along with the position. Durable on return."""
        self.state.properties = dict(properties)
        await self._durably(1)

    async def set_cursor_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's text properties. Durable on return."""
        self.cursor_properties = dict(properties)
        if self.store is not None:
            await self.store.write_node()

    async def flush(self) -> None:
        """Until everything acknowledged so far is durable."""
        await self._durably(0)

    def _changed(self, flags: int, done: AckDone | None) -> None:
        if self.is_closed:
            if done is not None:
                done(LedgerClosedError(f"cursor {self.name} is closed"))
            return
        if flags & CROSSED:
            self._ml.trim_later()
        if self.store is not None:
            if flags or done is not None:
                self.store.changed(bool(flags), done)
        elif done is not None:
            done(None)

    async def _durably(self, flags: int) -> None:
        future: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()

        def done(error: StorageError | None) -> None:
            if not future.done():
                future.set_result(error)

        self._changed(flags, done)
        error = await future
        if error is not None:
            raise error

    # ---- end

    async def close(self) -> None:
        """Persist and let go. A read under way ends with an error."""
        if self.is_closed:
            return
        self.is_closed = True
        self.deactivate()
        if self._read is not None:
            self._finish(LedgerClosedError(f"cursor {self.name} is closed"))
        if self.store is not None:
            await self.store.close()
        else:
            self._ml.on_non_durable_closed(self)

    def start_flush(self) -> None:
        """Persist in the background what nobody waits for; the factory's timer asks."""
        if self.store is not None:
            self.store.flush_background()
