"""Deleting a managed ledger: its node is claimed, its cursors and their ledgers go, its node, then (by the factory) its
ledgers.

The claim is a write of the list as it is. It fails if another owner changed the list since we read it: then nothing
was touched. Afterwards each node is deleted under the version that we know (``metadata_io``), so that an owner who
comes in between loses nothing that he wrote. Ledgers go behind the node that names them: cut off before that, they are
orphans, never missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from geminga.managed_ledger.cursor.cursor_node import CursorNode
from geminga.managed_ledger.cursor.cursor_store import CursorStore
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.rules.attached import attached_ids
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.services import StorageServices
from geminga.runtime import crash_point

if TYPE_CHECKING:
    from geminga.managed_ledger.offload.lake_files import FileDeletion


class DeletedCursor(Protocol):
    """A cursor, as far as it concerns this."""

    store: CursorStore | None

    async def close(self) -> None:
        """Let go."""
        ...


class DeletedLog(Protocol):
    """A managed ledger, as far as it concerns this."""

    name: str
    stored: StoredList


async def delete_nodes(
    log: DeletedLog, services: StorageServices, cursors: Iterable[DeletedCursor], unanswered: Iterable[CursorNode]
) -> tuple[tuple[int, ...], Sequence[FileDeletion]]:
    """Delete the nodes; the ledgers and lake files that the log's named. The list lock is held: no cursor comes, no
    ledger.

    ``unanswered``: nodes of cursors that may be there though there is no such cursor.

    Raises LedgerFencedError, MetadataError; a later call, after opening it anew, goes on.
    """
    stored = log.stored
    await stored.put(stored.ledgers.infos)
    noted: Sequence[FileDeletion] = ()
    if any(info.offload_context for info in stored.own):
        from geminga.managed_ledger.offload import lake_files

        noted = await lake_files.note(services, log.name, stored.created_ms, stored.own)
    ledger_ids = [info.ledger_id for info in stored.own]
    ledger_ids += attached_ids(stored.properties)
    for cursor in cursors:
        store = cursor.store
        if store is not None:
            await store.delete_node()
            cursor.store = None
            # At once: where a later one's node can not be deleted now, nobody would know of it any more.
            await store.delete_ledgers()
        await cursor.close()
    for node in unanswered:
        await node.remove()
    crash_point(points.DELETE_CURSORS_GONE)
    await stored.delete_node()
    crash_point(points.DELETE_NODE_GONE)
    return tuple(ledger_ids), noted
