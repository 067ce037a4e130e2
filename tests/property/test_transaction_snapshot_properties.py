"""Snapshots in one piece, written and read piece by piece, against an Avro library."""

from __future__ import annotations

import io
from typing import Any

from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.transactions.snapshot_records import (
    SNAPSHOT_SCHEMA,
    SnapshotReader,
    decode_snapshot,
    encode_snapshot,
    parse_schema,
)
from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.transaction.ports import BufferSnapshot

longs = st.integers(-(1 << 63), (1 << 63) - 1)
positions = st.builds(Position, longs, longs)
aborts = st.lists(st.tuples(st.builds(TxnId, longs, longs), positions), max_size=30)
SCHEMA = parse_schema(SNAPSHOT_SCHEMA)


def as_record(topic: str, snapshot: BufferSnapshot) -> dict[str, Any]:
    return {
        "topicName": topic,
        "maxReadPositionLedgerId": snapshot.position.ledger_id,
        "maxReadPositionEntryId": snapshot.position.entry_id,
        "aborts": [
            {"txnIdMostBits": t[0], "txnIdLeastBits": t[1], "ledgerId": m[0], "entryId": m[1]}
            for t, m in snapshot.aborts
        ],
    }


def read(data: bytes, most: int) -> tuple[str, BufferSnapshot]:
    reader, found = SnapshotReader(data), []
    while some := reader.some(most):
        assert len(some) <= most
        found += some
    topic, position = reader.rest()
    return topic, BufferSnapshot(position, tuple(found))


@given(topic=st.text(), position=positions, aborted=aborts, most=st.integers(1, 7))
def test_both_write_the_same_and_read_it(topic: str, position: Position, aborted: list, most: int) -> None:
    snapshot = BufferSnapshot(position, tuple(aborted))
    out = io.BytesIO()
    schemaless_writer(out, SCHEMA, as_record(topic, snapshot))
    data = encode_snapshot(topic, snapshot)
    assert data == out.getvalue()
    assert schemaless_reader(io.BytesIO(data), SCHEMA, None) == as_record(topic, snapshot)
    assert read(data, most) == decode_snapshot(data, SCHEMA) == (topic, snapshot)


@given(data=st.binary(max_size=60))
def test_what_is_none_is_told(data: bytes) -> None:
    try:
        found = read(data, 5)
    except CorruptionError:
        return  # the library takes more: a kind of -1, or a number of more than ten bytes
    assert found == decode_snapshot(data, SCHEMA)
