"""Deleting a managed ledger: its node is claimed, its cursors go, then its node, then (by the factory) its ledgers.

The claim is a write of the list as it is. It fails if another owner changed the list since we read it: then nothing
was touched. Afterwards each node is deleted under the version that we know (``metadata_io``), so that an owner who
comes in between loses nothing that he wrote. Ledgers go last: cut off before that, they are orphans, never missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from geminga.managed_ledger import crash_points as points
from geminga.managed_ledger.cursor_store import CursorStore
from geminga.managed_ledger.stored_list import StoredList
from geminga.runtime import crash_point


class DeletedCursor(Protocol):
    """A cursor, as far as it concerns this."""

    store: CursorStore | None

    async def close(self) -> None:
        """Let go."""
        ...


async def delete_nodes(stored: StoredList, cursors: Iterable[DeletedCursor]) -> tuple[int, ...]:
    """Delete the nodes; the ledgers they named. The list lock is held: no cursor comes and no ledger is added.

    Raises LedgerFencedError, MetadataError; a later call, after opening it anew, goes on.
    """
    await stored.put(stored.ledgers.infos)
    ledger_ids = [info.ledger_id for info in stored.ledgers.infos]
    for cursor in cursors:
        store = cursor.store
        if store is not None:
            await store.delete_node()
            if store.ledger_id >= 0:
                ledger_ids.append(store.ledger_id)
            cursor.store = None
        await cursor.close()
    crash_point(points.DELETE_CURSORS_GONE)
    await stored.delete_node()
    crash_point(points.DELETE_NODE_GONE)
    return tuple(ledger_ids)
