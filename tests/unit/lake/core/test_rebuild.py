"""Entries as they are rebuilt from rows, and whether they are those that were stored."""

from __future__ import annotations

import pytest

from geminga.lake.core.rebuild import is_same, rebuild, rebuild_entries
from geminga.model.errors import CorruptionError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compression import compress
from geminga.wire.pulsar.metadata import encode_entry, split_entry

PAYLOAD = b"some bytes " * 20


def entry_of(payload: bytes, compression: int = pb.NONE, **fields) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", publish_time=1, **{"sequence_id": 1, **fields})
    if compression:
        metadata.compression, metadata.uncompressed_size = compression, len(payload)
        payload = compress(compression, payload)
    return encode_entry(metadata, payload)


def head_of(entry: bytes) -> bytes:
    return entry[: split_entry(entry)[1]]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def test_entry_is_rebuilt_of_its_head_and_payload_and_changed_bytes_are_an_error() -> None:
    entry = entry_of(PAYLOAD)
    assert rebuild(head_of(entry), PAYLOAD) == entry
    with pytest.raises(CorruptionError, match="checksum"):
        rebuild(head_of(entry), flipped(PAYLOAD, 7))
    with pytest.raises(CorruptionError, match="checksum"):
        rebuild(head_of(entry_of(PAYLOAD, sequence_id=2)), PAYLOAD[:-1])


@pytest.mark.parametrize("compression", [pb.NONE, pb.LZ4, pb.ZSTD])
def test_rebuilt_entry_is_the_stored_one(compression: int) -> None:
    entry = entry_of(PAYLOAD, compression)
    assert is_same(entry, rebuild(head_of(entry), PAYLOAD))


@pytest.mark.parametrize("compression", [pb.NONE, pb.LZ4])
def test_entry_with_other_metadata_or_another_payload_is_not_the_same(compression: int) -> None:
    entry = entry_of(PAYLOAD, compression)
    assert not is_same(entry, entry_of(PAYLOAD, compression, sequence_id=2))
    assert not is_same(entry, entry_of(PAYLOAD[::-1], compression))


def test_entry_that_clients_would_refuse_is_not_the_same() -> None:
    entry = entry_of(PAYLOAD, pb.LZ4)
    # Magic number, then the checksum.
    assert not is_same(entry, flipped(entry, 3))


def test_rows_that_make_no_entry_are_told() -> None:
    head = head_of(entry_of(PAYLOAD))
    assert rebuild_entries([4, 5], [head, None], [None, None], [PAYLOAD, None], [None, b"raw"]) == [
        (4, entry_of(PAYLOAD)),
        (5, b"raw"),
    ]
    with pytest.raises(CorruptionError, match="entry 4 has neither a head nor its bytes"):
        rebuild_entries([4], [None], [None], [PAYLOAD], [None])
    with pytest.raises(CorruptionError, match="entry 4 has 2 rows and is no batch"):
        rebuild_entries([4, 4], [head, head], [None, None], [PAYLOAD, PAYLOAD], [None, None])
    for broken in (b"", head[:-1], head + b"x"):
        with pytest.raises(CorruptionError, match=r"can not be read|checksum"):
            rebuild(broken, PAYLOAD)


def test_an_entry_that_can_not_be_decompressed_is_not_the_same() -> None:
    entry = entry_of(PAYLOAD, pb.ZSTD)
    offset = split_entry(entry)[1]
    assert not is_same(entry, head_of(entry) + b"no zstd")
    assert not is_same(entry[:offset] + b"no zstd", rebuild(head_of(entry), PAYLOAD))
