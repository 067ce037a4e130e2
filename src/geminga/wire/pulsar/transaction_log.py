"""Records of a transaction coordinator's log and of a pending-ack log, as plain values.

Format: docs/formats/transactions.md. An entry holds one record, or several in the batched form. Decoding raises
:class:`CorruptionError`; what Pulsar wrote encodes to the same bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, cast

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.model.txn_id import TxnId, TxnStatus, TxnSubscription
from geminga.wire._generated import transaction_log_pb2 as pb
from geminga.wire.pulsar.varint import encode_varint

#: In front of the batched form: a tag that no single record begins with, and the version.
BATCH_MAGIC: Final = b"\x0e\x01"
BATCH_VERSION: Final = 1
_PREFIX_BYTES: Final = 4


class LogOp(IntEnum):
    """What a record of a coordinator's log says."""

    NEW = 0
    ADD_PARTITION = 1
    ADD_SUBSCRIPTION = 2
    UPDATE = 3


class AckOp(IntEnum):
    """What a record of a pending-ack log says."""

    ACK = 1
    COMMIT = 2
    ABORT = 3


class TransactionRecord(NamedTuple):
    """One change of one transaction; fields that its operation has no use for are None or empty. Times in ms."""

    op: LogOp
    txn_id: TxnId
    expected_status: TxnStatus | None = None
    new_status: TxnStatus | None = None
    partitions: tuple[str, ...] = ()
    subscriptions: tuple[TxnSubscription, ...] = ()
    timeout_ms: int | None = None
    start_ms: int | None = None
    modified_ms: int | None = None
    max_number: int | None = None
    owner: str | None = None


class PendingAck(NamedTuple):
    """What is acknowledged of an entry: all of it, or with ``words`` (int64, a set bit = NOT acknowledged) a part.

    ``batch_size``: messages of the entry; None where the record does not say.
    """

    ledger_id: int
    entry_id: int
    words: tuple[int, ...] = ()
    batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class PendingAckRecord:
    """One record of a pending-ack log."""

    op: AckOp
    txn_id: TxnId
    is_cumulative: bool = False
    acks: tuple[PendingAck, ...] = ()


def decode_transaction_records(data: bytes) -> list[TransactionRecord]:
    """The records of one entry of a coordinator's log, in order."""
    try:
        if data[:2] == BATCH_MAGIC:
            entries = pb.BatchedTransactionMetadataEntry.FromString(_batch_body(data)).transaction_logs
            return [_transaction_record(entry) for entry in entries]
        return [_transaction_record(pb.TransactionMetadataEntry.FromString(data))]
    except (DecodeError, ValueError) as error:
        raise CorruptionError(f"an entry of a transaction log can not be read: {error}") from error


def encode_transaction_record(record: TransactionRecord) -> bytes:
    """One record in the single form: the bytes of the generated class, made here, for each transaction has four."""
    op, (coordinator, number), expected, new, partitions, subscriptions, timeout, start, modified, last, owner = record
    parts = [b"\x08", encode_varint(op), b"\x10", encode_varint(number), b"\x18", encode_varint(coordinator)]
    if expected is not None:
        parts += (b"\x20", encode_varint(expected))
    if new is not None:
        parts += (b"\x28", encode_varint(new))
    for name in partitions:
        text = name.encode()
        parts += (b"\x32", encode_varint(len(text)), text)
    for each in subscriptions:
        topic, subscription = each.topic.encode(), each.subscription.encode()
        part = b"\x0a%b%b\x12%b%b" % (encode_varint(len(topic)), topic, encode_varint(len(subscription)), subscription)
        parts += (b"\x3a", encode_varint(len(part)), part)
    for tag, value in ((b"\x40", timeout), (b"\x48", start), (b"\x50", modified), (b"\x58", last)):
        if value is not None:
            parts += (tag, encode_varint(value))
    if owner is not None:
        text = owner.encode()
        parts += (b"\x62", encode_varint(len(text)), text)
    return b"".join(parts)


def encode_transaction_records(records: Sequence[TransactionRecord]) -> bytes:
    """Several records in the batched form."""
    batch = pb.BatchedTransactionMetadataEntry(transaction_logs=[_transaction_entry(record) for record in records])
    return _batch_prefix() + batch.SerializeToString(deterministic=True)


def decode_pending_ack_records(data: bytes) -> list[PendingAckRecord]:
    """The records of one entry of a pending-ack log, in order."""
    try:
        if data[:2] == BATCH_MAGIC:
            entries = pb.BatchedPendingAckMetadataEntry.FromString(_batch_body(data)).pending_ack_logs
            return [_pending_ack_record(entry) for entry in entries]
        return [_pending_ack_record(pb.PendingAckMetadataEntry.FromString(data))]
    except (DecodeError, ValueError) as error:
        raise CorruptionError(f"an entry of a pending-ack log can not be read: {error}") from error


