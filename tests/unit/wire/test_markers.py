"""Markers in a topic, byte for byte as Pulsar's brokers write them (docs/formats/transactions.md)."""

from __future__ import annotations

from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import ABORT, COMMIT, transaction_marker, transaction_of
from geminga.wire.pulsar.metadata import checksum_matches, split_entry


def test_a_marker_says_how_which_transaction_ended() -> None:
    for commit, kind in ((True, COMMIT), (False, ABORT)):
        entry = transaction_marker(TxnId(3, 7), commit=commit, now_ms=1234)
        assert checksum_matches(entry)
        metadata, offset = split_entry(entry)
        assert metadata is not None
        assert offset == len(entry), "no payload"
        assert metadata.marker_type == kind
        assert transaction_of(metadata) == TxnId(3, 7)
        assert (metadata.producer_name, metadata.sequence_id, metadata.publish_time) == (
            "pulsar.txn.marker",
            (1 << 64) - 1,
            1234,
        )


def test_an_ordinary_message_is_of_no_transaction() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    assert transaction_of(metadata) is None
    metadata.txnid_most_bits = 0
    assert transaction_of(metadata) is None
    metadata.txnid_least_bits = 0
    assert transaction_of(metadata) == TxnId(0, 0)
