"""What an operator is told of a managed ledger, with the names of Pulsar's ``internalStats``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from geminga.managed_ledger.managed_cursor import ManagedCursor
    from geminga.managed_ledger.managed_ledger import ManagedLedger

#: Ranges of individually acknowledged entries that are spelled out / counted.
RANGES_SHOWN_MAX: Final = 100
RANGES_COUNTED_MAX: Final = 10_000


def internal_stats(ml: ManagedLedger) -> dict[str, object]:
    """Ledgers and cursors as they are in memory."""
    last = ml.ledgers.last
    return {
        "entriesAddedCounter": ml.entry_count,
        "numberOfEntries": ml.entry_count,
        "totalSize": ml.size_bytes,
        "currentLedgerEntries": last.entries if last is not None else 0,
        "currentLedgerSize": last.size_bytes if last is not None else 0,
        "lastConfirmedEntry": str(ml.last_confirmed_position),
        "state": ml.state_name,
        "ledgers": [
            {
                "ledgerId": info.ledger_id,
                "entries": info.entries,
                "size": info.size_bytes,
                "timestamp": info.closed_ms,
                "offloaded": bool(info.offload_context),
            }
            for info in ml.ledgers.infos
        ],
        "cursors": {name: _cursor_stats(ml, cursor) for name, cursor in ml.cursors.items()},
        "properties": dict(ml.properties),
    }


def _cursor_stats(ml: ManagedLedger, cursor: ManagedCursor) -> dict[str, object]:
    state = cursor.state
    backlog = cursor.backlog_count
    return {
        "markDeletePosition": str(state.mark_delete),
        "readPosition": str(state.read_position),
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": ml.entry_count - backlog,
        "cursorLedger": cursor.store.ledger_id if cursor.store is not None else -1,
        "individuallyDeletedMessages": str([tuple(item) for item in state.acked.ranges(RANGES_SHOWN_MAX)]),
        "numberOfEntriesSinceFirstNotAckedMessage": backlog + state.acked.count,
        "totalNonContiguousDeletedMessagesRange": len(state.acked.ranges(RANGES_COUNTED_MAX)),
        "properties": dict(state.properties),
        "active": cursor.is_active,
    }