def encode_pending_ack_record(record: PendingAckRecord) -> bytes:
    """One record in the single form."""
    return _pending_ack_entry(record).SerializeToString(deterministic=True)


def encode_pending_ack_records(records: Sequence[PendingAckRecord]) -> bytes:
    """Several records in the batched form."""
    batch = pb.BatchedPendingAckMetadataEntry(pending_ack_logs=[_pending_ack_entry(record) for record in records])
    return _batch_prefix() + batch.SerializeToString(deterministic=True)


def _batch_prefix() -> bytes:
    return BATCH_MAGIC + BATCH_VERSION.to_bytes(2, "big")


def _batch_body(data: bytes) -> bytes:
    version = int.from_bytes(data[2:_PREFIX_BYTES], "big")
    if len(data) < _PREFIX_BYTES or version != BATCH_VERSION:
        raise CorruptionError(f"an entry of a transaction log has version {version}; only {BATCH_VERSION} is known")
    return data[_PREFIX_BYTES:]


def _transaction_record(entry: pb.TransactionMetadataEntry) -> TransactionRecord:
    if not entry.HasField("metadata_op"):
        raise CorruptionError("a record of a transaction log does not say what it is")
    return TransactionRecord(
        op=LogOp(entry.metadata_op),
        txn_id=TxnId(entry.txnid_most_bits, entry.txnid_least_bits),
        expected_status=TxnStatus(entry.expected_status) if entry.HasField("expected_status") else None,
        new_status=TxnStatus(entry.new_status) if entry.HasField("new_status") else None,
        partitions=tuple(entry.partitions),
        subscriptions=tuple(TxnSubscription(each.topic, each.subscription) for each in entry.subscriptions),
        timeout_ms=entry.timeout_ms if entry.HasField("timeout_ms") else None,
        start_ms=entry.start_time if entry.HasField("start_time") else None,
        modified_ms=entry.last_modification_time if entry.HasField("last_modification_time") else None,
        max_number=entry.max_local_txn_id if entry.HasField("max_local_txn_id") else None,
        owner=entry.owner if entry.HasField("owner") else None,
    )


def _transaction_entry(record: TransactionRecord) -> pb.TransactionMetadataEntry:
    entry = pb.TransactionMetadataEntry(
        metadata_op=cast("pb.TransactionMetadataEntry.TransactionMetadataOp", int(record.op)),
        txnid_least_bits=record.txn_id.number,
        txnid_most_bits=record.txn_id.coordinator,
        partitions=record.partitions,
        subscriptions=[
            pb.TransactionMetadataEntry.Subscription(topic=each.topic, subscription=each.subscription)
            for each in record.subscriptions
        ],
        timeout_ms=record.timeout_ms,
        start_time=record.start_ms,
        last_modification_time=record.modified_ms,
        max_local_txn_id=record.max_number,
        owner=record.owner,
    )
    if record.expected_status is not None:
        entry.expected_status = cast("pb.TxnStatus", int(record.expected_status))
    if record.new_status is not None:
        entry.new_status = cast("pb.TxnStatus", int(record.new_status))
    return entry


def _pending_ack_record(entry: pb.PendingAckMetadataEntry) -> PendingAckRecord:
    if not entry.HasField("pending_ack_op"):
        raise CorruptionError("a record of a pending-ack log does not say what it is")
    return PendingAckRecord(
        op=AckOp(entry.pending_ack_op),
        txn_id=TxnId(entry.txnid_most_bits, entry.txnid_least_bits),
        is_cumulative=entry.ack_type == pb.PendingAckMetadataEntry.Cumulative,
        acks=tuple(
            PendingAck(
                ack.ledgerId,
                ack.entryId,
                tuple(ack.ack_set),
                ack.batch_size if ack.HasField("batch_size") else None,
            )
            for ack in entry.pending_ack_metadata
        ),
    )


def _pending_ack_entry(record: PendingAckRecord) -> pb.PendingAckMetadataEntry:
    of_type = pb.PendingAckMetadataEntry.Cumulative if record.is_cumulative else pb.PendingAckMetadataEntry.Individual
    return pb.PendingAckMetadataEntry(
        pending_ack_op=cast("pb.PendingAckOp", int(record.op)),
        ack_type=of_type,
        txnid_least_bits=record.txn_id.number,
        txnid_most_bits=record.txn_id.coordinator,
        pending_ack_metadata=[
            pb.PendingAckMetadata(
                ledgerId=ack.ledger_id, entryId=ack.entry_id, ack_set=ack.words, batch_size=ack.batch_size
            )
            for ack in record.acks
        ],
    )
