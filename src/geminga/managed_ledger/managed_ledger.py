"""The endless log of one topic: a list of ledgers, its cursors, its entries.

Owned by one broker at a time; every change of the ledger list is one compare-and-set (``metadata_io``), and memory
follows only when it succeeded. Nothing past ``last_confirmed_position`` can be read. An idle one has no open ledger,
no task and no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from geminga.managed_ledger import queries
from geminga.managed_ledger.cursor.cursor_set import CursorSet
from geminga.managed_ledger.cursor.managed_cursor import ManagedCursor
from geminga.managed_ledger.log.appender import Appender
from geminga.managed_ledger.log.ledger_end import close_quietly
from geminga.managed_ledger.log.new_ledgers import NewLedgers
from geminga.managed_ledger.log.reads import LedgerReads, ReadDone
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.log.tail import Tail
from geminga.managed_ledger.rules.persistence import Persistence, StoredAs
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.entry import AppendDone, Entry
from geminga.managed_ledger.shared.metadata_io import MetadataNode, ledger_path
from geminga.managed_ledger.shared.ports import Ledger
from geminga.managed_ledger.shared.services import LedgerHome, StorageServices
from geminga.managed_ledger.trimming import trim, trim_quietly, truncate
from geminga.metadata.ports import Stat
from geminga.model.byte_budget import Claim
from geminga.model.errors import (
    GemingaError,
    LedgerClosedError,
    LedgerFencedError,
    StorageError,
    TopicTerminatedError,
)
from geminga.model.position import LATEST, Position
from geminga.runtime import Part, Rng, crash_point, get_logger, spawn
from geminga.wire.managed_ledger import CursorInfoRecord, ManagedLedgerRecord

if TYPE_CHECKING:
    from geminga.managed_ledger.log.list_watch import ListWatch
    from geminga.managed_ledger.offload.offloading import FindAborted, FindSchema, Offloading

_NO_LONGS: Final[Mapping[str, int]] = {}
_NO_TEXTS: Final[Mapping[str, str]] = {}
_log = get_logger(__name__)


class ManagedLedger:
    """See the module. Made by ``ManagedLedgerFactory.open``."""

    __slots__ = (
        "_appender",
        "_cursors",
        "_home",
        "_list_watch",
        "_read_limit",
        "_reads",
        "_services",
        "is_bookkeeper_first",
        "is_closed",
        "is_fenced",
        "is_trimming",
        "last_confirmed_position",
        "ledgers",
        "name",
        "part",
        "readable",
        "readable_position",
        "retention_bytes",
        "retention_ms",
        "stored",
        "stored_as",
        "tail",
        "when_fenced",
    )

    def __init__(
        self,
        services: StorageServices,
        home: LedgerHome,
        name: str,
        node: MetadataNode,
        record: ManagedLedgerRecord,
    ) -> None:
        self._services = services
        self._home = home
        self.name = name
        #: The ledger list and its node.
        self.stored = StoredList(
            name,
            node,
            record,
            metadata=services.metadata,
            ledgers=services.ledgers,
            fenced=self.on_fenced,
            forget=self._forget,
        )
        self.ledgers = self.stored.ledgers
        #: The newest entry that is stored; entry id -1 if there is none.
        self.last_confirmed_position = self.ledgers.last_position
        #: The log as far as readers go, and its newest entry: see :meth:`set_read_limit`.
        self.readable, self.readable_position = self.ledgers, self.last_confirmed_position
        self._read_limit = LATEST
        self._cursors = CursorSet(self, services, home.cursor_services)
        #: Another owner took over: everything fails; open it anew.
        self.is_fenced = False
        #: Called once when that is found.
        self.when_fenced: Callable[[], None] | None = None
        self.is_closed = False
        #: What is closed if cursors, reads or trimming break; None: the process ends.
        self.part: Part | None = None
        #: Of consumed ledgers: age and total bytes, -1 without limit (see ``core.trim``); so until policies are read.
        self.retention_ms = self.retention_bytes = -1
        #: Quorums of new ledgers, and how often cursors are written.
        self.stored_as = StoredAs(services.persistence)
        #: Recently appended entries, while anybody reads, and who is told of them.
        self.tail = Tail(home.cursor_services.cache, home.cache_entries)
        self._appender: Appender | None = None
        self._reads: LedgerReads | None = None
        self._list_watch: ListWatch | None = None
        #: Ledgers that are in the lake too are read from the bookies.
        self.is_bookkeeper_first = False
        #: A trim in the background is about to begin.
        self.is_trimming = False

    # ---- what is stored of it

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
    def persistence(self) -> Persistence:
        """What ``stored_as`` says now."""
        return self.stored_as.now

    # ---- append

    def append(self, entries: Sequence[bytes], done: AppendDone) -> None:
        """Append consecutive payloads. ``done`` is called once for each part (more than one at a rollover), in order.

        Errors are in the result: TopicTerminatedError, LedgerFencedError, LedgerClosedError, StorageError; an entry
        whose append failed may or may not be stored, and is never retried here.
        """
        appender = self._appender or self._new_appender()
        self._home.cursor_services.catch_up.published()
        appender.append(entries, done)

    def _new_appender(self) -> Appender:
        appender = self._appender = Appender(self, NewLedgers(self, self._services, self._home), self._services)
        if (error := self._refusal()) is not None:
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

    def check_writable(self) -> None:
        """Raises LedgerFencedError, LedgerClosedError."""
        refusal = self._refusal()
        if isinstance(refusal, StorageError):
            raise refusal

    def watch_list(self) -> None:
        """Hear of it when another owner claims the list, also where nothing is written here (:mod:`.list_watch`)."""
        from geminga.managed_ledger.log.list_watch import ListWatch

        self._list_watch = ListWatch(self, self._services.metadata, ledger_path(self.name))

    async def check_list(self) -> None:
        """Look whether the list is ours still. Raises LedgerFencedError, MetadataError."""
        async with self.stored.lock():
            await self.stored.require_ours()

    async def require_list(self) -> None:
        """The list lock is held: raise LedgerFencedError if another owner has the ledger list."""
        await self.stored.require_ours()

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
        # Who waits for a slow sync sends nothing meanwhile, and publishes all the same.
        self._home.cursor_services.catch_up.published()
        self.tail.confirmed(ledger_id, first_entry_id, entries, size_bytes)
        if is_readable:
            self.tail.tell_later(self.part)

    def set_read_limit(self, position: Position) -> None:
        """Readers stop at ``position``, whatever is stored behind it; LATEST, as at first: they do not.

        Cursors, their backlog and what they acknowledge, reads without a cursor and trimming take the log as if it
        ended there. Who listens at the tail is told when it moves on. It may be set back: what readers were given of
        what lies behind it stays given.
        """
        self._read_limit = position
        if self._cut_readable():
            for cursor in self._cursors.all():
                cursor.on_more_readable()
            self.tail.tell_later(self.part)

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

    def on_recovered(self, info: LedgerInfo) -> None:
        """Recovery found where a ledger ends; it may have more entries than were confirmed to us."""
        self.last_confirmed_position = max(self.last_confirmed_position, self.ledgers.last_position)
        self._cut_readable()
        if info.entries:
            self.tail.tell_later(self.part)

    def on_fenced(self, error: LedgerFencedError) -> None:
        """Another owner took over."""
        if self.is_fenced:
            return
        _log.error("%s: fenced, another owner has it: %s", self.name, error)
        self.is_fenced = True
        if self._appender is not None:
            self._appender.stop(error)
        if self.when_fenced is not None:
            self.when_fenced()

    def add_tail_listener(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` whenever entries became readable, once per group; returns what removes it."""
        return self.tail.add_listener(callback)

    # ---- the ledger list

    def list_lock(self) -> asyncio.Lock:
        """Held while the ledger list is changed."""
        return self.stored.lock()

    def keep_to_read(self, ledger: Ledger) -> None:
        """A ledger that is open no more is read through this."""
        self._ledger_reads().keep(ledger)

    @property
    def newest_ledger_id(self) -> int:
        """No ledger of this list, and no position of a cursor, has a greater ledger id."""
        last = self.ledgers.last
        known = [c.mark_delete_position.ledger_id for c in self.cursors.values()]
        return max(-1 if last is None else last.ledger_id, self.last_confirmed_position.ledger_id, *known)

    def drop_empty(self) -> None:
        """Closed ledgers without entries leave the list with its next write."""
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
                if not only_failed or appender.has_failed:  # it may have been fixed meanwhile
                    await self._close_open_ledger()
        finally:
            appender.resume()

    async def _close_open_ledger(self) -> None:
        """Drain, close, and say so in the list; the lock is held."""
        if self._appender is None:
            return
        handle = await self._appender.detach()
        if handle is not None:
            self.drop_empty()
            await self.stored.put(self.ledgers.infos)
            crash_point(points.ROLL_LISTED)
            await close_quietly(handle)

    def trim_later(self) -> None:
        """A cursor left a ledger behind, or a ledger was closed: trim in the background."""
        if not self.is_trimming and not self.is_closed and len(self.ledgers) > 1:
            self.is_trimming = True
            spawn(trim_quietly(self, self._services), name=f"trim-{self.name}", part=self.part)

    async def trim(self) -> None:
        """Delete the ledgers that every durable cursor has passed and retention does not hold."""
        await trim(self, self._services)

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        self.ledgers.remove(ledger_ids)
        self.last_confirmed_position = self.ledgers.last_position
        self._cut_readable()
        for cursor in self._cursors.all():
            cursor.on_trimmed()

    async def truncate(self, through: Position = LATEST, *, kept: Collection[str] = ()) -> None:
        """Acknowledge what may be read by now, up to ``through``, for every cursor but those ``kept``, and delete it,
        whatever retention says: see ``trimming``."""
        await truncate(self, self._services, through, kept)

    async def terminate(self) -> Position:
        """End the log: nothing can be appended any more. Returns the last position."""
        if self.terminated_position is not None:
            return self.terminated_position
        appender = self._appender if self._appender is not None else self._new_appender()
        try:
            async with self.stored.lock():
                handle = await appender.detach()
                self.drop_empty()
                position = self.ledgers.last_position
                await self.stored.put(self.ledgers.infos, terminated=position)
                appender.stop(TopicTerminatedError("Topic was already terminated"))
        finally:
            appender.resume()
        if handle is not None:
            await close_quietly(handle)
        return position

    async def set_properties(self, properties: Mapping[str, str], *, kept: Collection[str] = ()) -> None:
        """Replace the text properties but for ``kept``. Durable on return."""
        async with self.stored.lock():
            stay = {name: value for name, value in self.properties.items() if name in kept}
            await self.stored.put(self.ledgers.infos, properties={**properties, **stay})

    async def add_properties(self, properties: Mapping[str, str]) -> None:
        """Add text properties, or replace those of the same names. Durable on return."""
        async with self.stored.lock():
            await self.stored.put(self.ledgers.infos, properties={**self.properties, **properties})

    def set_retention(self, *, retention_ms: int, retention_bytes: int) -> None:
        """How long consumed ledgers stay: see ``core.trim``. Takes effect with the next trim."""
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes

    def on_end_known(self) -> None:
        """Opening: it is known where the last ledger ends."""
        self.drop_empty()
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

    @property
    def offloaded_bytes(self) -> int:
        """Payload bytes of the ledgers that are in the lake."""
        return sum(info.size_bytes for info in self.ledgers.infos if info.is_offloaded)

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
        return self._ledger_reads().read(info, first, last, bytes_max, done, handle=handle)

    def _ledger_reads(self) -> LedgerReads:
        """Of ledgers that are not open, made by the first read."""
        if self._reads is None:
            budget, entry_bytes_max = self._home.read_budget, self._home.entry_bytes_max
            failures, withheld = self.stored.failures, self.stored.withheld
            self._reads = LedgerReads(self._open_to_read, budget, entry_bytes_max, self.part, failures, withheld)
        return self._reads

    async def _open_to_read(self, info: LedgerInfo) -> Ledger:
        return await self._services.open_to_read(self.name, info, is_bookkeeper_first=self.is_bookkeeper_first)

    def forget_ledger(self, ledger_id: int) -> None:
        """It lies elsewhere now: the next read opens it anew."""
        self._forget(ledger_id)

    def new_offloading(
        self, rng: Rng, find_aborted: FindAborted | None = None, find_schema: FindSchema | None = None
    ) -> Offloading:
        """What takes its ledgers to the lake; who asks for it sees that there is one at a time."""
        from geminga.managed_ledger.offload.offloading import Offloading

        return Offloading(self, self._services, rng, find_aborted=find_aborted, find_schema=find_schema)

    async def look_up_creation(self) -> None:
        """Have the time when the last ledger was made: a list that was loaded does not say. Raises StorageError."""
        last = self.ledgers.last
        if last is not None and not last.opened_ms:
            stored = await (
                self._open_to_read(last) if last.offload_context else self._services.ledgers.read_ledger(last.ledger_id)
            )
            last.opened_ms = stored.metadata.created_ms or 0

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

    @property
    def cursors(self) -> dict[str, ManagedCursor]:
        """Durable cursors by name."""
        return self._cursors.durable

    @property
    def non_durable_cursors(self) -> Collection[ManagedCursor]:
        """Cursors in memory."""
        return self._cursors.non_durable

    async def bring_back_cursor(self, name: str, record: CursorInfoRecord, stat: Stat) -> None:
        """Opening: a durable cursor whose node has ``record``. Raises StorageError."""
        await self._cursors.bring_back(name, record, stat)

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
        return await self._cursors.open(name, initial, properties, cursor_properties)

    def new_non_durable_cursor(self, name: str, start: Position) -> ManagedCursor:
        """A cursor in memory whose first entry to read is ``start`` (EARLIEST and LATEST are understood)."""
        return self._cursors.new_non_durable(name, start)

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor; fine if there is none. Raises LedgerFencedError if another owner changed it."""
        if await self._cursors.delete(name):
            self.trim_later()

    def on_non_durable_closed(self, cursor: ManagedCursor) -> None:
        """A cursor in memory is gone."""
        self._cursors.forget_non_durable(cursor)

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
        self._end()
        appender = self._appender
        if appender is not None:
            appender.stop(LedgerClosedError(f"{self.name} is closed"))
            await appender.drain()
        for cursor in self._cursors.all():
            await (cursor.drop() if is_broken else cursor.close())
        self.tail.drop()
        async with self.stored.lock():
            if appender is not None and not self.is_fenced:
                await self._say_closed(appender)
        self._home.on_closed(self.name, self)

    def _end(self) -> None:
        self.is_closed = True
        if self._list_watch:
            self._list_watch.end()

    async def _say_closed(self, appender: Appender) -> None:
        """Left open, the ledger would be recovered by the next owner: slower, but as right."""
        try:
            handle = await appender.leave()
            if handle is not None:
                await handle.close()
                self.drop_empty()
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
        from geminga.managed_ledger.deletion import delete_nodes

        self._end()
        if self._appender is not None:
            self._appender.stop(LedgerClosedError(f"{self.name} is deleted"))
            await self._appender.drain()
        try:
            async with self.stored.lock():
                ledger_ids, noted = await delete_nodes(self, self._services, self._cursors.all())
        finally:
            self.cursors.clear()
            self.tail.drop()
            self._home.on_closed(self.name, self)
        if noted:
            from geminga.managed_ledger.offload import lake_files

            spawn(lake_files.carry_out(self._services, noted), name=f"delete-lake-files-{self.name}", part=self.part)
        return ledger_ids
