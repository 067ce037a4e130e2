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
from geminga.managed_ledger.core.persistence import Persistence
from geminga.managed_ledger.core.positions import LedgerInfo
from geminga.managed_ledger.cursor_store import CursorStore
from geminga.managed_ledger.deletion import delete_nodes
from geminga.managed_ledger.entry import AppendDone, Entry
from geminga.managed_ledger.entry_cache import EntryCache
from geminga.managed_ledger.managed_cursor import ManagedCursor
from geminga.managed_ledger.metadata_io import MetadataNode
from geminga.managed_ledger.reads import LedgerReads, ReadDone
from geminga.managed_ledger.stored_list import StoredList
from geminga.managed_ledger.tail import Tail
from geminga.managed_ledger.trimming import trim_list, trim_quietly
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import GemingaError, LedgerClosedError, LedgerFencedError, StorageError, TopicTerminatedError
from geminga.model.position import LATEST, Position
from geminga.runtime import Contained, Part, crash_point, get_logger, spawn
from geminga.runtime.ports import Runtime
from geminga.wire.managed_ledger import ManagedLedgerRecord

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
        "_appender",
        "_is_notifying",
        "_is_trimming",
        "_listeners",
        "_read_limit",
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
        "persistence",
        "readable",
        "readable_position",
        "retention_bytes",
        "retention_ms",
        "stored",
        "tail",
    )

    def __init__(
        self, factory: ManagedLedgerFactory, name: str, node: MetadataNode, record: ManagedLedgerRecord
    ) -> None:
        self.factory = factory
        self.name = name
        #: The ledger list and its node.
        self.stored = StoredList(
            name,
            node,
            record,
            metadata=factory.metadata,
            bookkeeper=factory.bookkeeper,
            fenced=self.on_fenced,
            forget=self._forget,
        )
        self.ledgers = self.stored.ledgers
        #: The newest entry that is stored; entry id -1 if there is none.
        self.last_confirmed_position = self.ledgers.last_position
        #: The log as far as readers go, and its newest entry: see :meth:`set_read_limit`.
        self.readable, self.readable_position = self.ledgers, self.last_confirmed_position
        self._read_limit = LATEST
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
        #: Quorums of new ledgers, and how often cursors are written.
        self.persistence = factory.persistence
        #: Recently appended entries, while anybody reads.
        self.tail = Tail(factory.cache, factory.cache_entries)
        self._appender: Appender | None = None
        self._reads: LedgerReads | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._is_notifying = False
        self._is_trimming = False

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
    def created_ms(self) -> int:
        """When it was made, ms since the epoch."""
        return self.stored.created_ms

    @property
    def terminated_position(self) -> Position | None:
        """The last entry there will ever be; None: it goes on."""
        return self.stored.terminated_position

    @property
    def properties(self) -> Mapping[str, str]:
        """Text properties."""
        return self.stored.properties

    @property
    def reads(self) -> LedgerReads:
        """Handles of closed ledgers."""
        if self._reads is None:
            factory = self.factory
            self._reads = LedgerReads(self.bookkeeper, factory.read_budget, factory.entry_bytes_max, self.part)
        return self._reads

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
        last = self.last_confirmed_position = Position(ledger_id, first_entry_id + len(entries) - 1)
        is_readable = last <= self._read_limit
        if is_readable:
            self.readable_position = last
        elif self.readable is self.ledgers:
            is_readable = self._cut_readable()
        self.tail.confirmed(ledger_id, first_entry_id, entries, size_bytes)
        if is_readable:
            self._notify_later()

    def set_read_limit(self, position: Position) -> None:
        """Readers stop at ``position``, whatever is stored behind it; LATEST, as at first: they do not.

        Cursors, their backlog and what they acknowledge, reads without a cursor and trimming take the log as if it
        ended there. Who listens at the tail is told when it moves on. It may be set back: what readers were given of
        what lies behind it stays given.
        """
        self._read_limit = position
        if self._cut_readable():
            for cursor in (*self.cursors.values(), *self.non_durable_cursors):
                cursor.on_more_readable()
            self._notify_later()

    @property
    def is_limited(self) -> bool:
        """Whether there is anything stored that may not be read now."""
        return self.readable is not self.ledgers

    def _cut_readable(self) -> bool:
        """Find anew where readers stop; whether that is further on than before."""
        before, last = self.readable_position, self.last_confirmed_position
        if last <= self._read_limit:
            self.readable, self.readable_position = self.ledgers, last
        else:
            self.readable = self.ledgers.cut(self._read_limit)
            self.readable_position = self.readable.last_position
        return self.readable_position > before and self.readable_position.entry_id >= 0

    def _notify_later(self) -> None:
        if self._listeners and not self._is_notifying:
            self._is_notifying = True
            asyncio.get_running_loop().call_soon(self._notify)

    def on_recovered(self, info: LedgerInfo) -> None:
        """Recovery found where a ledger ends; it may have more entries than were confirmed to us."""
        self.last_confirmed_position = max(self.last_confirmed_position, self.ledgers.last_position)
        self._cut_readable()
        if info.entries:
            self._notify_later()

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
        await self.stored.put([*self.ledgers.infos, info])
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
        if self.stored.drop_empty():
            self._cut_readable()

    def _forget(self, ledger_id: int) -> None:
        if self._reads is not None:
            self._reads.forget(ledger_id)

    async def roll(self, *, only_failed: bool = False) -> None:
        """Close the open ledger (or only one whose last write failed); the next append opens another. StorageError."""
        appender = self._appender
        if appender is None or (only_failed and not appender.has_failed):
            return
        try:
            async with self.stored.lock():
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
            await self.stored.put(self.ledgers.infos)
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
        async with self.stored.lock():
            if not self.is_closed and not self.is_fenced:
                await trim_list(self, lambda: (self.retention_ms, self.retention_bytes))

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        self.ledgers.remove(ledger_ids)
        self.last_confirmed_position = self.ledgers.last_position
        self._cut_readable()
        for cursor in (*self.cursors.values(), *self.non_durable_cursors):
            cursor.on_trimmed()

    async def truncate(self) -> None:
        """Acknowledge everything for every cursor and delete all ledgers, whatever retention says."""
        await self.roll()
        for cursor in tuple(self.cursors.values()):
            await cursor.clear_backlog()
        async with self.stored.lock():
            await trim_list(self, lambda: (0, 0))

    async def terminate(self) -> Position:
        """End the log: nothing can be appended any more. Returns the last position."""
        if self.terminated_position is not None:
            return self.terminated_position
        appender = self._appender if self._appender is not None else self._new_appender()
        try:
            async with self.stored.lock():
                handle = await appender.detach()
                self._drop_empty()
                position = self.ledgers.last_position
                await self.stored.put(self.ledgers.infos, terminated=position)
                appender.stop(TopicTerminatedError("Topic was already terminated"))
        finally:
            appender.resume()
        if handle is not None:
            await close_quietly(handle)
        return position

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the text properties. Durable on return."""
        async with self.stored.lock():
            await self.stored.put(self.ledgers.infos, properties=properties)

    def set_retention(self, *, retention_ms: int, retention_bytes: int) -> None:
        """How long consumed ledgers stay: see ``core.trim``. Takes effect with the next trim."""
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes

    def set_persistence(self, persistence: Persistence | None) -> None:
        """Ledgers made from now on, those of cursors included, have these quorums; None: the configured ones.

        An open ledger keeps its own until it is full. If there are fewer bookies than E, no new one can be made:
        appends fail with NotEnoughBookiesError, and go on once there are enough or the policy is another.
        """
        self.persistence = persistence if persistence is not None else self.factory.persistence

    @property
    def flush_interval_s(self) -> float:
        """Seconds between two writes of a cursor that nobody waits for."""
        return self.persistence.flush_interval_s(self.factory.config.cursor_flush_seconds)

    def end_recovered(self, entries: int, size_bytes: int) -> None:
        """Opening: the last ledger was closed by recovery, or turned out not to exist (no entries)."""
        last = self.ledgers.last
        assert last is not None
        last.entries, last.size_bytes = entries, size_bytes
        last.closed_ms = max(1, self.runtime.clock.wall_ms())
        self._drop_empty()
        self.last_confirmed_position = self.ledgers.last_position
        self._cut_readable()

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

    # Reads without a cursor stop at the read limit too, unless what is stored is asked for, readable or not.

    async def read(self, positions: Sequence[Position], *, is_limited: bool = True) -> list[Entry]:
        """The entries at ``positions``, in that order; those that do not exist (any more) are left out."""
        return await queries.read(self, positions, is_limited=is_limited)

    async def read_some(self, positions: Sequence[Position], max_bytes: int) -> tuple[list[Entry], list[Position]]:
        """As :meth:`read`, as far as ``max_bytes`` goes, but one at least; and the positions behind."""
        return await queries.read_some(self, positions, max_bytes)

    async def read_range(
        self, first: Position, max_entries: int, max_bytes: int, *, is_limited: bool = True
    ) -> list[Entry]:
        """Entries from ``first`` on, acknowledged or not; at least one if there is any."""
        return await queries.read_range(self, first, max_entries, max_bytes, is_limited=is_limited)

    async def find_last(self, predicate: Callable[[Entry], bool]) -> Position | None:
        """The newest readable entry for which ``predicate`` holds, given that it does for all older ones, or None."""
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
        """The durable cursor of that name; a new one starts at ``initial``: EARLIEST, LATEST (behind what is readable).

        Names are path elements: a subscription's name comes encoded.
        """
        cursor = self.cursors.get(name)
        if cursor is not None and not self.is_closed:
            # One that was closed goes on where it stopped: it holds its ledgers all the time.
            cursor.is_closed = False
            return cursor
        async with self.stored.lock():
            cursor = self.cursors.get(name)
            if cursor is not None:
                return cursor
            refusal = self._refusal()
            if isinstance(refusal, StorageError):
                raise refusal
            longs = dict(properties) if properties else _NO_LONGS
            state = CursorState(before(initial, self.readable), longs, self.factory.make_acked_entries)
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
        state = CursorState(before(start, self.readable), _NO_LONGS, self.factory.make_acked_entries)
        cursor = ManagedCursor(self, name, state, None)
        self.non_durable_cursors |= {cursor}
        return cursor

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor; fine if there is none. Raises LedgerFencedError if another owner changed it."""
        async with self.stored.lock():
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

    def on_non_durable_closed(self, cursor: ManagedCursor) -> None:
        """A cursor in memory is gone."""
        self.non_durable_cursors = self.non_durable_cursors - {cursor} or _NO_CURSORS

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
        self.tail.drop()
        async with self.stored.lock():
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
                await self.stored.put(self.ledgers.infos)
        except StorageError as error:
            _log.warning("%s: the list was not closed: %s", self.name, error)

    async def claim(self) -> None:
        """Write the list as it is. Raises LedgerFencedError if another owner has it: then nothing is ours to delete."""
        async with self.stored.lock():
            await self.stored.put(self.ledgers.infos)

    async def abandon(self) -> tuple[int, ...]:
        """Deletion: stop everything without writing; returns the ids of its ledgers, those of cursors included.

        Raises LedgerFencedError, with nothing deleted, if another owner has it.
        """
        self.is_closed = True
        if self._appender is not None:
            self._appender.stop(LedgerClosedError(f"{self.name} is deleted"))
            await self._appender.drain()
        try:
            async with self.stored.lock():
                return await delete_nodes(self)
        finally:
            self.tail.drop()
            self.factory.on_closed(self)
