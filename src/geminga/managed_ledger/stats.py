"""What an operator is told of a managed ledger, with the names of Pulsar's ``internalStats``; times are milliseconds.

Who reads through a cursor, and whether it waits for entries, is not known here: the broker adds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.managed_ledger.rules.ack_ranges import AckedRange

if TYPE_CHECKING:
    from geminga.managed_ledger.cursor.managed_cursor import ManagedCursor
    from geminga.managed_ledger.managed_ledger import ManagedLedger

#: Ranges of individually acknowledged entries that are spelled out.
RANGES_SHOWN_MAX: Final = 100


def internal_stats(ml: ManagedLedger) -> dict[str, object]:
    """Ledgers and cursors as they are in memory."""
    return {**ledger_stats(ml), "cursors": {name: cursor_stats(ml, cursor) for name, cursor in cursors_told(ml)}}


def cursors_told(ml: ManagedLedger) -> list[tuple[str, ManagedCursor]]:
    """By name: the durable ones, then the others."""
    return [*ml.cursors.items(), *((cursor.name, cursor) for cursor in sorted(ml.cursor_set.non_durable, key=_name))]


def ledger_stats(ml: ManagedLedger) -> dict[str, object]:
    """The same without cursors, of which clients decide how many there are."""
    last = ml.ledgers.last
    # Between two ledgers there is no current one; the last of a terminated topic stays it.
    current = last if ml.reader.open_ledger is not None or ml.stored.terminated_position is not None else None
    return {
        "entriesAddedCounter": ml.appender.stats.sizes.count if ml.appender is not None else 0,
        "numberOfEntries": ml.ledgers.entry_count,
        "totalSize": ml.ledgers.size_bytes,
        "currentLedgerEntries": current.entries if current is not None else 0,
        "currentLedgerSize": current.size_bytes if current is not None else 0,
        "lastLedgerCreatedTimestamp": (last.opened_ms if last is not None else 0) or ml.stored.created_ms,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": ml.appender.pending_entries if ml.appender is not None else 0,
        # Before the first entry it is before that of the first ledger, as far as there is one.
        "lastConfirmedEntry": str(max(ml.extent.last_confirmed_position, ml.ledgers.last_position)),
        "state": state_name(ml),
        "ledgers": [
            {
                "ledgerId": info.ledger_id,
                "entries": info.entries,
                "size": info.size_bytes,
                "offloaded": info.is_offloaded,
                "underReplicated": False,
            }
            for info in ml.ledgers.infos
        ],
        "properties": dict(ml.stored.properties),
    }


def cursor_stats(ml: ManagedLedger, cursor: ManagedCursor) -> dict[str, object]:
    """Where a cursor stands, and how that is kept."""
    state = cursor.state
    store = cursor.store
    backlog = cursor.backlog_count
    marker = store.last_marker if store is not None else None
    return {
        "markDeletePosition": str(state.mark_delete),
        "readPosition": str(state.read_position),
        "waitingReadOp": False,
        "pendingReadOps": int(cursor.reading.is_busy),
        "messagesConsumedCounter": ml.extent.readable.entry_count - backlog,
        "cursorLedger": store.ledger_id if store is not None else -1,
        "cursorLedgerLastEntry": marker.entry_id if marker is not None else -1,
        "individuallyDeletedMessages": _ranges_text(state.acked.ranges(RANGES_SHOWN_MAX)),
        "lastLedgerSwitchTimestamp": store.last_switch_ms or store.created_ms
        if store is not None
        else ml.stored.created_ms,
        "state": cursor_state_name(cursor),
        "numberOfEntriesSinceFirstNotAckedMessage": backlog + state.acked.count,
        "totalNonContiguousDeletedMessagesRange": state.acked.range_count,
        "subscriptionHavePendingRead": cursor.reading.is_busy,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(state.properties),
        "active": cursor.use.is_in_use,
        "geminga": own_cursor_stats(cursor),
    }


def own_cursor_stats(cursor: ManagedCursor) -> dict[str, object]:
    """What Pulsar has no names for: how the state is kept, in memory and on disk."""
    state, store = cursor.state, cursor.store
    acked = state.acked
    segments = store.segments if store is not None else None
    marker = store.last_marker if store is not None else None
    return {
        "backlog": cursor.backlog_count,
        "acknowledgedEntries": acked.count,
        "partlyAcknowledgedBatches": state.batches.count,
        "durable": cursor.is_durable,
        "memoryBytes": sum(map(state.ledger_memory_bytes, state.ledger_ids)),
        "ledgersInMemory": len(state.ledger_ids),
        "ledgersPutAway": len(acked.away_ids),
        "segments": sum(map(len, segments.refs.values())) if segments is not None else 0,
        "changedParts": len(state.dirty_parts),
        "lastMarker": str(marker) if marker is not None else None,
        "lastMarkerTimestamp": store.last_marker_ms if store is not None else 0,
        "persistentMarkDeletePosition": str(store.persisted_mark_delete) if store is not None else None,
    }


def state_name(ml: ManagedLedger) -> str:
    """As Pulsar says it: Terminated, Fenced, Closed, LedgerOpened, or ClosedLedger until the next append opens one."""
    if ml.stored.terminated_position is not None:
        return "Terminated"
    if ml.tenure.is_fenced:
        return "Fenced"
    if ml.tenure.is_closed:
        return "Closed"
    return "LedgerOpened" if ml.reader.open_ledger is not None else "ClosedLedger"


def cursor_state_name(cursor: ManagedCursor) -> str:
    """As Pulsar says it: Open, NoLedger, Closed."""
    if cursor.is_closed:
        return "Closed"
    return "Open" if cursor.store is not None and cursor.store.ledger_id >= 0 else "NoLedger"


def _name(cursor: ManagedCursor) -> str:
    return cursor.name


def _ranges_text(ranges: list[AckedRange]) -> str:
    """Open at the lower end, closed at the upper, as Pulsar prints them: ``[(5:-1..5:5],(5:6..5:7]]``."""
    return "[" + ",".join(f"({r.ledger_id}:{r.first - 1}..{r.ledger_id}:{r.last}]" for r in ranges) + "]"
