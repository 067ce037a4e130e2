"""The cursors of one managed ledger: made, brought back, found again by name, deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from geminga.managed_ledger.cursor.cursor_node import CursorNode
from geminga.managed_ledger.cursor.cursor_recovery import recover_cursor
from geminga.managed_ledger.cursor.cursor_store import CursorPlace, CursorStore
from geminga.managed_ledger.cursor.managed_cursor import CursorLog, ManagedCursor
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.rules.cursor import CursorState, before
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.services import CursorServices, StorageServices
from geminga.metadata.ports import Stat
from geminga.model.errors import LedgerFencedError, NotAllowedError
from geminga.model.position import Position
from geminga.runtime import carried_out, crash_point
from geminga.wire.managed_ledger import CursorInfoRecord

_NO_TEXTS: Final[Mapping[str, str]] = {}
_NO_LONGS: Final[Mapping[str, int]] = {}
#: One object for all idle managed ledgers: an empty set takes 216 bytes.
_NO_CURSORS: Final[frozenset[ManagedCursor]] = frozenset()
_NO_NAMES: Final[frozenset[str]] = frozenset()
_NO_NODES: Final[Mapping[str, CursorNode]] = {}


class CursorOwner(CursorLog, CursorPlace, Protocol):
    """The managed ledger that they are of."""

    stored: StoredList

    def on_fenced(self, error: LedgerFencedError) -> None:
        """Another owner has it."""
        ...


class CursorSet:
    """See the module."""

    __slots__ = ("_going", "_owner", "_services", "_shared", "durable", "non_durable", "unanswered")

    def __init__(self, owner: CursorOwner, services: StorageServices, shared: CursorServices) -> None:
        self._owner = owner
        self._services = services
        self._shared = shared
        #: By name.
        self.durable: dict[str, ManagedCursor] = {}
        self.non_durable = _NO_CURSORS
        #: Nodes, by name, that may be there though there is no such cursor: the store did not answer who made it.
        self.unanswered = _NO_NODES
        #: Durable ones that are being deleted, by name.
        self._going = _NO_NAMES

    def all(self) -> tuple[ManagedCursor, ...]:
        """As they are now."""
        return (*self.durable.values(), *self.non_durable)

    async def open(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, int],
        cursor_properties: Mapping[str, str],
        check: Callable[[], None] | None = None,
    ) -> ManagedCursor:
        """The durable cursor of that name, made if need be: see ``ManagedLedger.open_cursor``."""
        owner = self._owner
        cursor = self.durable.get(name)
        if cursor is not None and not owner.tenure.is_closed and name not in self._going:
            # One that was closed goes on where it stopped: it holds its ledgers all the time.
            cursor.reopen()
            return cursor
        async with owner.stored.lock():
            owner.tenure.check_writable()
            cursor = self.durable.get(name)
            if cursor is not None:
                cursor.reopen()
                return cursor
            if check is not None:
                check()
            texts = dict(cursor_properties) if cursor_properties else _NO_TEXTS
            cursor = self._new(name, self._state(initial, dict(properties) if properties else _NO_LONGS), texts)
            await self._create(name, cursor, check)
            crash_point(points.CURSOR_CREATED)
            self.durable[name] = cursor
        return cursor

    async def _create(self, name: str, cursor: ManagedCursor, check: Callable[[], None] | None) -> None:
        """Give it its node: that of an attempt before which had no answer, if there was one. ``check`` is called again
        when it is there, and what it raises takes the node away. Raises MetadataError."""
        owner = self._owner
        node = CursorNode(cursor, owner.name, self._services, owner.on_fenced)
        if name in self.unanswered:
            node.take_over(self._take_unanswered(name))
        store = self._store(cursor, node)
        is_made = False
        try:
            await store.create_node()
            try:
                if self._services.is_shared:
                    # Another owner who listed the cursors before does not know of this one.
                    await owner.stored.require_ours()
                if check is not None:
                    # What is not stored takes no turn.
                    check()
            except (LedgerFencedError, NotAllowedError):
                await store.delete_node()
                raise
            is_made = True
        finally:
            # Also of who is called off.
            if not is_made and node.may_be_there:
                self.unanswered = {**self.unanswered, name: node}

    def _take_unanswered(self, name: str) -> CursorNode:
        node = self.unanswered[name]
        self.unanswered = {known: other for known, other in self.unanswered.items() if known != name} or _NO_NODES
        return node

    async def bring_back(self, name: str, record: CursorInfoRecord, stat: Stat) -> None:
        """A durable cursor whose node has ``record``, at its newest complete state. Raises StorageError."""
        owner, services, shared = self._owner, self._services, self._shared
        recovered, source, read_bytes = await recover_cursor(
            record,
            owner.extent.ledgers,
            services.ledgers,
            name=f"{owner.name}/{name}",
            make=shared.make_acked_entries,
            room_bytes=shared.memory.room_bytes,
        )
        active_ms = record.last_active_ms
        cursor = self._new(name, recovered.state, record.cursor_properties, active_ms)
        node = CursorNode(
            cursor,
            owner.name,
            services,
            owner.on_fenced,
            version=stat.version,
            created_ms=stat.created_ms,
            ledger_id=record.cursor_ledger_id,
            noted_active_ms=active_ms,
        )
        store = self._store(cursor, node)
        if source is not None:
            store.recovered(source, recovered, read_bytes)
        cursor.reading.rewind()
        cursor.advance_if_wanted()
        self.durable[name] = cursor

    def new_non_durable(self, name: str, start: Position) -> ManagedCursor:
        """A cursor in memory: see ``ManagedLedger.new_non_durable_cursor``."""
        cursor = self._new(name, self._state(start, _NO_LONGS))
        self.non_durable |= {cursor}
        return cursor

    def forget_non_durable(self, cursor: ManagedCursor) -> None:
        """It is closed."""
        self.non_durable = self.non_durable - {cursor} or _NO_CURSORS

    async def delete(self, name: str) -> bool:
        """Delete a durable cursor; whether there was one. Raises LedgerFencedError if another owner changed it.

        Whoever opens one of its name meanwhile gets another, when this one is gone. It goes on though who asked for it
        is called off: nobody would know whether the node is there, and the cursor would never be let go of.
        """
        self._going |= {name}
        cursor = self.durable.get(name)
        part = None if cursor is None else cursor.part
        return await carried_out(self._delete_once(name), name=f"delete cursor {name}", part=part)

    async def _delete_once(self, name: str) -> bool:
        try:
            return await self._delete(name)
        finally:
            self._going = self._going - {name} or _NO_NAMES

    async def _delete(self, name: str) -> bool:
        async with self._owner.stored.lock():
            cursor = self.durable.get(name)
            store = cursor.store if cursor is not None else None
            if cursor is None or store is None:
                return await self._delete_unanswered(name)
            await store.delete_node()
            crash_point(points.CURSOR_DELETED)
            del self.durable[name]
            cursor.store = None
        await cursor.close()
        await store.delete_ledgers()
        return True

    async def _delete_unanswered(self, name: str) -> bool:
        node = self.unanswered.get(name)
        if node is None:
            return False
        await node.remove()
        self._take_unanswered(name)
        return True

    def _state(self, first: Position, properties: Mapping[str, int]) -> CursorState:
        """Before ``first``, EARLIEST or LATEST."""
        return CursorState(before(first, self._owner.extent.readable), properties, self._shared.make_acked_entries)

    def _new(
        self, name: str, state: CursorState, texts: Mapping[str, str] = _NO_TEXTS, active_ms: int = 0
    ) -> ManagedCursor:
        return ManagedCursor(
            self._owner, name, state, self._shared, self._services.clock, texts, last_active_ms=active_ms
        )

    def _store(self, cursor: ManagedCursor, node: CursorNode) -> CursorStore:
        store = cursor.store = CursorStore(cursor, self._owner, node, self._services, self._shared.flushes)
        return store
