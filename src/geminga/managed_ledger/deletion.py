"""Deleting a managed ledger: its node is claimed, its cursors go, then its node, then (by the factory) its ledgers.

The claim is a write of the list as it is. It fails if another owner changed the list since we read it: then nothing
was touched. Afterwards each node is deleted under the version that we know (``metadata_io``), so that an owner who
comes in between loses nothing that he wrote. Ledgers go last: cut off before that, they are orphans, never missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.managed_ledger import crash_points as points
from geminga.runtime import crash_point

if TYPE_CHECKING:
    from geminga.managed_ledger.managed_ledger import ManagedLedger


async def delete_nodes(ml: ManagedLedger) -> tuple[int, ...]:
    """Delete the nodes; the ledgers they named. The list lock is held: no cursor comes and no ledger is added.

    Raises LedgerFencedError, MetadataError; a later call, after opening it anew, goes on.
    """
    await ml.stored.put(ml.ledgers.infos)
    ledger_ids = [info.ledger_id for info in ml.ledgers.infos]
    for cursor in (*ml.cursors.values(), *ml.non_durable_cursors):
        store = cursor.store
        if store is not None:
            await store.delete_node()
            if store.ledger_id >= 0:
                ledger_ids.append(store.ledger_id)
            cursor.store = None
        await cursor.close()
    ml.cursors.clear()
    crash_point(points.DELETE_CURSORS_GONE)
    await ml.stored.delete_node()
    crash_point(points.DELETE_NODE_GONE)
    return tuple(ledger_ids)
