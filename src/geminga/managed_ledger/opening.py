"""Opening a managed ledger: its last ledger is recovered, and every cursor comes back at its newest complete state."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from geminga.bookkeeper import LedgerHandle
from geminga.managed_ledger.core.cursor_format import Recovered, recovery, state_of_record
from geminga.managed_ledger.cursor_store import CursorStore
from geminga.managed_ledger.managed_cursor import ManagedCursor
from geminga.managed_ledger.managed_ledger import ManagedLedger
from geminga.managed_ledger.metadata_io import MetadataNode, ledger_path
from geminga.model.errors import CorruptionError, LedgerFencedError, NoSuchEntryError, NoSuchLedgerError
from geminga.runtime import get_logger
from geminga.wire.managed_ledger import (
    CursorInfoRecord,
    ManagedLedgerRecord,
    decode_cursor_info,
    decode_managed_ledger_info,
    encode_managed_ledger_info,
)

if TYPE_CHECKING:
    from geminga.managed_ledger.factory import ManagedLedgerFactory

_log = get_logger(__name__)


async def load(factory: ManagedLedgerFactory, name: str) -> ManagedLedger:
    """Read, or create, the managed ledger of that name. Raises StorageError."""
    path = ledger_path(name)
    node = await factory.metadata.get(path)
    if node is None:
        fresh = MetadataNode()
        record = ManagedLedgerRecord()
        try:
            await fresh.put(factory.metadata, path, encode_managed_ledger_info(record))
        except LedgerFencedError:
            # It was created in between, as the partitions of a new topic are, without being opened.
            node = await factory.metadata.get(path)
            if node is None:
                raise
        else:
            return ManagedLedger(factory, name, fresh, record)
    ml = ManagedLedger(
        factory, name, MetadataNode(node.stat.version, node.stat.created_ms), decode_managed_ledger_info(node.value)
    )
    await _recover_last_ledger(ml)
    for cursor_name in await factory.metadata.children(path):
        cursor = await _load_cursor(ml, f"{path}/{cursor_name}", cursor_name)
        if cursor is not None:
            ml.cursors[cursor.name] = cursor
    return ml


async def _recover_last_ledger(ml: ManagedLedger) -> None:
    """Find where the last ledger ends if the list does not say."""
    last = ml.ledgers.last
    if last is None or last.closed_ms:
        return
    try:
        handle = await ml.bookkeeper.open_ledger(last.ledger_id, recover=True)
    except NoSuchLedgerError:
        _log.error("%s: its last ledger %d does not exist and leaves the list", ml.name, last.ledger_id)
        ml.end_recovered(0, 0)
        return
    last.opened_ms = handle.metadata.created_ms or 0
    ml.end_recovered(handle.last_add_confirmed + 1, handle.length_bytes)
    if handle.last_add_confirmed >= 0:
        ml.reads.keep(handle)


async def _load_cursor(ml: ManagedLedger, path: str, name: str) -> ManagedCursor | None:
    node = await ml.metadata.get(path)
    if node is None:
        return None
    record = decode_cursor_info(node.value)
    found, source = await _recover_cursor(ml, name, record)
    active_ms = record.last_active_ms
    store = CursorStore(ml, MetadataNode(node.stat.version, node.stat.created_ms), record.cursor_ledger_id, active_ms)
    cursor = ManagedCursor(ml, name, found.state, store, record.cursor_properties, last_active_ms=active_ms)
    store.attach(cursor)
    if source is not None:
        store.recovered(source, found)
    found.state.rewind(ml.ledgers)
    cursor.advance_if_wanted()
    return cursor


async def _recover_cursor(
    ml: ManagedLedger, name: str, record: CursorInfoRecord
) -> tuple[Recovered, LedgerHandle | None]:
    """The newest complete state: in the node, or in the cursor ledger it names, which is returned too."""
    make = ml.factory.make_acked_entries
    of_node = Recovered(state_of_record(record, ml.ledgers, make), {})
    of_node.state.forget_missing(ml.ledgers)
    if record.cursor_ledger_id < 0:
        return of_node, None
    try:
        handle = await ml.bookkeeper.open_ledger(record.cursor_ledger_id, recover=True)
    except NoSuchLedgerError:
        _log.error("%s/%s: its ledger %d does not exist", ml.name, name, record.cursor_ledger_id)
        return of_node, None
    room_bytes = ml.factory.cursor_memory.room_bytes
    found = await _run_recovery(
        handle, recovery(handle.last_add_confirmed, ml.ledgers, make, memory_bytes_max=room_bytes)
    )
    if found is None:
        _log.error("%s/%s: no state in its ledger %d", ml.name, name, record.cursor_ledger_id)
        return of_node, None
    return found, handle


async def _run_recovery(
    handle: LedgerHandle, steps: Generator[tuple[int, int], Sequence[bytes | None], Recovered | None]
) -> Recovered | None:
    """Feed ``core.cursor_format.recovery`` with entries; damaged and missing ones as None, other errors are raised."""
    try:
        first, last = next(steps)
        while True:
            payloads: list[bytes | None] = []
            for entry_id in range(first, last + 1):
                try:
                    payloads.extend(await handle.read_entries(entry_id, entry_id))
                except (CorruptionError, NoSuchEntryError) as error:
                    _log.error("cursor ledger %d: entry %d: %s", handle.ledger_id, entry_id, error)
                    payloads.append(None)
            first, last = steps.send(payloads)
    except StopIteration as stop:
        found: Recovered | None = stop.value
        return found
