"""The ledger list of one managed ledger as it is stored: one metadata node, changed by its owner alone.

Every change is one compare-and-set with the lock held, and memory follows only when that succeeded. Ledgers go after
the list without them is written: cut off in between, they are orphans, never missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from geminga.managed_ledger.rules.extent import Extent
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.managed_ledger.rules.unreadable import Gap
from geminga.managed_ledger.shared.metadata_io import MetadataNode, ledger_path
from geminga.managed_ledger.shared.ports import Ledgers
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import LedgerFencedError, MetadataError, StorageError, invariant
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.model.position import Position
from geminga.runtime import get_logger
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, encode_managed_ledger_info

#: While a list has less room, its ledgers go on beyond their limits, and none is offloaded: what is left is for ledgers
#: without which nothing could be written, such as after a restart.
ROOM_BYTES_MIN: Final = 64 * 1024
#: With less not even those are made: a name that the node may have to be written under counts, too.
LAST_ROOM_BYTES: Final = 16 * 1024

_log = get_logger(__name__)


class StoredList:
    """See the module."""

    __slots__ = (
        "_fenced",
        "_forget",
        "_garbage",
        "_kept_in",
        "_lock",
        "_metadata",
        "_node",
        "_value_bytes",
        "extent",
        "failures",
        "gaps",
        "is_new",
        "ledgers",
        "name",
        "noted",
        "properties",
        "terminated_position",
        "withheld",
    )

    def __init__(
        self,
        name: str,
        node: MetadataNode,
        record: ManagedLedgerRecord,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        fenced: Callable[[LedgerFencedError], None],
        forget: Callable[[int], None],
    ) -> None:
        """``record``: what the node has. ``fenced`` is told that another owner changed it, ``forget`` that a ledger is
        about to be deleted."""
        self.name = name
        self.ledgers = LedgerList(
            LedgerInfo(
                item.ledger_id,
                item.entries,
                item.size_bytes,
                item.closed_ms,
                item.offload_context,
                properties=item.properties,
            )
            for item in record.ledgers
        )
        #: How far it reaches, and how much of that may be read.
        self.extent = Extent(self.ledgers)
        self.terminated_position = record.terminated
        self.properties: dict[str, str] = dict(record.properties)
        #: Properties that are written anew with each change of the list.
        self.noted: Callable[[], Mapping[str, str]] | None = None
        #: There was none of that name: opening it made it.
        self.is_new = False
        #: Ledgers whose last read failed, and what a replay could not read; by ledger id.
        self.failures: dict[int, StorageError] = {}
        self.gaps: dict[int, Gap] = {}
        #: Ledgers that are not read, even if they could be, until the log is opened anew: what they tell is not known.
        self.withheld: dict[int, StorageError] = {}
        self._node = node
        self._metadata = metadata
        self._kept_in = ledgers
        self._fenced = fenced
        self._forget = forget
        #: Of the node's value; None: not written yet.
        self._value_bytes: int | None = None
        #: Empty ledgers that left the list in memory; deleted once it is written.
        self._garbage: tuple[int, ...] = ()
        self._lock: asyncio.Lock | None = None

    @property
    def created_ms(self) -> int:
        """When the node was made, ms since the epoch."""
        return self._node.created_ms

    @property
    def version(self) -> int:
        """Of the node, as we know it; it grows with each change."""
        return self._node.version

    @property
    def is_in_doubt(self) -> bool:
        """Whether the node may have what a write that failed was to give it."""
        return self._node.is_in_doubt

    @property
    def is_deleted(self) -> bool:
        """The managed ledger was deleted here."""
        return self._node.is_deleted

    @property
    def own(self) -> Sequence[LedgerInfo]:
        """The ledgers that go when it is deleted: all of them."""
        return self.ledgers.infos

    @property
    def fullness(self) -> str:
        """For errors and the log."""
        return f"its list of {len(self.ledgers)} ledgers is as long as a metadata node may be"

    @property
    def room_bytes(self) -> int:
        """What its node takes beyond what it holds."""
        if self._value_bytes is None:
            self._value_bytes = len(self._encode(self._records(self.ledgers.infos), self.terminated_position))
        return METADATA_VALUE_BYTES_MAX - self._value_bytes

    def lock(self) -> asyncio.Lock:
        """Held while the list is changed."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    def drop_empty(self) -> None:
        """Closed ledgers without entries leave the list with its next write."""
        empty = [info.ledger_id for info in self.ledgers.infos if info.closed_ms and not info.entries]
        if empty:
            self.ledgers.remove(empty)
            self._garbage += tuple(empty)
            self.extent.cut()

    async def put(
        self,
        infos: Sequence[LedgerInfo],
        *,
        terminated: Position | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Write the node; the ledgers in memory follow by the caller. Raises LedgerFencedError, MetadataError."""
        terminated = terminated if terminated is not None else self.terminated_position
        properties = dict(self.properties if properties is None else properties)
        if self.noted is not None:
            properties |= self.noted()
        await self._put(self._records(infos), terminated, properties)
        self.terminated_position, self.properties = terminated, properties
        await self._delete_garbage()

    async def claim(self) -> None:
        """Write the node as it is. Raises LedgerFencedError if another owner has it: then nothing is ours to delete.
        MetadataError."""
        async with self.lock():
            await self.put(self.ledgers.infos)

    async def set_properties(self, properties: Mapping[str, str], *, kept: Collection[str] = ()) -> None:
        """Replace the text properties but for ``kept``. Durable on return. Raises as :meth:`put`."""
        async with self.lock():
            stay = {name: value for name, value in self.properties.items() if name in kept}
            await self.put(self.ledgers.infos, properties={**properties, **stay})

    async def add_properties(self, properties: Mapping[str, str]) -> None:
        """Add text properties, or replace those of the same names. Durable on return. Raises as :meth:`put`."""
        async with self.lock():
            await self.put(self.ledgers.infos, properties={**self.properties, **properties})

    async def change_property(self, name: str, change: Callable[[str], str]) -> None:
        """Put what ``change`` makes of a text property in its place, where that is another; empty: it has none.

        Durable on return. Raises as :meth:`put`.
        """
        async with self.lock():
            properties = dict(self.properties)
            before = properties.pop(name, "")
            if (after := change(before)) != before:
                await self.put(self.ledgers.infos, properties={**properties, name: after} if after else properties)

    def _records(self, infos: Sequence[LedgerInfo]) -> tuple[LedgerRecord, ...]:
        return tuple(
            LedgerRecord(
                info.ledger_id, info.entries, info.size_bytes, info.closed_ms, info.offload_context, info.properties
            )
            for info in infos
        )

    async def _put(
        self, records: tuple[LedgerRecord, ...], terminated: Position | None, properties: dict[str, str]
    ) -> None:
        value = self._encode(records, terminated, properties)
        try:
            await self._node.put(self._metadata, ledger_path(self.name), value)
        except LedgerFencedError as error:
            self._fenced(error)
            raise
        self._value_bytes = len(value)

    def _encode(
        self,
        records: tuple[LedgerRecord, ...],
        terminated: Position | None,
        properties: Mapping[str, str] | None = None,
    ) -> bytes:
        properties = self.properties if properties is None else properties
        return encode_managed_ledger_info(self._own_record(ManagedLedgerRecord(records, terminated, properties)))

    def _own_record(self, record: ManagedLedgerRecord) -> ManagedLedgerRecord:
        """What of it is in the node."""
        return record

    async def _delete_garbage(self) -> None:
        garbage, self._garbage = self._garbage, ()
        await self.delete_ledgers(garbage)

    async def put_context(self, ledger_id: int, context: bytes) -> None:
        """Write the node with another ``OffloadContext`` of one ledger, and have it. Raises as :meth:`put`."""
        found = self.ledgers.find(ledger_id)
        invariant(found is not None, f"{self.name}: ledger {ledger_id} is not listed")
        assert found is not None
        if context and not found.offload_context and self.room_bytes < ROOM_BYTES_MIN:
            raise MetadataError(
                f"{self.name}: no room to say of ledger {ledger_id} that it is offloaded: {self.fullness}"
            )
        before, found.offload_context = found.offload_context, context
        records = self._records(self.ledgers.infos)
        found.offload_context = before
        properties = {**self.properties, **(self.noted() if self.noted is not None else {})}
        await self._put(records, self.terminated_position, properties)
        self.properties = properties
        found.offload_context = context
        await self._delete_garbage()

    async def check(self) -> None:
        """As :meth:`require_ours`, with the lock to be taken."""
        async with self.lock():
            await self.require_ours()

    async def require_ours(self) -> None:
        """The lock is held: raise LedgerFencedError if another owner changed or claimed the node. MetadataError."""
        try:
            await self._node.require_ours(self._metadata, ledger_path(self.name))
        except LedgerFencedError as error:
            self._fenced(error)
            raise

    async def delete_node(self) -> None:
        """Delete the node as we know it. Raises LedgerFencedError, MetadataError."""
        await self._node.delete(self._metadata, ledger_path(self.name))

    async def delete_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that left the list; one that can not be deleted now is left to the collector."""
        for ledger_id in ledger_ids:
            self._forget(ledger_id)
            self.failures.pop(ledger_id, None)
            try:
                await self._kept_in.delete_ledger(ledger_id)
            except StorageError as error:
                _log.warning("%s: ledger %d was not deleted: %s", self.name, ledger_id, error)
