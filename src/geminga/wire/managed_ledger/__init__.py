"""Codecs of the managed ledger's metadata and cursor entries (docs/formats/managed-ledger.md, cursor.md)."""

from geminga.wire.managed_ledger.cursor_info import (
    BatchAckRecord,
    CursorInfoRecord,
    MarkerRecord,
    PartBatchAck,
    PositionRecord,
    RangeRecord,
    SegmentRecord,
    SegmentRef,
    decode_cursor_info,
    decode_position_info,
    decode_segment_body,
    encode_cursor_info,
    encode_marker,
    encode_position,
    encode_segment,
    encode_segment_body,
)
from geminga.wire.managed_ledger.ledger_info import (
    LedgerRecord,
    ManagedLedgerRecord,
    decode_managed_ledger_info,
    encode_managed_ledger_info,
)

__all__ = [
    "BatchAckRecord",
    "CursorInfoRecord",
    "LedgerRecord",
    "ManagedLedgerRecord",
    "MarkerRecord",
    "PartBatchAck",
    "PositionRecord",
    "RangeRecord",
    "SegmentRecord",
    "SegmentRef",
    "decode_cursor_info",
    "decode_managed_ledger_info",
    "decode_position_info",
    "decode_segment_body",
    "encode_cursor_info",
    "encode_managed_ledger_info",
    "encode_marker",
    "encode_position",
    "encode_segment",
    "encode_segment_body",
]
