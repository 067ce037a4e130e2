"""The metadata node of a durable cursor (docs/formats/cursor.md): which ledger has its state, or the state itself.

It is written only when the cursor is created or closed, its ledger switched or failed, its text properties change or
its last use is to be noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from geminga.managed_ledger.cursor.cursor_use import CursorUse
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.managed_ledger.rules.cursor_format import batch_records, range_records
from geminga.managed_ledger.shared.metadata_io import MetadataNode, cursor_path
from geminga.managed_ledger.shared.services import StorageServices
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import LedgerFencedError, StorageError
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.wire.managed_ledger import CursorInfoRecord, encode_cursor_info

#: A cursor used for so much longer than its node says is noted: when somebody begins or ends to use it, and when it is
#: closed. Expiry is set in minutes.
NOTED_USE_MS: Final = 60_000


class NotedCursor(Protocol):
    """A cursor, as far as it concerns this."""

    name: str
    state: CursorState
    cursor_properties: Mapping[str, str]
    #: When it was last used.
    use: CursorUse


class CursorNode(MetadataNode):
    """See the module."""

    __slots__ = (
        "_cursor",
        "_fenced",
        "_log_name",
        "_services",
        "failed_saves",
        "is_noting",
        "ledger_id",
        "noted_active_ms",
        "saves",
    )

    def __init__(
        self,
        cursor: NotedCursor,
        log_name: str,
        services: StorageServices,
        fenced: Callable[[LedgerFencedError], None],
        *,
        version: int = MUST_NOT_EXIST,
        created_ms: int = 0,
        ledger_id: int = -1,
        noted_active_ms: int = 0,
    ) -> None:
        """Of a cursor of the managed ledger ``log_name``; ``fenced`` is told that another owner changed the node. The
        rest is what it says."""
        super().__init__(version, created_ms)
        self._cursor = cursor
        self._log_name = log_name
        self._services = services
        self._fenced = fenced
        #: The ledger that holds the state; -1: the node does.
        self.ledger_id = ledger_id
        #: When the cursor was last in use, as the node has it; ms since the epoch, 0: it does not say.
        self.noted_active_ms = noted_active_ms
        #: A note of the last use is under way.
        self.is_noting = False
        #: Writes since it was opened that are durable, and that failed.
        self.saves = self.failed_saves = 0

    @property
    def is_use_due(self) -> bool:
        """Whether the cursor was used for long enough that the node should say so."""
        return self._cursor.use.last_active_ms - self.noted_active_ms >= NOTED_USE_MS

    async def create(self) -> None:
        """The first value of a new cursor. Raises MetadataError."""
        await self._write(self._record(ledger_id=-1, with_state=True))

    async def write_ledger(self, ledger_id: int) -> None:
        """Say that this ledger has the state; :attr:`ledger_id` follows by the caller."""
        await self._write(self._record(ledger_id=ledger_id, with_state=False))

    def state_record(self) -> CursorInfoRecord | None:
        """The whole state as it is now, for :meth:`write_state`; None if it is too much."""
        limit = self._services.config.max_ranges_in_metadata
        state = self._cursor.state
        if state.acked.away or len(range_records(state, limit + 1)) > limit or state.batches.count > limit:
            return None
        record = self._record(ledger_id=-1, with_state=True)
        return record if len(encode_cursor_info(record)) <= METADATA_VALUE_BYTES_MAX // 2 else None

    async def write_state(self, record: CursorInfoRecord) -> None:
        """Hold the state; :attr:`ledger_id` follows by the caller."""
        await self._write(record)

    async def remove(self) -> None:
        """Delete the node as we know it. Raises LedgerFencedError, MetadataError."""
        await self.delete(self._services.metadata, cursor_path(self._log_name, self._cursor.name))

    def _record(self, *, ledger_id: int, with_state: bool) -> CursorInfoRecord:
        cursor = self._cursor
        state = cursor.state
        limit = self._services.config.max_ranges_in_metadata
        properties: Mapping[str, int] = state.properties if with_state else {}
        return CursorInfoRecord(
            ledger_id,
            state.mark_delete,
            tuple(range_records(state, limit)) if with_state else (),
            tuple(batch_records(state, limit)) if with_state else (),
            properties,
            cursor.cursor_properties,
            cursor.use.last_active_ms,
        )

    async def _write(self, record: CursorInfoRecord) -> None:
        path = cursor_path(self._log_name, self._cursor.name)
        try:
            await self.put(self._services.metadata, path, encode_cursor_info(record))
        except LedgerFencedError as error:
            self.failed_saves += 1
            self._fenced(error)
            raise error
        except StorageError as failure:
            self.failed_saves += 1
            raise failure
        self.saves += 1
        self.noted_active_ms = record.last_active_ms
