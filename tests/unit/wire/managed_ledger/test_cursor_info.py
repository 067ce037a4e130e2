"""PositionInfo and ManagedCursorInfo as docs/formats/cursor.md shows them."""

from __future__ import annotations

import pytest

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import managed_ledger_pb2 as pb
from geminga.wire.managed_ledger import (
    BatchAckRecord,
    CursorInfoRecord,
    MarkerRecord,
    PartBatchAck,
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

WORKED_EXAMPLE = bytes.fromhex("080710291a0c0a040807102a12040807102cc23e0408011001")
RANGE = RangeRecord(Position(7, 42), Position(7, 44))


def test_marker_of_the_format_page_is_encoded_so():
    value = encode_marker(encode_position(Position(7, 41), ranges=[RANGE], properties={}), MarkerRecord(True, ()))
    assert value == WORKED_EXAMPLE
    record = decode_position_info(value)
    assert (record.mark_delete, record.ranges, record.marker) == (Position(7, 41), (RANGE,), MarkerRecord(True, ()))


def test_marker_with_segments_batches_and_properties_comes_back():
    marker = MarkerRecord(False, (SegmentRef(7, 0, (0, 1)), SegmentRef(9, 3, (2,))))
    batch = BatchAckRecord(7, 50, (-1, 5))
    value = encode_marker(
        encode_position(Position(7, 41), ranges=[RANGE], batches=[batch], properties={"p": -3}), marker
    )
    record = decode_position_info(value)
    assert record.marker == marker
    assert record.batches == (batch,)
    assert record.properties == {"p": -3}


def test_segment_is_to_others_a_mark_delete_position():
    value = encode_segment(encode_position(Position(7, 41), properties={}), SegmentRecord(7, 2, 0, 1, b"data"))
    foreign = pb.PositionInfo.FromString(value)
    foreign.DiscardUnknownFields()
    assert (foreign.ledgerId, foreign.entryId) == (7, 41)
    assert not foreign.individualDeletedMessages
    assert decode_position_info(value).segment == SegmentRecord(7, 2, 0, 1, b"data")


def test_position_that_pulsar_wrote_has_neither_marker_nor_segment():
    message = pb.PositionInfo(ledgerId=3, entryId=4)
    message.individualDeletedMessageRanges.add(key=3, values=[0b1100000, 1])
    record = decode_position_info(message.SerializeToString())
    assert (record.marker, record.segment) == (None, None)
    assert record.bit_sets == {3: (0b1100000, 1)}


def test_marker_of_a_newer_format_is_refused():
    message = pb.PositionInfo.FromString(WORKED_EXAMPLE)
    message.marker.formatVersion = 2
    with pytest.raises(CorruptionError, match="newer"):
        decode_position_info(message.SerializeToString())


def test_segment_body_comes_back():
    batches = [PartBatchAck(3, b"\x05"), PartBatchAck(65_535, b"\xff\x01")]
    assert decode_segment_body(encode_segment_body(b"bitmap", batches)) == (b"bitmap", batches)
    assert decode_segment_body(encode_segment_body(b"", [])) == (b"", [])


def test_cursor_info_with_everything_comes_back():
    record = CursorInfoRecord(
        -1,
        Position(7, -1),
        (RANGE,),
        (BatchAckRecord(7, 50, (3,)),),
        {"dedup": 5},
        {"owner": "me"},
        1_700_000_000_000,
    )
    assert decode_cursor_info(encode_cursor_info(record)) == record


def test_cursor_info_that_is_damaged_is_refused():
    with pytest.raises(CorruptionError):
        decode_cursor_info(b"\x08")
