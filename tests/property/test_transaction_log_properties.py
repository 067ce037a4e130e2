"""Records of the transaction logs come back as they were written, in both forms; broken bytes are refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import CorruptionError
from geminga.model.txn_id import TxnId, TxnStatus
from geminga.wire._generated import transaction_log_pb2 as pb
from geminga.wire.pulsar.transaction_log import (
    AckOp,
    LogOp,
    PendingAck,
    PendingAckRecord,
    TransactionRecord,
    TxnSubscription,
    decode_pending_ack_records,
    decode_transaction_records,
    encode_pending_ack_record,
    encode_pending_ack_records,
    encode_transaction_record,
    encode_transaction_records,
)

UINT64 = st.integers(0, (1 << 64) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
IDS = st.builds(TxnId, UINT64, UINT64)
TEXTS = st.text(max_size=20)
RECORDS = st.builds(
    TransactionRecord,
    op=st.sampled_from(LogOp),
    txn_id=IDS,
    expected_status=st.none() | st.sampled_from(TxnStatus),
    new_status=st.none() | st.sampled_from(TxnStatus),
    partitions=st.lists(TEXTS, max_size=3).map(tuple),
    subscriptions=st.lists(st.builds(TxnSubscription, TEXTS, TEXTS), max_size=3).map(tuple),
    timeout_ms=st.none() | UINT64,
    start_ms=st.none() | UINT64,
    modified_ms=st.none() | UINT64,
    max_number=st.none() | UINT64,
    owner=st.none() | TEXTS,
)
ACKS = st.builds(
    PendingAck,
    UINT64,
    UINT64,
    st.lists(INT64, max_size=3).map(tuple),
    st.none() | st.integers(0, (1 << 31) - 1),
)
ACK_RECORDS = st.builds(
    PendingAckRecord,
    op=st.sampled_from(AckOp),
    txn_id=IDS,
    is_cumulative=st.booleans(),
    acks=st.lists(ACKS, max_size=3).map(tuple),
)


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_transaction_records_come_back(records: list[TransactionRecord]) -> None:
    assert decode_transaction_records(encode_transaction_record(records[0])) == records[:1]
    assert decode_transaction_records(encode_transaction_records(records)) == records


@given(st.lists(ACK_RECORDS, min_size=1, max_size=4))
def test_pending_ack_records_come_back(records: list[PendingAckRecord]) -> None:
    assert decode_pending_ack_records(encode_pending_ack_record(records[0])) == records[:1]
    assert decode_pending_ack_records(encode_pending_ack_records(records)) == records


@given(st.binary(max_size=60), st.booleans())
def test_other_bytes_are_refused_or_mean_something(data: bytes, is_batched: bool) -> None:
    if is_batched:
        data = b"\x0e\x01\x00\x01" + data
    for decode in (decode_transaction_records, decode_pending_ack_records):
        try:
            decode(data)
        except CorruptionError:
            continue


def test_bytes_are_those_of_the_format() -> None:
    """By hand from the table of fields in docs/formats/transactions.md."""
    record = TransactionRecord(
        op=LogOp.UPDATE,
        txn_id=TxnId(3, 7),
        expected_status=TxnStatus.OPEN,
        new_status=TxnStatus.COMMITTING,
        max_number=9,
    )
    single = bytes.fromhex("0803 1007 1803 2000 2801 5809".replace(" ", ""))
    assert encode_transaction_record(record) == single
    assert encode_transaction_records([record]) == b"\x0e\x01\x00\x01\x0a" + bytes([len(single)]) + single
    ack = PendingAckRecord(AckOp.ACK, TxnId(3, 7), acks=(PendingAck(5, 6, (-1,), 2),))
    inner = bytes.fromhex("0805 1006 18ffffffffffffffffff01 2002".replace(" ", ""))
    assert (
        encode_pending_ack_record(ack)
        == bytes.fromhex("0801 1000 1807 2003 2a".replace(" ", "")) + bytes([len(inner)]) + inner
    )


def test_a_newer_batch_is_refused_by_its_version() -> None:
    with pytest.raises(CorruptionError, match="version 2"):
        decode_transaction_records(b"\x0e\x01\x00\x02")
    with pytest.raises(CorruptionError, match="version"):
        decode_pending_ack_records(b"\x0e\x01\x00")


@given(RECORDS)
def test_a_record_has_the_bytes_of_the_generated_class(record: TransactionRecord) -> None:
    """Pulsar's encoder writes these: what is written by hand must be nothing else."""
    data = encode_transaction_record(record)
    batched = encode_transaction_records([record])
    generated = pb.TransactionMetadataEntry.FromString(data)
    assert generated.SerializeToString(deterministic=True) == data
    assert pb.BatchedTransactionMetadataEntry.FromString(batched[4:]).transaction_logs == [generated]
