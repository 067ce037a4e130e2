"""Entries that brokers write for brokers into a topic: the ends of transactions (docs/formats/transactions.md)."""

from __future__ import annotations

from typing import Final

from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry

#: ``MarkerType`` of Pulsar.
COMMIT: Final = 21
ABORT: Final = 22
#: Name of the producer in their metadata, and their sequence id (-1 as uint64).
PRODUCER_NAME: Final = "pulsar.txn.marker"
SEQUENCE_ID: Final = (1 << 64) - 1


def transaction_marker(txn_id: TxnId, *, commit: bool, now_ms: int) -> bytes:
    """The entry that says how a transaction ended."""
    metadata = pb.MessageMetadata(
        producer_name=PRODUCER_NAME,
        sequence_id=SEQUENCE_ID,
        publish_time=now_ms,
        marker_type=COMMIT if commit else ABORT,
        txnid_least_bits=txn_id.number,
        txnid_most_bits=txn_id.coordinator,
    )
    return encode_entry(metadata, b"")


#: What such an entry's metadata take at least: no shorter ones say how a transaction ended.
MARKER_BYTES_MIN: Final = len(
    pb.MessageMetadata(
        producer_name=PRODUCER_NAME,
        sequence_id=SEQUENCE_ID,
        marker_type=COMMIT,
        txnid_least_bits=0,
        txnid_most_bits=0,
    ).SerializePartialToString()
)


def is_end(metadata: pb.MessageMetadata) -> bool:
    """Whether an entry with a transaction's id says how it ended, and is no client's that claims to."""
    return (
        metadata.marker_type in (COMMIT, ABORT)
        and metadata.sequence_id == SEQUENCE_ID
        and metadata.producer_name == PRODUCER_NAME
    )


def transaction_of(metadata: pb.MessageMetadata) -> TxnId | None:
    """The transaction that a message or a marker belongs to; None: none."""
    if metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits"):
        return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)
    return None
