"""``ManagedCursorInfo`` (metadata node) and ``PositionInfo`` (entry of a cursor ledger), as plain values.

Format: docs/formats/cursor.md. Decoding raises :class:`CorruptionError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import managed_ledger_pb2 as pb
from geminga.wire.managed_ledger.ledger_info import uncompressed

#: Version of the marker and segment fields; a newer one is refused.
FORMAT_VERSION: Final = 1

M = TypeVar("M", bound=Message)


class RangeRecord(NamedTuple):
    """Acknowledged entries behind ``lower`` up to and including ``upper``."""

    lower: Position
    upper: Position


class BatchAckRecord(NamedTuple):
    """A partly acknowledged batch; ``words``: int64 bit set, set bit = NOT acknowledged."""

    ledger_id: int
    entry_id: int
    words: tuple[int, ...]


class SegmentRef(NamedTuple):
    """Where the state of a part lies: entry ids of the cursor ledger, in order."""

    ledger_id: int
    part: int
    entry_ids: tuple[int, ...]


class SegmentRecord(NamedTuple):
    """One piece of a part's body."""

    ledger_id: int
    part: int
    chunk: int
    chunk_count: int
    data: bytes


class MarkerRecord(NamedTuple):
    """What completes a state."""

    is_inline: bool
    segments: tuple[SegmentRef, ...]


class PartBatchAck(NamedTuple):
    """A partly acknowledged batch inside a part's body; ``unacknowledged``: little-endian bit set."""

    entry_offset: int
    unacknowledged: bytes


@dataclass(frozen=True, slots=True)
class PositionRecord:
    """A cursor ledger's entry. Neither ``marker`` nor ``segment``: Pulsar wrote it."""

    mark_delete: Position
    ranges: tuple[RangeRecord, ...] = ()
    batches: tuple[BatchAckRecord, ...] = ()
    properties: Mapping[str, int] = field(default_factory=dict)
    #: Ledger id -> words of a bit set of acknowledged entry ids (Pulsar's long-array form).
    bit_sets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    marker: MarkerRecord | None = None
    segment: SegmentRecord | None = None


@dataclass(frozen=True, slots=True)
class CursorInfoRecord:
    """The metadata node of a cursor; ``cursor_ledger_id`` -1: this value is the state."""

    cursor_ledger_id: int
    mark_delete: Position
    ranges: tuple[RangeRecord, ...] = ()
    batches: tuple[BatchAckRecord, ...] = ()
    properties: Mapping[str, int] = field(default_factory=dict)
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    last_active_ms: int = 0


def encode_cursor_info(record: CursorInfoRecord) -> bytes:
    """The node's value; equal records give equal bytes."""
    message = pb.ManagedCursorInfo(
        cursorsLedgerId=record.cursor_ledger_id,
        markDeleteLedgerId=record.mark_delete.ledger_id,
        markDeleteEntryId=record.mark_delete.entry_id,
        lastActive=record.last_active_ms,
    )
    message.individualDeletedMessages.extend(_range_messages(record.ranges))
    message.batchedEntryDeletionIndexInfo.extend(_batch_messages(record.batches))
    message.properties.extend(_property_messages(record.properties))
    for name in sorted(record.cursor_properties):
        message.cursorProperties.add(name=name, value=record.cursor_properties[name])
    return _serialize(message)


def decode_cursor_info(value: bytes) -> CursorInfoRecord:
    """The inverse of :func:`encode_cursor_info`; a value that Pulsar compressed is read too."""
    message = _parse(pb.ManagedCursorInfo(), uncompressed(value, "ManagedCursorInfo"))
    return CursorInfoRecord(
        message.cursorsLedgerId,
        Position(
            message.markDeleteLedgerId if message.HasField("markDeleteLedgerId") else -1,
            message.markDeleteEntryId if message.HasField("markDeleteEntryId") else -1,
        ),
        _ranges(message.individualDeletedMessages),
        _batches(message.batchedEntryDeletionIndexInfo),
        {pair.name: pair.value for pair in message.properties},
        {pair.name: pair.value for pair in message.cursorProperties},
        message.lastActive,
    )


def encode_position(
    mark_delete: Position,
    *,
    ranges: Sequence[RangeRecord] = (),
    batches: Sequence[BatchAckRecord] = (),
    properties: Mapping[str, int],
    bit_sets: Mapping[int, Sequence[int]] | None = None,
) -> bytes:
    """Pulsar's own fields of an entry: what a marker or a segment begins with."""
    message = pb.PositionInfo(ledgerId=mark_delete.ledger_id, entryId=mark_delete.entry_id)
    message.individualDeletedMessages.extend(_range_messages(ranges))
    message.batchedEntryDeletionIndexInfo.extend(_batch_messages(batches))
    message.properties.extend(_property_messages(properties))
    for ledger_id, words in (bit_sets or {}).items():
        message.individualDeletedMessageRanges.add(key=ledger_id, values=words)
    return _serialize(message)


