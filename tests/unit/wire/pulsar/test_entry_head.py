"""Heads of entries: what a reader that counts gets instead of the payload."""

from __future__ import annotations

import pytest

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.entry_head import entry_head, split_head

METADATA = pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=9, num_messages_in_batch=3)
BROKER = pb.BrokerEntryMetadata(broker_timestamp=5, index=6).SerializeToString()
ENCODED = METADATA.SerializeToString()
PLAIN = len(ENCODED).to_bytes(4, "big") + ENCODED + b"payload"


@pytest.mark.parametrize(
    "entry",
    [
        PLAIN,
        b"\x0e\x01abcd" + PLAIN,
        b"\x0e\x02" + len(BROKER).to_bytes(4, "big") + BROKER + PLAIN,
        b"\x0e\x02" + len(BROKER).to_bytes(4, "big") + BROKER + b"\x0e\x01abcd" + PLAIN,
    ],
)
def test_head_has_the_metadata_and_the_size_of_what_was_left_out(entry: bytes) -> None:
    assert split_head(entry_head(entry)) == (ENCODED, 7)


def test_empty_payload_has_a_head_too() -> None:
    assert split_head(entry_head(PLAIN[:-7])) == (ENCODED, 0)


@pytest.mark.parametrize(
    "entry", [b"", b"\x00", b"\x00\x00\x00\x05abc", b"\x0e\x01", b"\x0e\x02\xff\xff\xff\xff", PLAIN[:12]]
)
def test_entry_without_whole_metadata_is_left_as_it_is_and_no_head(entry: bytes) -> None:
    assert entry_head(entry) == entry
    with pytest.raises(ValueError, match="no head"):
        split_head(entry)


def test_whole_entry_is_no_head() -> None:
    with pytest.raises(ValueError, match="no head"):
        split_head(PLAIN)
