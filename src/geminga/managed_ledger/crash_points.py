"""Every named crash point of managed ledgers (``runtime.crash_point``), so that tests can prove each was hit."""

from __future__ import annotations

from typing import Final

LEDGER_CREATED: Final = "ml.ledger.created"
LEDGER_LISTED: Final = "ml.ledger.listed"
FAILED_LEDGER_CLOSED: Final = "ml.failed_ledger.closed"
ROLL_LISTED: Final = "ml.roll.listed"
TRIM_FLUSHED: Final = "ml.trim.flushed"
TRIM_LISTED: Final = "ml.trim.listed"
TRIM_DELETED: Final = "ml.trim.deleted"
DELETE_CURSORS_GONE: Final = "ml.delete.cursors_gone"
DELETE_NODE_GONE: Final = "ml.delete.node_gone"
LAKE_DELETION_NOTED: Final = "ml.lake.deletion_noted"
LAKE_FILE_DELETED: Final = "ml.lake.file_deleted"
OFFLOAD_REGISTERED: Final = "ml.offload.registered"
OFFLOAD_WRITTEN: Final = "ml.offload.written"
OFFLOAD_VERIFIED: Final = "ml.offload.verified"
OFFLOAD_COMPLETED: Final = "ml.offload.completed"
OFFLOAD_MANIFEST_WRITTEN: Final = "ml.offload.manifest_written"
OFFLOAD_BOOKIES_LEFT: Final = "ml.offload.bookies_left"
OFFLOAD_BOOKIES_DELETED: Final = "ml.offload.bookies_deleted"
CURSOR_CREATED: Final = "cursor.created"
CURSOR_DELETED: Final = "cursor.deleted"
CURSOR_LEDGER_CREATED: Final = "cursor.ledger.created"
CURSOR_SEGMENTS_APPENDED: Final = "cursor.segments.appended"
CURSOR_SEGMENTS_COPIED: Final = "cursor.segments.copied"
CURSOR_MARKER_APPENDED: Final = "cursor.marker.appended"
CURSOR_MARKER_DURABLE: Final = "cursor.marker.durable"
CURSOR_LEDGER_WRITTEN: Final = "cursor.ledger.written"
CURSOR_LEDGER_NAMED: Final = "cursor.ledger.named"
CURSOR_STATE_IN_NODE: Final = "cursor.state.in_node"

ALL: Final = tuple(sorted(value for name, value in tuple(globals().items()) if name.isupper()))
