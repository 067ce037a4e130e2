"""Headers in front of payloads: checksum, message metadata, broker entry metadata."""

from __future__ import annotations

import pytest

from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import metadata

MESSAGE = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=7, num_messages_in_batch=3)
ENTRY = metadata.encode_entry(MESSAGE, b"payload")


def test_entry_example() -> None:
    assert metadata.encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), b"x") == (
        bytes.fromhex("0e01 d92c604b 00000007 0a 01 70 10 01 18 02 78")
    )


def test_entry_gives_its_metadata_and_payload_back() -> None:
    found, offset = metadata.split_entry(ENTRY)
    assert found == MESSAGE
    assert ENTRY[offset:] == b"payload"
    assert metadata.checksum_matches(ENTRY)


def test_flipped_bit_is_found_by_the_checksum() -> None:
    for bit in range(16, len(ENTRY) * 8):
        damaged = bytearray(ENTRY)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not metadata.checksum_matches(bytes(damaged))


def test_entry_without_checksum_is_accepted() -> None:
    bare = ENTRY[6:]
    assert metadata.checksum_matches(bare)
    assert metadata.peek_metadata(bare) == MESSAGE


@pytest.mark.parametrize("size", range(len(ENTRY) - len(b"payload")))
def test_truncated_headers_give_nothing(size: int) -> None:
    assert metadata.split_entry(ENTRY[:size]) == (None, 0)


@pytest.mark.parametrize("entry", [ENTRY, ENTRY[6:]], ids=["checksum", "none"])
def test_the_id_of_a_transaction_is_added_where_it_is_not(entry: bytes) -> None:
    txn_id = TxnId(2**63, 300)
    first = metadata.in_transaction([entry], txn_id)
    assert first is not None
    found, offset = metadata.split_entry(first[0])
    want = pb.MessageMetadata(txnid_most_bits=txn_id.coordinator, txnid_least_bits=txn_id.number)
    want.MergeFrom(MESSAGE)
    assert found == want
    assert first[0][offset:] == b"payload"
    assert metadata.checksum_matches(first[0])
    assert metadata.in_transaction([*first, entry], txn_id) == [first[0]] * 2, "what names it stays as it is"
    assert metadata.in_transaction([entry, *first], TxnId(0, 300)) is None
    for size in range(12):
        assert metadata.in_transaction([entry[:size]], txn_id) == [entry[:size]], "what is damaged stays as it is"


@pytest.mark.parametrize("entry", [ENTRY, ENTRY[6:]], ids=["checksum", "none"])
def test_the_id_of_a_transaction_in_the_payload_says_nothing(entry: bytes) -> None:
    fields = pb.MessageMetadata(txnid_most_bits=5, txnid_least_bits=6).SerializePartialToString()
    (named,) = metadata.in_transaction([entry + fields], TxnId(5, 6)) or [b""]
    assert metadata.peek_metadata(named) != MESSAGE


def test_broker_entry_metadata_is_found_skipped_and_stripped() -> None:
    whole = metadata.encode_broker_entry_metadata(broker_timestamp_ms=9, index=11) + ENTRY
    assert metadata.broker_entry_metadata(whole) == pb.BrokerEntryMetadata(broker_timestamp=9, index=11)
    assert metadata.peek_metadata(whole) == MESSAGE
    assert whole[metadata.message_offset(whole) :] == ENTRY
    assert metadata.strip_broker_entry_metadata(whole) == ENTRY
    assert metadata.strip_broker_entry_metadata(ENTRY) == ENTRY
    assert metadata.broker_entry_metadata(ENTRY) is None


def test_damaged_broker_entry_metadata_gives_nothing() -> None:
    assert metadata.broker_entry_metadata(b"\x0e\x02") is None
    assert metadata.broker_entry_metadata(b"\x0e\x02\x00\x00\x00\x02\xff\xff") is None
    assert metadata.peek_metadata(b"\x0e\x02\x7f\xff\xff\xff") is None
