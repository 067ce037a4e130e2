"""The endless log of one topic: a list of ledgers, its cursors, its entries.

Owned by one broker at a time; every change of the ledger list is one compare-and-set (``metadata_io``), and memory
follows only when it succeeded. Nothing past ``last_confirmed_position`` can be read. An idle one has no open ledger,
no task and no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from geminga.managed_ledger.cursor.cursor_set import CursorSet
from geminga.managed_ledger.cursor.managed_cursor import ManagedCursor
from geminga.managed_ledger.log.appender import Appender
from geminga.managed_ledger.log.ledger_end import close_quietly
from geminga.managed_ledger.log.new_ledgers import NewLedgers
from geminga.managed_ledger.log.reader import LogReader
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.log.tail import Tail
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.rules.persistence import Persistence, StoredAs
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.entry import AppendDone
from geminga.managed_ledger.shared.metadata_io import MetadataNode, ledger_path
from geminga.managed_ledger.shared.services import LedgerHome, StorageServices
from geminga.managed_ledger.trimming import Trimmer
from geminga.model.errors import (
    GemingaError,
    LedgerClosedError,
    LedgerFencedError,
    StorageError,
    TopicTerminatedError,
)
from geminga.model.position import LATEST, Position
from geminga.runtime import Rng, crash_point, get_logger, spawn
from geminga.wire.managed_ledger import ManagedLedgerRecord

if TYPE_CHECKING:
    from geminga.managed_ledger.log.attached import AttachedLedgers
    from geminga.managed_ledger.log.list_watch import ListWatch
    from geminga.managed_ledger.offload.offloading import FindAborted, FindSchema, Offloading

_NO_LONGS: Final[Mapping[str, int]] = {}
_NO_TEXTS: Final[Mapping[str, str]] = {}
_log = get_logger(__name__)


class ManagedLedger:
    """See the module. Made by ``ManagedLedgerFactory.open``."""

    __slots__ = (
        "_appender",
        "_home",
        "_list_watch",
        "_services",
        "cursor_set",
        "extent",
        "ledgers",
        "name",
        "reader",
        "stored",
        "stored_as",
        "tail",
        "tenure",
        "trimmer",
    )

    def __init__(
        self,
        services: StorageServices,
        home: LedgerHome,
        name: str,
        node: MetadataNode,
        record: ManagedLedgerRecord,
        list_type: type[StoredList] = StoredList,
    ) -> None:
        self._services = services
        self._home = home
        self.name = name
        #: Whether it is ours still, and who is told if it is not.
        self.tenure = Tenure(name)
        #: The ledger list and its node.
        self.stored = list_type(
            name,
            node,
            record,
            metadata=services.metadata,
            ledgers=services.ledgers,
            fenced=self.on_fenced,
            forget=self._forget,
        )
        self.ledgers = self.stored.ledgers
        #: What is stored, and how much of that may be read.
        self.extent = self.stored.extent
        #: Its cursors, durable and in memory.
        self.cursor_set = CursorSet(self, services, home.cursor_services)
        #: Quorums of new ledgers, and how often cursors are written.
        self.stored_as = StoredAs(services.persistence)
        #: Recently appended entries, while anybody reads, and who is told of them.
        self.tail = Tail(home.cursor_services.cache, home.cache_entries)
        #: Reads of ledgers, and of the log without a cursor.
        self.reader = LogReader(self.tenure, self.stored, self.tail, services, home)
        #: What may be deleted.
        self.trimmer = Trimmer(self, self.tenure, self.stored, self.cursors, services)
        self._appender: Appender | None = None
        self._list_watch: ListWatch | None = None

    @property
    def is_shadow(self) -> bool:
        """Whether its ledgers are those of another log, which alone changes them (:mod:`.shadow`)."""
        return False

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
        if self.stored.terminated_position is not None:
            return TopicTerminatedError("Topic was already terminated")
        return self.tenure.refusal()

    def watch_list(self, *, is_watched: bool = True) -> None:
        """Hear of it when another owner claims the list, also where nothing is written here (:mod:`.list_watch`)."""
        from geminga.managed_ledger.log.list_watch import ListWatch

        self._list_watch = ListWatch(
            self.tenure, self.stored.check, self._services.metadata, ledger_path(self.name), is_watched=is_watched
        )

    async def open_ledger(self) -> None:
        """Have a ledger that takes entries, as the next append would; there is none if it can not be made now."""
        await (self._appender or self._new_appender()).open()

    @property
    def appender(self) -> Appender | None:
        """The append path; None before the first append since it was opened."""
        return self._appender

    def on_confirmed(self, ledger_id: int, first_entry_id: int, entries: Sequence[bytes], size_bytes: int) -> None:
        """Entries of the open ledger became readable."""
        is_readable = self.extent.confirmed(Position(ledger_id, first_entry_id + len(entries) - 1))
        # Who waits for a slow sync sends nothing meanwhile, and publishes all the same.
        self._home.cursor_services.catch_up.published()
        self.tail.confirmed(ledger_id, first_entry_id, entries, size_bytes)
        if is_readable:
            self.tail.tell_later(self.tenure.part)

    def set_read_limit(self, position: Position) -> None:
        """Readers stop at ``position``, whatever is stored behind it; LATEST, as at first: they do not.

        Cursors, their backlog and what they acknowledge, reads without a cursor and trimming take the log as if it
        ended there. Who listens at the tail is told when it moves on. It may be set back: what readers were given of
        what lies behind it stays given.
        """
        if self.extent.limit(position):
            for cursor in self.cursor_set.all():
                cursor.on_more_readable()
            self.tail.tell_later(self.tenure.part)

    def on_recovered(self, info: LedgerInfo) -> None:
        """Recovery found where a ledger ends; it may have more entries than were confirmed to us."""
        self.extent.recovered()
        if info.entries:
            self.tail.tell_later(self.tenure.part)

    def on_fenced(self, error: LedgerFencedError) -> None:
        """Another owner took over."""
        if self.tenure.lose(error):
            if self._appender is not None:
                self._appender.stop(error)
            self.tenure.tell_lost()

    # ---- the ledger list

    @property
    def newest_ledger_id(self) -> int:
        """No ledger of this list, and no position of a cursor, has a greater ledger id."""
        last = self.ledgers.last
        known = [c.mark_delete_position.ledger_id for c in self.cursors.values()]
        return max(-1 if last is None else last.ledger_id, self.extent.last_confirmed_position.ledger_id, *known)

    def _forget(self, ledger_id: int) -> None:
        self.reader.forget(ledger_id)

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
            self.stored.drop_empty()
            await self.stored.put(self.ledgers.infos)
            crash_point(points.ROLL_LISTED)
            await close_quietly(handle)

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        self.ledgers.remove(ledger_ids)
        self.extent.listed()
        for cursor in self.cursor_set.all():
            cursor.on_trimmed()

    async def terminate(self) -> Position:
        """End the log: nothing can be appended any more. Returns the last position."""
        if self.stored.terminated_position is not None:
            return self.stored.terminated_position
        appender = self._appender if self._appender is not None else self._new_appender()
        try:
            async with self.stored.lock():
                handle = await appender.detach()
                self.stored.drop_empty()
                position = self.ledgers.last_position
                await self.stored.put(self.ledgers.infos, terminated=position)
                appender.stop(TopicTerminatedError("Topic was already terminated"))
        finally:
            appender.resume()
        if handle is not None:
            await close_quietly(handle)
        return position

    def new_offloading(
        self, rng: Rng, find_aborted: FindAborted | None = None, find_schema: FindSchema | None = None
    ) -> Offloading:
        """What takes its ledgers to the lake; who asks for it sees that there is one at a time."""
        from geminga.managed_ledger.offload.offloading import Offloading

        return Offloading(self, self._services, rng, find_aborted=find_aborted, find_schema=find_schema)

    def attached(self) -> AttachedLedgers:
        """Ledgers that belong to it beside its list."""
        from geminga.managed_ledger.log.attached import AttachedLedgers

        return AttachedLedgers(self.stored, self._services)

    # ---- cursors

    @property
    def cursors(self) -> dict[str, ManagedCursor]:
        """Durable cursors by name."""
        return self.cursor_set.durable

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position = LATEST,
        properties: Mapping[str, int] = _NO_LONGS,
        cursor_properties: Mapping[str, str] = _NO_TEXTS,
        check: Callable[[], None] | None = None,
    ) -> ManagedCursor:
        """The durable cursor of that name; a new one starts at ``initial``: EARLIEST, LATEST (behind what is readable).

        Names are path elements: a subscription's name comes encoded. Cursors are made one after the other: ``check`` is
        called when it is this one's turn, and when it was written; a NotAllowedError keeps it from being made.
        """
        return await self.cursor_set.open(name, initial, properties, cursor_properties, check)

    def new_non_durable_cursor(self, name: str, start: Position) -> ManagedCursor:
        """A cursor in memory whose first entry to read is ``start`` (EARLIEST and LATEST are understood)."""
        return self.cursor_set.new_non_durable(name, start)

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor; fine if there is none. Raises LedgerFencedError if another owner changed it."""
        if await self.cursor_set.delete(name):
            self.trimmer.trim_later()

    # ---- end

    def roll_if_full(self) -> None:
        """The factory's timer: a ledger may be full by its age."""
        if self._appender is not None:
            self._appender.roll_if_full()

    async def close(self, *, is_broken: bool = False) -> None:
        """Finish what is pending, persist the cursors, close the open ledger. Closing twice is fine.

        ``is_broken``: what the cursors have in memory is not to be trusted; opened anew they stand where they were
        last saved, which has every acknowledgment that was answered.
        """
        if self.tenure.is_closed:
            return
        self._end()
        appender = self._appender
        try:
            if appender is not None:
                appender.stop(LedgerClosedError(f"{self.name} is closed"))
                await appender.drain()
            for cursor in self.cursor_set.all():
                await (cursor.drop() if is_broken else cursor.close())
            self.tail.drop()
            async with self.stored.lock():
                if appender is not None and not self.tenure.is_fenced:
                    await self._say_closed(appender)
        finally:
            # Also where it is cut off: whoever opens it next recovers it, and must not get this one.
            self._home.on_closed(self.name, self)

    def _end(self) -> None:
        self.tenure.is_closed = True
        if self._list_watch:
            self._list_watch.end()

    async def _say_closed(self, appender: Appender) -> None:
        """Left open, the ledger would be recovered by the next owner: slower, but as right."""
        try:
            handle = await appender.leave()
            if handle is not None:
                await handle.close()
                self.stored.drop_empty()
            if handle is not None or self.stored.is_in_doubt:
                # In doubt it may name a ledger of entries that failed, which whoever opens it would find.
                await self.stored.put(self.ledgers.infos)
        except StorageError as error:
            _log.warning("%s: the list was not closed: %s", self.name, error)

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
                cursors = self.cursor_set
                ledger_ids, noted = await delete_nodes(self, self._services, cursors.all(), cursors.unanswered.values())
        finally:
            self.cursors.clear()
            self.tail.drop()
            self._home.on_closed(self.name, self)
        if noted:
            from geminga.managed_ledger.offload import lake_files

            spawn(
                lake_files.carry_out(self._services, noted),
                name=f"delete-lake-files-{self.name}",
                part=self.tenure.part,
            )
        return ledger_ids
