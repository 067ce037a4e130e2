"""A cursor: where one subscription stands in a managed ledger.

Decisions are those of ``rules.cursor``; a durable cursor's state goes to disk through ``cursor_store``; its reads
are those of ``reading``. Acknowledgments take effect in memory at once; ``done`` says when they are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from geminga.managed_ledger.cursor.cursor_operations import CursorOperations, LoadDone, Refuse
from geminga.managed_ledger.cursor.cursor_reads import ReadLog
from geminga.managed_ledger.cursor.cursor_store import CursorStore
from geminga.managed_ledger.cursor.cursor_use import CursorUse
from geminga.managed_ledger.cursor.reading import Reading
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.rules.cursor import CHANGED, CROSSED, MOVED, NOTHING, CursorState, kept_along
from geminga.managed_ledger.rules.extent import Extent
from geminga.managed_ledger.shared.entry import AckDone, Entry
from geminga.managed_ledger.shared.services import CursorServices, TrimsLater
from geminga.model.errors import LedgerClosedError, StorageError
from geminga.model.position import LATEST, Position
from geminga.runtime import Contained, Part, answer_of
from geminga.runtime.ports import Clock

_NO_PROPERTIES: Final[Mapping[str, str]] = {}


class CursorHome(Protocol):
    """Who made it."""

    def forget_non_durable(self, cursor: ManagedCursor) -> None:
        """A cursor in memory is gone."""
        ...


class CursorLog(Protocol):
    """The managed ledger that a cursor is of."""

    name: str
    tenure: Tenure
    extent: Extent
    reader: ReadLog

    @property
    def trimmer(self) -> TrimsLater:
        """What deletes ledgers."""
        ...

    @property
    def cursor_set(self) -> CursorHome:
        """Who made it."""
        ...


class ManagedCursor:
    """See the module. Made by ``ManagedLedger.open_cursor`` and ``new_non_durable_cursor``."""

    __slots__ = (
        "_extent",
        "_log",
        "_operations",
        "_services",
        "cursor_properties",
        "is_closed",
        "name",
        "reading",
        "state",
        "store",
        "use",
    )

    def __init__(
        self,
        log: CursorLog,
        name: str,
        state: CursorState,
        services: CursorServices,
        clock: Clock,
        cursor_properties: Mapping[str, str] = _NO_PROPERTIES,
        *,
        last_active_ms: int = 0,
    ) -> None:
        """``last_active_ms``: what is recorded of a cursor that was there before; 0: it starts to count now.

        A durable one gets its :attr:`store` next.
        """
        self.name = name
        self.state = state
        #: None: not durable.
        self.store: CursorStore | None = None
        #: Text properties of the subscription.
        self.cursor_properties = cursor_properties
        self.is_closed = False
        #: When it was last used, and when it last moved.
        self.use = CursorUse(clock, last_active_ms)
        self._log = log
        self._extent = log.extent
        self._services = services
        #: Where it reads, and whether it does.
        self.reading = Reading(self, log.reader, services)
        #: What waits for state that is put away; None until something did.
        self._operations: CursorOperations | None = None

    # ---- use

    @property
    def noted_active_ms(self) -> int:
        """What a restart would find of when it was last in use, ms since the epoch."""
        return self.store.noted_active_ms if self.store is not None else 0

    def start_use(self) -> None:
        """Somebody consumes through it."""
        self.use.begin()
        if self.store is not None:
            self.store.note_use_soon()

    def end_use(self) -> None:
        """Nobody does any more."""
        self.use.end()
        if self.store is not None:
            self.store.note_use_soon()

    async def note_use(self) -> None:
        """Make durable now when it was last in use. Raises StorageError."""
        if self.store is not None:
            await self.store.write_node()

    # ---- state

    @property
    def part(self) -> Part | None:
        """What is closed if its state breaks."""
        return self._log.tenure.part

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
        return self.state.backlog(self._extent.readable, is_cut=self._extent.is_limited)

    # ---- state that is not in memory

    @property
    def is_in_memory(self) -> bool:
        """Whether all state is, and no operation waits: each call takes effect at once."""
        return self.state.acked.away is None and (self._operations is None or self._operations.is_idle)

    @property
    def is_idle(self) -> bool:
        """Whether no operation waits."""
        return self._operations is None or self._operations.is_idle

    def when_loaded(self, ledger_ids: Collection[int], action: Callable[[], None], refuse: Refuse) -> None:
        """Call ``action`` with the acknowledgments of these ledgers in memory, mostly within this call.

        ``refuse`` is called instead if the cursor is closed first.
        """
        if self.is_in_memory:
            action()
            return
        if self._operations is None:
            self._operations = CursorOperations(self)
        self._operations.run(ledger_ids, action, refuse)

    async def unacknowledged(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of ``entries`` that are not acknowledged."""
        future: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()

        def select() -> None:
            if not future.done():
                future.set_result([entry for entry in entries if not self.state.is_acknowledged(entry.position)])

        def refuse(error: StorageError) -> None:
            if not future.done():
                future.set_exception(error)

        self.when_loaded({entry.ledger_id for entry in entries}, select, refuse)
        return await future

    def ledgers_around(self, position: Position) -> set[int]:
        """Ledgers that a cumulative acknowledgment up to ``position`` asks for entries of."""
        ledgers = self._extent.readable
        before = ledgers.previous_position(position)
        return {position.ledger_id, before.ledger_id, ledgers.previous_position(before).ledger_id}

    def pinned_ledgers(self) -> set[int]:
        """Ledgers whose state stays in memory now: that of a read under way and of the next operation."""
        pinned = set(self._operations.pinned_ledgers) if self._operations is not None else set()
        if self.reading.is_busy:
            pinned.add(self.state.read_position.ledger_id)
        return pinned

    def load_ledger(self, ledger_id: int, done: LoadDone) -> None:
        """Bring back what is kept of a ledger."""
        segments = self.store.segments if self.store is not None else None
        if segments is None:
            done(LedgerClosedError(f"cursor {self.name} is deleted"))
        else:
            segments.load(ledger_id, done)

    def make_room(self, done: Callable[[], None]) -> None:
        """Before a ledger is brought back: keep to the memory limit, if need be by writing what changed."""
        memory = self._services.memory
        if memory.make_room() or self.store is None or not self.state.dirty_parts:
            done()
            return

        def written(_error: StorageError | None) -> None:
            memory.make_room()
            done()

        self.store.changed(False, written)

    def put_away(self, wanted_bytes: int) -> int:
        """Make room in memory; returns how much."""
        freed = 0
        # The memory of all cursors asks: what fails here is one topic's.
        with Contained(self._log.tenure.part, "putting away the state of a cursor"):
            freed = self.store.put_away(wanted_bytes) if self.store is not None else 0
            if freed:
                self.on_memory_changed()
        return freed

    def on_memory_changed(self) -> None:
        """The memory of the state is to be counted anew."""
        segments = self.store.segments if self.store is not None and not self.is_closed else None
        self._services.memory.changed(self, segments.memory_bytes if segments is not None else 0)

    def on_trimmed(self) -> None:
        """Ledgers left the list."""
        self.state.forget_missing(self._extent.ledgers)
        self.advance_if_wanted()

    def on_more_readable(self) -> None:
        """The read limit moved on: what it was set back over may be acknowledged already."""
        if self.state.acked.count:
            self._advance()

    def advance_if_wanted(self) -> None:
        """Mark-delete stands before a ledger that is put away and whose first entry is acknowledged: move on."""
        wanted, self.state.wanted = self.state.wanted, None
        if wanted is not None:
            self.when_loaded((wanted,), self._advance, _ignore)

    def _advance(self) -> None:
        self._changed(self.state.advance(self._extent.readable), None)

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
        state = self.state
        if state.acked.away is None and self._operations is None:
            self._changed(state.acknowledge(positions, ack_sets, self._extent.readable), done)
            return
        self._when_loaded(
            {position.ledger_id for position in positions},
            lambda: state.acknowledge(positions, ack_sets, self._extent.readable),
            done,
        )

    def acknowledge_cumulative(
        self,
        position: Position,
        ack_set: Sequence[int] | None = None,
        done: AckDone | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """Acknowledge everything up to ``position``; ``properties`` replace those saved with the position, unless it is
        behind ``position`` already."""
        if self.state.acked.away is None and self._operations is None:
            self._changed(self._cumulate(position, ack_set, properties), done)
            return
        self._when_loaded(self.ledgers_around(position), lambda: self._cumulate(position, ack_set, properties), done)

    def _cumulate(self, position: Position, ack_set: Sequence[int] | None, properties: Mapping[str, int] | None) -> int:
        state = self.state
        is_behind = position < state.mark_delete
        flags = state.acknowledge_cumulative(position, ack_set, self._extent.readable)
        if properties is not None and not is_behind:
            properties = kept_along(properties, state.properties)
            if properties != state.properties:
                state.properties = dict(properties)
                flags |= CHANGED
        return flags

    async def reset(self, position: Position) -> None:
        """Seek: ``position`` (EARLIEST and LATEST too) is delivered next, all holes are gone. Durable on return."""
        self.reading.jumped()
        self.use.note()
        if self._operations is not None:
            # What waited was acknowledged before, and is forgotten with everything else.
            self._operations.refuse_all(LedgerClosedError(f"cursor {self.name} was reset"))
        await self._durably(lambda: self.state.reset(position, self._extent.readable))
        self.reading.went_back()

    async def skip(self, count: int) -> None:
        """Acknowledge the oldest ``count`` entries. Durable on return, in memory also with an error of the disk."""
        state, ledgers = self.state, self._extent.readable
        needed: set[int] = set()

        def begin(done: AckDone) -> None:
            def change() -> None:
                if self.is_closed:
                    self._changed(NOTHING, done)
                    return
                target = state.skipping(count, ledgers)
                wanted, state.wanted = state.wanted, None
                around = self.ledgers_around(target)
                missing = {wanted} if wanted is not None else around.intersection(state.acked.away or ())
                if missing:
                    needed.update(missing)
                    self.when_loaded(needed, change, done)
                else:
                    self._changed(state.acknowledge_cumulative(target, None, ledgers), done)

            if self.is_closed:
                change()
            else:
                self.when_loaded((), change, done)

        await answer_of(begin)

    async def clear_backlog(self, through: Position = LATEST) -> None:
        """Acknowledge everything there is, up to ``through``. Durable on return."""
        target = min(through, self._extent.readable.last_position)
        await self._durably(
            lambda: self.state.acknowledge_cumulative(target, None, self._extent.readable), self.ledgers_around(target)
        )

    async def set_properties(self, properties: Mapping[str, int]) -> None:
        """Replace what is saved along with the position. Durable on return."""
        self.state.properties = dict(properties)
        await self._durably(lambda: CHANGED)

    async def set_cursor_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's text properties. Durable on return; those before stay where that fails."""
        before, wanted = self.cursor_properties, dict(properties)
        self.cursor_properties = wanted
        if self.store is None:
            return
        try:
            await self.store.write_node()
        except StorageError as error:
            # Each later write of the node would fail as well: nothing acknowledged from then on would be stored.
            if self.cursor_properties is wanted:
                self.cursor_properties = before
            raise error

    async def flush(self) -> None:
        """Until everything acknowledged so far is durable."""
        await self._durably(lambda: NOTHING)

    def _when_loaded(self, ledger_ids: Collection[int], change: Callable[[], int], done: AckDone | None) -> None:
        """Change the state once these ledgers are in memory."""
        if self.is_in_memory or self.is_closed:
            self._changed(NOTHING if self.is_closed else change(), done)
            return

        def refuse(error: StorageError) -> None:
            if done is not None:
                done(error)

        self.when_loaded(ledger_ids, lambda: self._changed(change(), done), refuse)

    def _changed(self, flags: int, done: AckDone | None) -> None:
        if self.is_closed:
            if done is not None:
                done(LedgerClosedError(f"cursor {self.name} is closed"))
            return
        if flags & MOVED:
            self.use.on_moved()
        if flags & CROSSED:
            self._log.trimmer.trim_later()
        if self.state.wanted is not None:
            self.advance_if_wanted()
        if self.store is not None:
            if flags or done is not None:
                self.store.changed(bool(flags), done)
        elif done is not None:
            done(None)

    async def _durably(self, change: Callable[[], int], ledger_ids: Collection[int] = ()) -> None:
        def begin(done: AckDone) -> None:
            self._when_loaded(ledger_ids, change, done)

        await answer_of(begin)

    # ---- end

    async def close(self) -> None:
        """Persist and let go. A read under way ends with an error."""
        if self._operations is not None and self.store is not None:
            await self._operations.finish()
        if self.is_closed:
            return
        self.is_closed = True
        self.reading.deactivate()
        if self._operations is not None:
            self._operations.refuse_all(LedgerClosedError(f"cursor {self.name} is closed"))
        self.reading.stop(LedgerClosedError(f"cursor {self.name} is closed"))
        self.on_memory_changed()
        if self.store is not None:
            await self.store.close()
        else:
            self._log.cursor_set.forget_non_durable(self)

    def reopen(self) -> None:
        """Go on where it stopped, if it was closed."""
        if self.is_closed:
            self.is_closed = False
            self.reading.resume(self)

    async def drop(self) -> None:
        """Let go without writing: the state is not to be trusted. What waits ends with an error."""
        self.is_closed = True
        error = LedgerClosedError(f"cursor {self.name} is closed")
        if self._operations is not None:
            self._operations.refuse_all(error)
        self.reading.stop(error)
        self.reading.deactivate()
        self.on_memory_changed()
        if self.store is None:
            self._log.cursor_set.forget_non_durable(self)
        else:
            await self.store.drop()


def _ignore(_error: StorageError) -> None:
    """The cursor ends: mark-delete moves on when it is opened again."""
