"""Snapshots of a topic's aborted transactions in segments, as Pulsar writes them where they are many.

A segment holds some, and the position of the abort marker of the last of them; the index names the segments, and holds
what is in none yet. Where each marker lies is not told, but what is: behind the messages that it hides and not behind
the segment's position, so that nothing is taken for hidden that was stored later. Of those in no segment yet the index
tells its own position: whose messages go on behind it is read again with its marker, for recovery reads on from there.

Format: docs/formats/transactions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.model.position import EARLIEST, Position
from geminga.model.txn_id import TxnId
from geminga.transaction.ports import BufferSnapshot

#: Segments of one topic that are read; where there are more, the topic is read instead.
SEGMENTS_MAX: Final = 10_000


class SegmentIndex(NamedTuple):
    """What an index tells of a segment."""

    sequence_id: int
    #: The abort marker of the last transaction in it.
    marker: Position
    #: The segment itself, in its topic.
    position: Position


class Segment(NamedTuple):
    """Some aborted transactions of a topic."""

    topic: str
    sequence_id: int
    #: The abort marker of the last of them.
    marker: Position
    aborts: tuple[TxnId, ...]


class SegmentedSnapshot(NamedTuple):
    """What is known of the aborted transactions of a topic up to a position."""

    topic: str
    position: Position
    segments: tuple[SegmentIndex, ...] = ()
    #: Those in no segment yet.
    aborts: tuple[TxnId, ...] = ()


def prefers_segments(single: BufferSnapshot | None, segmented: SegmentedSnapshot | None) -> bool:
    """Which of both forms is recovered from: the one that spares more reading, for both tell the truth."""
    return segmented is not None and (single is None or segmented.position > single.position)


def whole(index: SegmentedSnapshot, found: Mapping[Position, Segment]) -> BufferSnapshot:
    """The snapshot, of its segments by position; one that is missing, or of another, means reading the topic."""
    aborts: dict[TxnId, Position] = {}
    # Each once, however often an index names it.
    for each in {each.position: each for each in index.segments}.values():
        segment = found.get(each.position)
        if segment is None or segment.topic != index.topic or segment.sequence_id != each.sequence_id:
            return BufferSnapshot(EARLIEST)
        aborts.update(dict.fromkeys(segment.aborts, segment.marker))
    for txn_id in index.aborts:
        aborts.setdefault(txn_id, index.position)
    return BufferSnapshot(index.position, tuple(aborts.items()))
