"""What Apache's broker wrote for transactions: encoded to the same bytes; its segments tell what the topic does."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from geminga.broker.transactions.snapshot_records import (
    INDEXES_SCHEMA,
    SEGMENT_SCHEMA,
    SNAPSHOT_SCHEMA,
    decode_indexes,
    decode_segment,
    decode_snapshot,
    encode_indexes,
    encode_segment,
    encode_snapshot,
    parse_schema,
)
from geminga.model.errors import CorruptionError
from geminga.model.position import EARLIEST, Position
from geminga.model.txn_id import TxnId
from geminga.transaction.core import segments as core
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.segments import Segment, SegmentedSnapshot, SegmentIndex, prefers_segments, whole
from geminga.transaction.ports import BufferSnapshot
from geminga.wire.pulsar.markers import ABORT, COMMIT, transaction_marker, transaction_of
from geminga.wire.pulsar.metadata import split_entry
from geminga.wire.pulsar.transaction_log import (
    decode_pending_ack_records,
    decode_transaction_records,
    encode_pending_ack_record,
    encode_pending_ack_records,
    encode_transaction_record,
    encode_transaction_records,
)
from support.house.source_tree import ROOT

RECORDED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "samples" / "transaction-records-4.2.4.json").read_text(encoding="utf-8")
)
SCHEMAS = {"snapshot": SNAPSHOT_SCHEMA, "segments": SEGMENT_SCHEMA, "indexes": INDEXES_SCHEMA}


def entries(what: str) -> list[tuple[Position, bytes]]:
    return [(Position(ledger, entry), base64.b64decode(data)) for ledger, entry, data in RECORDED[what]]


def values(what: str) -> list[tuple[Position, bytes]]:
    """Of messages, their values."""
    return [(position, data[split_entry(data)[1] :]) for position, data in entries(what)]


@pytest.mark.parametrize(
    ("what", "decode", "one", "several"),
    [
        ("transaction log", decode_transaction_records, encode_transaction_record, encode_transaction_records),
        ("pending acks", decode_pending_ack_records, encode_pending_ack_record, encode_pending_ack_records),
    ],
)
def test_records_of_logs_are_encoded_again_to_the_same_bytes(
    what: str, decode: Callable[[bytes], Any], one: Callable[[Any], bytes], several: Callable[[Any], bytes]
) -> None:
    kinds = set()
    for data in map(base64.b64decode, RECORDED[what]):
        (record,) = decode(data)
        kinds.add(record.op)
        assert one(record) == data
    assert kinds == set(type(record.op)), "one of each kind"
    sizes = []
    for data in map(base64.b64decode, RECORDED[f"{what}, batched"]):
        records = decode(data)
        sizes.append(len(records))
        assert several(records) == data
    assert min(sizes) == 1, "Pulsar's batches may have one record"
    assert max(sizes) >= 4


def test_markers_are_made_again_to_the_same_bytes() -> None:
    found = []
    for _, data in entries("topic"):
        metadata, _ = split_entry(data)
        assert metadata is not None
        txn_id = transaction_of(metadata)
        assert txn_id is not None
        if metadata.marker_type:
            assert metadata.marker_type in (COMMIT, ABORT)
            commit = metadata.marker_type == COMMIT
            assert transaction_marker(txn_id, commit=commit, now_ms=metadata.publish_time) == data
            found.append(commit)
    assert found.count(True) >= 5
    assert found.count(False) >= 5


def test_snapshots_are_encoded_again_to_the_same_bytes_with_pulsars_schemas() -> None:
    for name, schema in SCHEMAS.items():
        assert schema.decode() == RECORDED["schemas"][name]
    for _, data in values("snapshot"):
        assert encode_snapshot(*decode_snapshot(data, parse_schema(SNAPSHOT_SCHEMA))) == data
    for _, data in values("segments"):
        assert encode_segment(decode_segment(data, parse_schema(SEGMENT_SCHEMA))) == data
    for _, data in values("indexes"):
        assert encode_indexes(decode_indexes(data, parse_schema(INDEXES_SCHEMA))) == data


def test_what_segments_tell_is_what_the_topic_tells() -> None:
    """Recovered from each index, and read on from there: the same aborted transactions as from the whole topic."""
    log = [(position, split_entry(data)[0]) for position, data in entries("topic")]
    found = {at: decode_segment(data, parse_schema(SEGMENT_SCHEMA)) for at, data in values("segments")}

    def read(state: TransactionBufferState, behind: Position) -> list[bool]:
        for position, metadata in log:
            assert metadata is not None
            txn_id = transaction_of(metadata)
            assert txn_id is not None
            if position <= behind:
                continue
            if metadata.marker_type == COMMIT:
                state.committed(txn_id)
            elif metadata.marker_type == ABORT:
                state.was_aborted(txn_id, position)
            else:
                state.stored(txn_id, position)
        assert state.first_held is None
        return [state.hides(transaction_of(m) or TxnId(-1, -1), position) for position, m in log if m is not None]

    expected = read(TransactionBufferState(), EARLIEST)
    assert expected.count(True) > 20
    for _, data in values("indexes"):
        index = decode_indexes(data, parse_schema(INDEXES_SCHEMA))
        snapshot = whole(index, found)
        assert snapshot.position == index.position
        state = TransactionBufferState()
        for txn_id, marker in snapshot.aborts:
            state.restored(txn_id, marker)
        assert read(state, snapshot.position) == expected
    assert len(snapshot.aborts) > 20


def test_a_segment_that_is_missing_or_anothers_means_that_the_topic_is_read() -> None:
    place = SegmentIndex(3, Position(1, 9), Position(7, 0))
    index = SegmentedSnapshot("t", Position(1, 4), (place,), (TxnId(0, 8),))
    segment = Segment("t", 3, Position(1, 9), (TxnId(0, 1), TxnId(0, 2)))
    assert whole(index, {place.position: segment}) == BufferSnapshot(
        Position(1, 4),
        ((TxnId(0, 1), Position(1, 9)), (TxnId(0, 2), Position(1, 9)), (TxnId(0, 8), Position(1, 4))),
    )
    for other in ({}, {place.position: segment._replace(topic="u")}, {place.position: segment._replace(sequence_id=4)}):
        assert whole(index, other) == BufferSnapshot(EARLIEST)


def test_the_snapshot_that_spares_more_reading_is_taken() -> None:
    index = SegmentedSnapshot("t", Position(1, 4))
    assert prefers_segments(None, index)
    assert prefers_segments(BufferSnapshot(Position(1, 3)), index)
    assert not prefers_segments(BufferSnapshot(Position(1, 4)), index)
    assert not prefers_segments(None, None)
    assert not prefers_segments(BufferSnapshot(EARLIEST), None)


def test_what_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    index = SegmentedSnapshot("t", Position(1, 4), 2 * (SegmentIndex(3, Position(1, 9), Position(7, 0)),))
    data, schema = encode_indexes(index), parse_schema(INDEXES_SCHEMA)
    assert decode_indexes(data, schema) == index
    for cut in range(len(data)):
        with pytest.raises(CorruptionError):
            decode_indexes(data[:cut], schema)
    with pytest.raises(CorruptionError, match="is none"):
        decode_segment(data, schema)
    text = json.loads(SEGMENT_SCHEMA)
    next(each for each in text["fields"] if each["name"] == "sequenceId")["type"] = "string"
    with pytest.raises(CorruptionError, match="no number"):
        # No ids, entry 1, ledger 0, the text "a", no name.
        decode_segment(b"\x00\x02\x00\x02a\x00", parse_schema(json.dumps(text).encode()))
    with pytest.raises(CorruptionError):
        decode_segment(b"", parse_schema(b'"long"'))
    with pytest.raises(CorruptionError, match="no record"):
        decode_segment(b"\x02", parse_schema(b'"long"'))
    monkeypatch.setattr("geminga.broker.transactions.snapshot_records.SEGMENTS_MAX", 1)
    with pytest.raises(CorruptionError, match="2 segments"):
        decode_indexes(data, schema)
    assert core.SEGMENTS_MAX > 1
