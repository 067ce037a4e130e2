"""The endless log of one topic: a list of ledgers, its cursors, its entries.

Owned by one broker at a time; every change of the ledger list is one compare-and-set (see ``metadata_io``), and
memory follows only when it succeeded. Nothing past ``last_confirmed_position`` can be read. An idle managed
ledger has no open ledger, no task and no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.managed_ledger import crash_points as points
from geminga.managed_ledger import queries
from geminga.managed_ledger.appender import Appender, close_quietly
from geminga.managed_ledger.core.cursor import CursorState, before
from geminga.managed_ledger.core.positions import LedgerInfo, LedgerList
from geminga.managed_ledger.core.rollover import RolloverPolicy
from geminga.managed_ledger.cursor_store import CursorStore
from geminga.managed_ledger.deletion import delete_nodes
from geminga.managed_ledger.entry import AppendDone, Entry
from geminga.managed_ledger.entry_cache import EntryCache, TailWindow
from geminga.managed_ledger.managed_cursor import ManagedCursor
from geminga.managed_ledger.metadata_io import MetadataNode, ledger_path
from geminga.managed_ledger.reads import LedgerReads, ReadDone
from geminga.managed_ledger.trimming import trim_list, trim_quietly
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import GemingaError, LedgerClosedError, LedgerFencedError, StorageError, TopicTerminatedError
from geminga.model.position import LATEST, Position
from geminga.runtime import Contained, Part, crash_point, get_logger, spawn
from geminga.runtime.ports import Runtime
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, encode_managed_ledger_info

if TYPE_CHECKING:
    from geminga.managed_ledger.core.byte_budget import Claim
    from geminga.managed_ledger.factory import ManagedLedgerFactory

_NO_LONGS: Final[Mapping[str, int]] = {}
_NO_TEXTS: Final[Mapping[str, str]] = {}
#: One object for all idle managed ledgers: an empty set takes 216 bytes.
_NO_CURSORS: Final[frozenset[ManagedCursor]] = frozenset()

_log = get_logger(__name__)


class ManagedLedger:
    """See the module. Made by ``ManagedLedgerFactory.open``."""

    __slots__ = (
        "_active",
        "_appender",
        "_garbage",
        "_is_notifying",
        "_is_trimming",
        "_listeners",
        "_lock",
        "_node",
        "_reads",
        "cursors",
        "factory",
        "is_closed",
        "is_fenced",
        "last_confirmed_position",
        "ledgers",
        "name",
        "non_durable_cursors",
        "part",
        "properties",
        "retention_bytes",
        "retention_ms",
        "tail_window",
        "terminated_position",
    )

    def __init__(
        self, factory: ManagedLedgerFactory, name: str, node: MetadataNode, record: ManagedLedgerRecord
    ) -> None:
        self.factory = factory
        self.name = name
        self.properties: dict[str, str] = dict(record.properties)
        self.terminated_position = record.terminated
        self.ledgers = LedgerList(
            LedgerInfo(item.ledger_id, item.entries, item.size_bytes, item.closed_ms, item.offload_context)
            for item in record.ledgers
        )
        #: The newest entry that may be read; entry id -1 if there is none.
        self.last_confirmed_position = self.ledgers.last_position
        #: Durable cursors by name.
        self.cursors: dict[str, ManagedCursor] = {}
        self.non_durable_cursors = _NO_CURSORS
        #: Another owner took over: everything fails; open it anew.
        self.is_fenced = False
        self.is_closed = False
        #: What is closed if cursors, reads or trimming break; None: the process ends.
        self.part: Part | None = None
        #: Of consumed ledgers: age and total bytes, -1 without limit (see ``core.trim``); so until policies are read.
        self.retention_ms = self.retention_bytes = -1
        #: Recently appended entries of the open ledger.
        self.tail_window: TailWindow | None = None
        self._node = node
        self._appender: Appender | None = None
        self._reads: LedgerReads | None = None
        #: Empty ledgers that left the list in memory; deleted once it is written.
        self._garbage: tuple[int, ...] = ()
        self._active = _NO_CURSORS
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._is_notifying = False
        self._is_trimming = False
        self._lock: asyncio.Lock | None = None

    # ---- what it stands on

    @property
    def runtime(self) -> Runtime:
        """The ports."""
        return self.factory.runtime

    @property
    def bookkeeper(self) -> BookKeeper:
        """The ledger client."""
        return self.factory.bookkeeper

    @property
    def metadata(self) -> MetadataStore:
        """The metadata store."""
        return self.factory.metadata

    @property
    def cache(self) -> EntryCache:
        """The entry cache of the factory."""
        return self.factory.cache

    @property
    def rollover(self) -> RolloverPolicy:
        """When a ledger is full."""
        return self.factory.rollover

    @property
    def created_ms(self) -> int:
        """When it was made, ms since the epoch."""
        return self._node.created_ms

    @property
    def reads(self) -> LedgerReads:
        """Handles of closed ledgers."""
        if self._reads is None:
            factory = self.factory
            self._reads = LedgerReads(self.bookkeeper, factory.read_budget, factory.entry_bytes_max, self.part)
        return self._reads

    def list_lock(self) -> asyncio.Lock:
        """Held while the ledger list is changed."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    # ---- append

    def append(self, entries: Sequence[bytes], done: AppendDone) -> None:
        """Append consecutive payloads. ``done`` is called once for each part (more than one at a rollover), in order.

        Errors are in the result: TopicTerminatedError, LedgerFencedError, LedgerClosedError, StorageError; an entry
        whose append failed may or may not be stored, and is never retried here.
        """
        appender = self._appender
        if appender is None:
            appender = self._new_appender()
        appender.append(entries, done)

    def _new_appender(self) -> Appender:
        appender = self._appender = Appender(self)
        error = self._refusal()
        if error is not None:
            appender.stop(error)
        return appender

    def _refusal(self) -> GemingaError | None:
        if self.terminated_position is not None:
            return TopicTerminatedError("Topic was already terminated")
        if self.is_fenced:
            return LedgerFencedError(f"{self.name} has another owner")
        if self.is_closed:
            return LedgerClosedError(f"{self.name} is closed")
        return None

    async def open_ledger(self) -> None:
        """Have a ledger that takes entries, as the next append would; there is none if it can not be made now."""
        await (self._appender or self._new_appender()).open()

    @property
    def appender(self) -> Appender | None:
        """The append path; None before the first append since it was opened."""
        return self._appender

    @property
    def has_open_ledger(self) -> bool:
        """Whether there is a ledger that appends go to."""
        return self._appender is not None and self._appender.handle is not None

    def on_confirmed(self, ledger_id: int, first_entry_id: int, entries: Sequence[bytes], size_bytes: int) -> None:
        """Entries of the open ledger became readable."""
        self.last_confirmed_position = Position(ledger_id, first_entry_id + len(entries) - 1)
        if self._active:
            window = self.tail_window
            if window is None or window.ledger_id != ledger_id or window.end_entry_id != first_entry_id:
                self._drop_window()
                window = self.tail_window = TailWindow(ledger_id, first_entry_id)
            self.factory.cache_entries(window, entries, size_bytes)
        if self._listeners and not self._is_notifying:
            self._is_notifying = True
            asyncio.get_running_loop().call_soon(self._notify)

    def on_recovered(self, info: LedgerInfo) -> None:
        """Recovery found where a ledger ends; it may have more entries than were confirmed to us."""
        self.last_confirmed_position = max(self.last_confirmed_position, self.ledgers.last_position)
        if self._listeners and info.entries:
            asyncio.get_running_loop().call_soon(self._notify)

    def on_fenced(self, error: LedgerFencedError) -> None:
        """Another owner took over."""
        if self.is_fenced:
            return
        _log.error("%s: fenced, another owner has it: %s", self.name, error)
        self.is_fenced = True
        if self._appender is not None:
            self._appender.stop(error)

    def add_tail_listener(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` whenever entries became readable, once per group; returns what removes it."""
        self._listeners += (callback,)

        def remove() -> None:
            listeners = list(self._listeners)
            if callback in listeners:
                listeners.remove(callback)
                self._listeners = tuple(listeners)

        return remove

    def _notify(self) -> None:
        self._is_notifying = False
        with Contained(self.part, "new entries"):
            for listener in self._listeners:
                listener()

    # ---- the ledger list

    async def add_ledger(self, opened: Callable[[LedgerHandle, LedgerInfo], None]) -> None:
        """Create a ledger and make it the last of the list; the lock is held."""
        refusal = self._refusal()
        if isinstance(refusal, StorageError):
            raise refusal
        handle = await self.factory.create_ledger(self)
        crash_point(points.LEDGER_CREATED)
        info = LedgerInfo(handle.ledger_id, opened_ms=handle.metadata.created_ms or 0)
        self._drop_empty()
        await self.put_list([*self.ledgers.infos, info])
        crash_point(points.LEDGER_LISTED)
        self.ledgers.append(info)
        opened(handle, info)
        self.factory.watch_rollover(self)

    @property
    def newest_ledger_id(self) -> int:
        """No ledger of this list, and no position of a cursor, has a greater ledger id."""
        last = self.ledgers.last
        known = [c.mark_delete_position.ledger_id for c in self.cursors.values()]
        return max(-1 if last is None else last.ledger_id, self.last_confirmed_position.ledger_id, *known)

    def _drop_empty(self) -> None:
        """Closed ledgers without entries leave the list with its next write."""
        empty = [info.ledger_id for info in self.ledgers.infos if info.closed_ms and not info.entries]
        if empty:
            self.ledgers.remove(empty)
            self._garbage += tuple(empty)

    async def put_list(
        self,
        infos: Sequence[LedgerInfo],
        *,
        terminated: Position | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Write the node; the lock is held. Memory follows by the caller."""
        record = ManagedLedgerRecord(
            tuple(
                LedgerRecord(info.ledger_id, info.entries, info.size_bytes, info.closed_ms, info.offload_context)
                for info in infos
            ),
            terminated if terminated is not None else self.terminated_position,
            self.properties if properties is None else properties,
        )
        try:
            await self._node.put(self.metadata, ledger_path(self.name), encode_managed_ledger_info(record))
        except LedgerFencedError as error:
            self.on_fenced(error)
            raise
        garbage, self._garbage = self._garbage, ()
        await self.delete_ledgers(garbage)

    async def delete_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that left the list; one that can not be deleted now is left to the collector."""
        for ledger_id in ledger_ids:
            if self._reads is not None:
                self._reads.forget(ledger_id)
            try:
                await self.bookkeeper.delete_ledger(ledger_id)
            except StorageError as error:
                _log.warning("%s: ledger %d was not deleted: %s", self.name, ledger_id, error)

    async def roll(self, *, only_failed: bool = False) -> None:
        """Close the open ledger (or only one whose last write failed); the next append opens another. StorageError."""
        appender = self._appender
        if appender is None or (only_failed and not appender.has_failed):
            return
        try:
            async with self.list_lock():
                await self._close_open_ledger()
        finally:
            appender.resume()

    async def _close_open_ledger(self) -> None:
        """Drain, close, and say so in the list; the lock is held."""
        if self._appender is None:
            return
        handle = await self._appender.detach()
        if handle is not None:
            self._drop_empty()
            await self.put_list(self.ledgers.infos)
            crash_point(points.ROLL_LISTED)
            await close_quietly(handle)

    def trim_later(self) -> None:
        """A cursor left a ledger behind, or a ledger was closed: trim in the background."""
        if not self._is_trimming and not self.is_closed and len(self.ledgers) > 1:
            self._is_trimming = True
            spawn(trim_quietly(self), name=f"trim-{self.name}", part=self.part)

    async def trim(self) -> None:
        """Delete the ledgers that every durable cursor has passed and retention does not hold."""
        self._is_trimming = False
        async with self.list_lock():
            if not self.is_closed and not self.is_fenced:
                await trim_list(self, lambda: (self.retention_ms, self.retention_bytes))

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        self.ledgers.remove(ledger_ids)
        self.last_confirmed_position = self.ledgers.last_position
        for cursor in (*self.cursors.values(), *self.non_durable_cursors):
            cursor.on_trimmed()

    async def truncate(self) -> None:
        """Acknowledge everything for every cursor and delete all ledgers, whatever retention says."""
        await self.roll()
        for cursor in tuple(self.cursors.values()):
            await cursor.clear_backlog()
        async with self.list_lock():
            await trim_list(self, lambda: (0, 0))

    async def terminate(self) -> Position:
        """End the log: nothing can be appended any more. Returns the last position."""
        if self.terminated_position is not None:
            return self.terminated_position
        appender = self._appender if self._appender is not None else self._new_appender()
        try:
            async with self.list_lock():
                handle = await appender.detach()
                self._drop_empty()
                position = self.ledgers.last_position
                await self.put_list(self.ledgers.infos, terminated=position)
                self.terminated_position = position
                appender.stop(TopicTerminatedError("Topic was already terminated"))
        finally:
            appender.resume()
        if handle is not None:
            await close_quietly(handle)
        return position

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the text properties. Durable on return."""
        async with self.list_lock():
            await self.put_list(self.ledgers.infos, properties=properties)
            self.properties = dict(properties)

    def set_retention(self, *, retention_ms: int, retention_bytes: int) -> None:
        """How long consumed ledgers stay: see ``core.trim``. Takes effect with the next trim."""
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes

    def end_recovered(self, entries: int, size_bytes: int) -> None:
        """Opening: the last ledger was closed by recovery, or turned out not to exist (no entries)."""
        last = self.ledgers.last
        assert last is not None
        last.entries, last.size_bytes = entries, size_bytes
        last.closed_ms = max(1, self.runtime.clock.wall_ms())
        self._drop_empty()
        self.last_confirmed_position = self.ledgers.last_position

    # ---- read

    @property
    def first_position(self) -> Position:
        """The oldest entry, or where the next one would be."""
        return self.ledgers.first_position

    @property
    def entry_count(self) -> int:
        """Readable entries."""
        return self.ledgers.entry_count

    @property
    def size_bytes(self) -> int:
        """Payload bytes of the readable entries."""
        return self.ledgers.size_bytes

    def next_position(self, position: Position) -> Position:
        """The entry behind ``position``, or the place behind the last entry."""
        return self.ledgers.next_position(position)

    def previous_position(self, position: Position) -> Position:
        """The entry before ``position``, or the place before the first entry."""
        return self.ledgers.previous_position(position)

    def count_between(self, first: Position, last: Position) -> int:
        """Entries from ``first`` to ``last``, both included."""
        return self.ledgers.count_between(first, last)

    def read_ledger(self, info: LedgerInfo, first: int, last: int, bytes_max: int, done: ReadDone) -> Claim:
        """Payloads of consecutive entries of one ledger, from the bookies: see ``LedgerReads.read``."""
        handle = self._appender.handle if self._appender is not None else None
        return self.reads.read(info, first, last, bytes_max, done, handle=handle)

    async def read(self, positions: Sequence[Position]) -> list[Entry]:
        """The entries at ``positions``, in that order; those that no longer exist are left out."""
        return await queries.read(self, positions)

    async def read_some(self, positions: Sequence[Position], max_bytes: int) -> tuple[list[Entry], list[Position]]:
        """As :meth:`read`, as far as ``max_bytes`` goes, but one at least; and the positions behind."""
        return await queries.read_some(self, positions, max_bytes)

    async def read_range(self, first: Position, max_entries: int, max_bytes: int) -> list[Entry]:
        """Entries from ``first`` on, acknowledged or not; at least one if there is any."""
        return await queries.read_range(self, first, max_entries, max_bytes)

    async def find_last(self, predicate: Callable[[Entry], bool]) -> Position | None:
        """The newest entry for which ``predicate`` holds, given that it holds for all older ones; None if for none."""
        return await queries.find_last(self, predicate)

    # ---- cursors

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position = LATEST,
        properties: Mapping[str, int] = _NO_LONGS,
        cursor_properties: Mapping[str, str] = _NO_TEXTS,
    ) -> ManagedCursor:
        """The durable cursor of that name; a new one starts at ``initial`` (EARLIEST and LATEST are understood).

        Names are path elements: a subscription's name comes encoded.
        """
        cursor = self.cursors.get(name)
        if cursor is not None and not self.is_closed:
            # One that was closed goes on where it stopped: it holds its ledgers all the time.
            cursor.is_closed = False
            return cursor
        async with self.list_lock():
            cursor = self.cursors.get(name)
            if cursor is not None:
                return cursor
            refusal = self._refusal()
            if isinstance(refusal, StorageError):
                raise refusal
            longs = dict(properties) if properties else _NO_LONGS
            state = CursorState(before(initial, self.ledgers), longs, self.factory.make_acked_entries)
            store = CursorStore(self, MetadataNode())
            cursor = ManagedCursor(
                self, name, state, store, dict(cursor_properties) if cursor_properties else _NO_TEXTS
            )
            store.attach(cursor)
            await store.create_node()
            crash_point(points.CURSOR_CREATED)
            self.cursors[name] = cursor
        return cursor

    def new_non_durable_cursor(self, name: str, start: Position) -> ManagedCursor:
        """A cursor in memory whose first entry to read is ``start`` (EARLIEST and LATEST are understood)."""
        state = CursorState(before(start, self.ledgers), _NO_LONGS, self.factory.make_acked_entries)
        cursor = ManagedCursor(self, name, state, None)
        self.non_durable_cursors |= {cursor}
        return cursor

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor; fine if there is none. Raises LedgerFencedError if another owner changed it."""
        async with self.list_lock():
            cursor = self.cursors.get(name)
            store = cursor.store if cursor is not None else None
            if cursor is None or store is None:
                return
            await store.delete_node()
            crash_point(points.CURSOR_DELETED)
            del self.cursors[name]
            cursor.store = None
        await cursor.close()
        await store.delete_ledgers()
        self.trim_later()

    def on_cursor_active(self, cursor: ManagedCursor) -> None:
        """The cursor began to read."""
        self._active |= {cursor}

    def on_cursor_inactive(self, cursor: ManagedCursor) -> None:
        """The cursor reads no more."""
        self._active = self._active - {cursor} or _NO_CURSORS
        if not self._active:
            self._drop_window()

    def on_non_durable_closed(self, cursor: ManagedCursor) -> None:
        """A cursor in memory is gone."""
        self.non_durable_cursors = self.non_durable_cursors - {cursor} or _NO_CURSORS

    def on_cursor_read(self) -> None:
        """A cursor read on: what all active cursors have passed is not kept."""
        window = self.tail_window
        if window is None:
            return
        slowest = min(cursor.state.read_position for cursor in self._active) if self._active else LATEST
        if slowest > (window.ledger_id, window.first_entry_id):
            through = slowest.entry_id - 1 if slowest.ledger_id == window.ledger_id else window.end_entry_id
            self.cache.evict_through(window, through)

    def _drop_window(self) -> None:
        if self.tail_window is not None:
            self.cache.drop(self.tail_window)
            self.tail_window = None

    # ---- end

    def roll_if_full(self) -> None:
        """The factory's timer: a ledger may be full by its age."""
        if self._appender is not None:
            self._appender.roll_if_full()

    async def close(self, *, is_broken: bool = False) -> None:
        """Finish what is pending, persist the cursors, close the open ledger. Closing twice is fine.

        ``is_broken``: what the cursors have in memory is not to be trusted; opened anew they stand where they were
        last saved, which has every acknowledgement that was answered.
        """
        if self.is_closed:
            return
        self.is_closed = True
        appender = self._appender
        if appender is not None:
            appender.stop(LedgerClosedError(f"{self.name} is closed"))
            await appender.drain()
        for cursor in (*self.cursors.values(), *self.non_durable_cursors):
            await (cursor.drop() if is_broken else cursor.close())
        self._drop_window()
        async with self.list_lock():
            if appender is not None and not self.is_fenced:
                await self._say_closed(appender)
        self.factory.on_closed(self)

    async def _say_closed(self, appender: Appender) -> None:
        """Left open, the ledger would be recovered by the next owner: slower, but as right."""
        try:
            handle = await appender.leave()
            if handle is not None:
                await handle.close()
                self._drop_empty()
                await self.put_list(self.ledgers.infos)
        except StorageError as error:
            _log.warning("%s: the list was not closed: %s", self.name, error)

    async def claim(self) -> None:
        """Write the list as it is. Raises LedgerFencedError if another owner has it: then nothing is ours to delete."""
        async with self.list_lock():
            await self.put_list(self.ledgers.infos)

    async def abandon(self) -> tuple[int, ...]:
        """Deletion: stop everything without writing; returns the ids of its ledgers, those of cursors included.

        Raises LedgerFencedError, with nothing deleted, if another owner has it.
        """
        self.is_closed = True
        if self._appender is not None:
            self._appender.stop(LedgerClosedError(f"{self.name} is deleted"))
            await self._appender.drain()
        try:
            async with self.list_lock():
                return await delete_nodes(self, self._node)
        finally:
            self._drop_window()
            self.factory.on_closed(self)