def encode_marker(position: bytes, marker: MarkerRecord) -> bytes:
    """The entry that completes a state, behind its :func:`encode_position`."""
    message = pb.PositionInfo()
    message.marker.formatVersion = FORMAT_VERSION
    message.marker.isInline = marker.is_inline
    for ref in marker.segments:
        message.marker.segments.add(messageLedgerId=ref.ledger_id, part=ref.part, entryIds=ref.entry_ids)
    return position + message.SerializePartialToString(deterministic=True)


def encode_segment(position: bytes, segment: SegmentRecord) -> bytes:
    """The entry of one piece, behind its :func:`encode_position`."""
    message = pb.PositionInfo()
    message.segment.messageLedgerId = segment.ledger_id
    message.segment.part = segment.part
    message.segment.chunk = segment.chunk
    message.segment.chunkCount = segment.chunk_count
    message.segment.data = segment.data
    return position + message.SerializePartialToString(deterministic=True)


def decode_position_info(value: bytes) -> PositionRecord:
    """An entry of a cursor ledger, whoever wrote it."""
    message = _parse(pb.PositionInfo(), value)
    marker = segment = None
    if message.HasField("marker"):
        if message.marker.formatVersion > FORMAT_VERSION:
            raise CorruptionError(
                f"cursor state has format version {message.marker.formatVersion}, newer than {FORMAT_VERSION}"
            )
        marker = MarkerRecord(
            message.marker.isInline,
            tuple(SegmentRef(ref.messageLedgerId, ref.part, tuple(ref.entryIds)) for ref in message.marker.segments),
        )
    elif message.HasField("segment"):
        piece = message.segment
        segment = SegmentRecord(piece.messageLedgerId, piece.part, piece.chunk, piece.chunkCount, bytes(piece.data))
    return PositionRecord(
        Position(message.ledgerId, message.entryId),
        _ranges(message.individualDeletedMessages),
        _batches(message.batchedEntryDeletionIndexInfo),
        {pair.name: pair.value for pair in message.properties},
        {item.key: tuple(item.values) for item in message.individualDeletedMessageRanges},
        marker,
        segment,
    )


def encode_segment_body(acknowledged: bytes, batches: Iterable[PartBatchAck]) -> bytes:
    """The body of a part; ``acknowledged``: a portable Roaring bitmap, empty for none."""
    message = pb.CursorSegmentBody()
    if acknowledged:
        message.acknowledged = acknowledged
    message.batches.extend(
        pb.CursorBatchAck(entryOffset=batch.entry_offset, unacknowledged=batch.unacknowledged) for batch in batches
    )
    return _serialize(message)


def decode_segment_body(data: bytes) -> tuple[bytes, list[PartBatchAck]]:
    """The inverse of :func:`encode_segment_body`."""
    message = _parse(pb.CursorSegmentBody(), data)
    return (
        bytes(message.acknowledged),
        [PartBatchAck(batch.entryOffset, bytes(batch.unacknowledged)) for batch in message.batches],
    )


def _range_messages(ranges: Iterable[RangeRecord]) -> Iterable[pb.MessageRange]:
    for lower, upper in ranges:
        yield pb.MessageRange(
            lowerEndpoint=pb.NestedPositionInfo(ledgerId=lower.ledger_id, entryId=lower.entry_id),
            upperEndpoint=pb.NestedPositionInfo(ledgerId=upper.ledger_id, entryId=upper.entry_id),
        )


def _batch_messages(batches: Iterable[BatchAckRecord]) -> Iterable[pb.BatchedEntryDeletionIndexInfo]:
    for batch in batches:
        yield pb.BatchedEntryDeletionIndexInfo(
            position=pb.NestedPositionInfo(ledgerId=batch.ledger_id, entryId=batch.entry_id),
            deleteSet=batch.words,
        )


def _property_messages(properties: Mapping[str, int]) -> Iterable[pb.LongProperty]:
    for name in sorted(properties):
        yield pb.LongProperty(name=name, value=properties[name])


def _ranges(messages: Iterable[pb.MessageRange]) -> tuple[RangeRecord, ...]:
    return tuple(
        RangeRecord(
            Position(message.lowerEndpoint.ledgerId, message.lowerEndpoint.entryId),
            Position(message.upperEndpoint.ledgerId, message.upperEndpoint.entryId),
        )
        for message in messages
    )


def _batches(messages: Iterable[pb.BatchedEntryDeletionIndexInfo]) -> tuple[BatchAckRecord, ...]:
    return tuple(
        BatchAckRecord(message.position.ledgerId, message.position.entryId, tuple(message.deleteSet))
        for message in messages
    )


def _parse(message: M, value: bytes) -> M:
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise CorruptionError(f"{message.DESCRIPTOR.name} does not parse: {error}") from error
    return message


def _serialize(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)
