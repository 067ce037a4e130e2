"""Where a durable cursor's state lies: a cursor ledger and a metadata node (docs/formats/cursor.md).

One persist at a time; whatever comes meanwhile is merged into the next. Nobody waits: at most as often as the managed
ledger's mark-delete rate allows, through the factory's timers, or right behind what was under way then. Somebody waits
(``done``): on the loop's next turn, whatever the rate. The metadata node is written only when the cursor is created or
closed, its ledger switched or failed, its text properties change or its last use is to be noted. A cursor that never
acknowledged has neither ledger nor cost.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from geminga.managed_ledger.cursor.cursor_ledger import NO_REFS, CursorLedger, leave
from geminga.managed_ledger.cursor.cursor_node import CursorNode, NotedCursor
from geminga.managed_ledger.cursor.cursor_segments import CursorSegments, SegmentedCursor
from geminga.managed_ledger.rules.cursor_format import Recovered, Refs, WritePlan, plan_write
from geminga.managed_ledger.rules.persistence import Persistence
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.entry import AckDone
from geminga.managed_ledger.shared.flush_timers import FlushTimers
from geminga.managed_ledger.shared.ports import Ledger, OpenLedger
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import LedgerClosedError, LedgerFencedError, StorageError
from geminga.model.position import Position
from geminga.runtime import Contained, crash_point, get_logger, spawn

#: Seconds that a cursor which is dropped waits for the write under way.
DROP_WAIT_S: Final = 5.0

_log = get_logger(__name__)


class SavedCursor(NotedCursor, SegmentedCursor, Protocol):
    """A cursor, as far as it concerns this."""

    is_closed: bool


class CursorPlace(Protocol):
    """The managed ledger that a cursor is of."""

    name: str

    @property
    def persistence(self) -> Persistence:
        """Quorums of its new ledgers, and how often a cursor is written."""
        ...


class CursorStore:
    """See the module."""

    __slots__ = (
        "_busy",
        "_cursor",
        "_flushes",
        "_idle",
        "_is_deleted",
        "_is_dirty",
        "_is_due",
        "_is_flush_coming",
        "_ledger",
        "_node",
        "_place",
        "_segments",
        "_services",
        "_waiters",
        "failed_saves",
        "last_marker",
        "last_marker_ms",
        "last_switch_ms",
        "persisted_mark_delete",
        "read_bytes",
        "saves",
        "written_bytes",
    )

    def __init__(
        self,
        cursor: SavedCursor,
        place: CursorPlace,
        node: CursorNode,
        services: StorageServices,
        flushes: FlushTimers,
    ) -> None:
        self._cursor = cursor
        self._place = place
        self._node = node
        self._services = services
        self._flushes = flushes
        #: The cursor ledgers that this process writes; None until there was one.
        self._ledger: CursorLedger | None = None
        #: Where the parts of a larger state lie; None until there was one.
        self._segments: CursorSegments | None = None
        #: Something changed since the last persist began.
        self._is_dirty = False
        #: The timer will come.
        self._is_flush_coming = False
        #: The timer came while something was under way: persist when that is done.
        self._is_due = False
        #: Who waits for what changed since then.
        self._waiters: list[AckDone] | None = None
        #: A persist, a node write or a close is under way (or about to start on the loop's next turn).
        self._busy = False
        self._idle: list[asyncio.Future[None]] | None = None
        #: The node is gone: nothing is written any more.
        self._is_deleted = False
        #: Since it was opened: saves that are durable and that failed, and bytes of the former.
        self.saves = self.failed_saves = self.written_bytes = 0
        #: Of the cursor ledger that it was brought back from.
        self.read_bytes = 0
        #: The newest durable marker, and when it became that (ms since the epoch); None if the node has the state.
        self.last_marker: Position | None = None
        self.last_marker_ms = 0
        #: When the cursor ledger was last switched, ms since the epoch; 0: not by this process.
        self.last_switch_ms = 0
        #: What a restart would find.
        self.persisted_mark_delete = cursor.state.mark_delete

    @property
    def node_saves(self) -> tuple[int, int]:
        """Writes of the node since it was opened: durable ones, and those that failed."""
        return self._node.saves, self._node.failed_saves

    def recovered(self, source: Ledger, found: Recovered, read_bytes: int) -> None:
        """The state was found in this ledger, with its parts there; ``read_bytes`` of it were read for that."""
        self.read_bytes = read_bytes
        self.last_marker = Position(source.ledger_id, found.marker_entry_id)
        if found.refs:
            self._make_segments().written(source, found.refs)
            self._cursor.on_memory_changed()

    @property
    def segments(self) -> CursorSegments | None:
        """Where the parts of the state lie; None if it never needed any."""
        return self._segments

    @property
    def created_ms(self) -> int:
        """When the cursor was made, ms since the epoch."""
        return self._node.created_ms

    @property
    def noted_active_ms(self) -> int:
        """When the cursor was last in use, as the node has it; ms since the epoch, 0: it does not say."""
        return self._node.noted_active_ms

    @property
    def appended_entries(self) -> int:
        """Entries of the cursor ledger, its segments and markers, that this process wrote."""
        return self._ledger.appended if self._ledger is not None else 0

    @property
    def saved_bytes(self) -> int:
        """Bytes of the newest save: its marker and the segments that went with it; 0: none by this process."""
        return self._ledger.saved_bytes if self._ledger is not None else 0

    @property
    def ledger_id(self) -> int:
        """The cursor ledger the node names; -1 for none."""
        return self._node.ledger_id

    def put_away(self, wanted_bytes: int) -> int:
        """Make room by putting ledgers away that are on disk; returns how much. Nothing while a write is under way."""
        if self._segments is None or self._busy or self._is_deleted:
            return 0
        return self._segments.put_away(wanted_bytes)

    # ---- when

    def changed(self, is_dirty: bool, done: AckDone | None) -> None:
        """The state changed (or a caller wants to know that it is durable)."""
        if self._is_deleted:
            if done is not None:
                done(self._deleted_error())
            return
        if is_dirty:
            self._is_dirty = True
        if done is None:
            if not self._is_flush_coming:
                self._flush_later()
            return
        if not self._is_dirty and not self._busy:
            done(None)
            return
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(done)
        if not self._busy:
            # On the next turn: acknowledgments of this turn share one write.
            self._busy = True
            asyncio.get_running_loop().call_soon(self._persist)

    def _flush_later(self, *, is_retry: bool = False) -> None:
        self._is_flush_coming = True
        interval_s = self._place.persistence.flush_interval_s(self._services.config.cursor_flush_seconds)
        self._flushes.flush_later(self, interval_s, is_retry=is_retry)

    def start_flush(self) -> None:
        """The timer: persist if anything changed, after what is under way."""
        self._is_flush_coming = False
        if not self._is_dirty or self._cursor.is_closed or self._is_deleted:
            return
        if self._busy:
            self._is_due = True
        else:
            self._busy = True
            self._persist()

    def _persist(self) -> None:
        """Write the state as it is now; ``_busy`` is set."""
        with Contained(self._cursor.part, "saving a cursor"):
            self._persist_now()

    def _persist_now(self) -> None:
        waiters, self._waiters = self._waiters or [], None
        self._is_due = False
        if not self._is_dirty:
            self._completed(waiters, None)
            return
        ledger = self._ledger
        handle = ledger.writable if ledger is not None else None
        if ledger is None or handle is None:
            spawn(self._switch(waiters), name=f"switch-cursor-ledger-{self._place.name}", part=self._cursor.part)
            return
        self._append(ledger, handle, waiters)

    def _completed(self, waiters: list[AckDone], error: StorageError | None) -> None:
        """A persist ended; start the next if anybody waits, or the time for it came meanwhile."""
        self._busy = False
        if error is not None:
            self.failed_saves += 1
            self._is_dirty, self._is_due = True, False
        else:
            self.saves += 1
            self.written_bytes += self.saved_bytes
        for done in waiters:
            done(error)
        if self._busy:
            return
        if self._waiters or (self._is_due and self._is_dirty and not self._cursor.is_closed):
            self._busy = True
            asyncio.get_running_loop().call_soon(self._persist)
            return
        if self._is_dirty and not self._cursor.is_closed:
            self._flush_later(is_retry=error is not None)
        idle, self._idle = self._idle, None
        for future in idle or ():
            if not future.done():
                future.set_result(None)

    async def _acquire(self) -> None:
        """Wait until nothing is under way, then be what is under way."""
        while self._busy:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._idle is None:
                self._idle = []
            self._idle.append(future)
            await future
        if self._is_deleted:
            raise self._deleted_error()
        self._busy = True

    # ---- cursor ledger

    def _append(self, ledger: CursorLedger, handle: OpenLedger, waiters: list[AckDone]) -> None:
        """Segments, then the marker; complete when the marker is durable."""
        segments = self._segments
        plan = self._take_plan(segments.refs if segments is not None and segments.source is handle else NO_REFS)
        first = ledger.append_segments(handle, plan)
        refs = plan.refs(first)

        def marked(entry_id: int, _count: int, error: StorageError | None) -> None:
            # The bookies tell: what fails here is not their failure.
            with Contained(self._cursor.part, "saving a cursor"):
                finish(entry_id, error)

        def finish(entry_id: int, error: StorageError | None) -> None:
            if error is None:
                crash_point(points.CURSOR_MARKER_DURABLE)
                self._written(handle, plan, refs, entry_id)
                self._completed(waiters, None)
            else:
                spawn(
                    self._recover_from(error, waiters),
                    name=f"cursor-write-failed-{self._place.name}",
                    part=self._cursor.part,
                )

        ledger.append_marker(handle, plan, refs, marked)

    def _take_plan(self, refs: Refs, *, is_new_ledger: bool = False) -> WritePlan:
        """What to write of the state as it is now. In a new ledger only what is put away is taken from ``refs``."""
        state = self._cursor.state
        if is_new_ledger:
            away = state.acked.away or {}
            refs = {part: ids for part, ids in refs.items() if part[0] in away}
        plan = plan_write(state, refs, self._services.choose_fields)
        state.clean()
        self._is_dirty = False
        return plan

    def _written(self, handle: OpenLedger, plan: WritePlan, refs: Refs, marker_entry_id: int) -> None:
        """The marker is durable."""
        self.last_marker = Position(handle.ledger_id, marker_entry_id)
        self.last_marker_ms = self._services.clock.wall_ms()
        self.persisted_mark_delete = plan.mark_delete
        if refs or self._segments is not None:
            self._make_segments().written(handle, refs, {ledger_id for (ledger_id, _), _ in plan.pieces})
            self._cursor.on_memory_changed()

    def _make_segments(self) -> CursorSegments:
        if self._segments is None:
            self._segments = CursorSegments(self._cursor)
        return self._segments

    def _write_failed(self) -> None:
        """Whatever the last plan cleaned is not known to be on disk."""
        leave(self._ledger)
        self._is_dirty = True
        if self._segments is not None:
            self._segments.forget_loaded()
            self._cursor.on_memory_changed()

    async def _recover_from(self, error: StorageError, waiters: list[AckDone]) -> None:
        """A write to the cursor ledger failed: its last complete state counts until a better one is stored."""
        _log.warning("%s/%s: a write to the cursor ledger failed: %s", self._place.name, self._cursor.name, error)
        self._write_failed()
        if await self._write_state_to_node():
            self._completed(waiters, None)
        else:
            await self._switch(waiters)

    async def _switch(self, waiters: list[AckDone]) -> None:
        """Copy the whole state to a new cursor ledger, name that in the node, delete the old one."""
        error: StorageError | None = None
        try:
            await self._open_ledger()
        except StorageError as failure:
            error = failure
            _log.warning("%s/%s: no new cursor ledger: %s", self._place.name, self._cursor.name, failure)
            if not isinstance(failure, LedgerFencedError) and await self._write_state_to_node():
                error = None
        self._completed(waiters, error)

    async def _open_ledger(self) -> None:
        """Another cursor ledger, with the whole state and named by the node. Raises StorageError.

        Where that fails, or is called off, the one before is left, too: the node may name the other by now.
        """
        is_named = False
        try:
            await self._begin_ledger()
            is_named = True
        finally:
            if not is_named:
                self._write_failed()

    async def _begin_ledger(self) -> None:
        name = self._cursor.name
        handle = await self._services.create_ledger(self._place.name, self._place.persistence, cursor_name=name)
        crash_point(points.CURSOR_LEDGER_CREATED)
        ledger = self._ledger
        if ledger is None:
            ledger = self._ledger = CursorLedger(self._services)
        ledger.begin()
        # The whole state as it is now: what comes while it is written makes it dirty again.
        segments = self._segments
        plan = self._take_plan(segments.refs if segments is not None else NO_REFS, is_new_ledger=True)
        try:
            refs = await ledger.write_whole(handle, plan, segments)
        except StorageError as failure:
            # Tried again every second: what is left behind would add up.
            await self._delete_ledger(handle.ledger_id)
            raise failure
        crash_point(points.CURSOR_LEDGER_WRITTEN)
        try:
            await self._node.write_ledger(handle.ledger_id)
        except StorageError as failure:
            if not self._node.is_in_doubt:
                await self._delete_ledger(handle.ledger_id)
            raise failure
        crash_point(points.CURSOR_LEDGER_NAMED)
        old, self._node.ledger_id = self._node.ledger_id, handle.ledger_id
        ledger.handle = handle
        self.last_switch_ms = self._services.clock.wall_ms()
        # Nothing was appended behind the marker: this is what is under way.
        self._written(handle, plan, refs, handle.last_add_confirmed)
        await self._delete_ledger(old)

    # ---- metadata node

    async def create_node(self) -> None:
        """The first value of a new cursor's node."""
        await self._node.create()

    async def write_node(self) -> None:
        """Rewrite the node for new text properties, or for the time of last use."""
        await self._acquire()
        try:
            await self._rewrite_node()
        finally:
            self._completed([], None)

    def note_use_soon(self) -> None:
        """The cursor is in use, or was until now: in the background the node says so, unless it nearly does.

        A broker that is killed forgets what is not there: a subscription used seconds before would pass for one that
        nobody used since its cursor was last written.
        """
        if not self._node.is_noting and self._node.is_use_due:
            self._node.is_noting = True
            spawn(self._note_use(), name=f"note use of {self._cursor.name}", part=self._cursor.part)

    async def _note_use(self) -> None:
        try:
            await self.write_node()
        except StorageError as error:
            if not isinstance(error, LedgerClosedError):  # its end notes it, or it is deleted
                _log.warning("%s/%s: its use could not be noted: %s", self._place.name, self._cursor.name, error)
        finally:
            self._node.is_noting = False

    async def _rewrite_node(self) -> None:
        """The node as it is now; a state that lies there stays whole."""
        if self.ledger_id >= 0:
            await self._node.write_ledger(self.ledger_id)
        elif (record := self._node.state_record()) is not None:
            await self._node.write_state(record)
        else:
            await self._open_ledger()

    async def _write_state_to_node(self) -> bool:
        """Store the whole state in the node if it fits; False if it does not, or the store refuses."""
        record = self._node.state_record()
        if record is None:
            return False
        # Acknowledgments that come while this is written make it dirty again; the parts stay to be rewritten.
        self._is_dirty = False
        # Also without an answer: then the node may not name it any more.
        leave(self._ledger)
        is_written = False
        try:
            await self._node.write_state(record)
            is_written = True
        except StorageError as error:
            _log.warning("%s/%s: the cursor's node was not written: %s", self._place.name, self._cursor.name, error)
            return False
        finally:
            self._is_dirty |= not is_written
        crash_point(points.CURSOR_STATE_IN_NODE)
        old, self._node.ledger_id = self._node.ledger_id, -1
        self.last_marker, self.persisted_mark_delete = None, record.mark_delete
        if self._segments is not None:
            self._segments.forget_loaded()
            self._cursor.on_memory_changed()
        await self._delete_ledger(old)
        return True

    # ---- end

    async def close(self) -> None:
        """Persist: into the node if the state fits there, else into the ledger. Neither changed nor used: nothing.

        Apache's brokers read no batches from a node: where there are any, the ledger is tried first.
        """
        try:
            await self._acquire()
        except LedgerClosedError:
            return  # deleted meanwhile
        waiters, self._waiters = self._waiters or [], None
        error: StorageError | None = None
        are_batches_read = self._services.choose_fields is not None and self._cursor.state.batches.count > 0
        if are_batches_read and (self._is_dirty or self._has_ledger or self.ledger_id < 0):
            error = await self._close_ledger()
            if error is not None:
                self._write_failed()  # it may be that it was not closed
                if await self._write_state_to_node():
                    error = None
        elif self._is_dirty or self._has_ledger:
            if not await self._write_state_to_node():
                error = await self._close_ledger()
        elif self._node.is_use_due:
            try:
                await self._rewrite_node()
            except StorageError as failure:
                error = failure
        if error is not None:
            _log.warning("%s/%s: not persisted at close: %s", self._place.name, self._cursor.name, error)
        self._completed(waiters, error)

    @property
    def _has_ledger(self) -> bool:
        return self._ledger is not None and self._ledger.handle is not None

    async def _close_ledger(self) -> StorageError | None:
        try:
            if self._is_dirty or not self._has_ledger:
                await self._open_ledger()
            handle = leave(self._ledger)
            if handle is not None:
                await handle.close()
        except StorageError as error:
            return error
        return None

    async def drop(self) -> None:
        """The state in memory is not to be trusted: nothing more is written than what is under way; who waits is told.

        Returns when that has ended, so that it does not get in the way of who opens the cursor next.
        """
        self._is_deleted = True
        self._is_dirty = self._is_due = False
        waiters, self._waiters = self._waiters or [], None
        error = LedgerClosedError(f"cursor {self._cursor.name} is closed")
        for done in waiters:
            done(error)
        try:
            async with asyncio.timeout(DROP_WAIT_S):
                while self._busy:
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._idle = [*(self._idle or ()), future]
                    await future
        except TimeoutError:
            # What broke may have been the write itself, which then never says that it ended.
            _log.warning("%s/%s: a write of the cursor has no end", self._place.name, self._cursor.name)

    async def delete_node(self) -> None:
        """The cursor is deleted: its node goes, whoever waits is told."""
        await self._acquire()
        try:
            await self._node.remove()
        except StorageError as failure:
            self._completed([], None)
            raise failure
        self._is_deleted = True
        waiters, self._waiters = self._waiters or [], None
        self._is_dirty = False
        for done in waiters:
            done(self._deleted_error())
        self._completed([], None)

    def _deleted_error(self) -> LedgerClosedError:
        return LedgerClosedError(f"cursor {self._cursor.name} is deleted")

    async def delete_ledgers(self) -> None:
        """After :meth:`delete_node`: the ledger goes too."""
        leave(self._ledger)
        await self._delete_ledger(self.ledger_id)

    async def _delete_ledger(self, ledger_id: int) -> None:
        if ledger_id < 0:
            return
        try:
            await self._services.ledgers.delete_ledger(ledger_id)
        except StorageError as error:
            _log.warning("%s: cursor ledger %d was not deleted: %s", self._place.name, ledger_id, error)
