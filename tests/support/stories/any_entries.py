"""Entries as any producer might have sent them, drawn by Hypothesis."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from geminga.lake.core.rows import ABORTED, CHUNK, ENCRYPTED, MARKER, MESSAGE, UNDECODABLE
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compression import compress
from geminga.wire.pulsar.metadata import encode_broker_entry_metadata, encode_entry

uint64 = st.integers(0, 3) | st.integers(0, (1 << 64) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
text = st.text(string.ascii_letters + "äß=+/", max_size=6)
key = text | st.sampled_from(["a2V5", "not base64!", ""])
blob = st.binary(max_size=40)
pairs = st.lists(st.tuples(text, text), max_size=3)


def _fill(draw, metadata, keys) -> None:
    """Fields that messages of a batch and messages of their own have both."""
    for name, value in draw(pairs):
        metadata.properties.add(key=name, value=value)
    for name, values in (
        ("partition_key", keys),
        ("partition_key_b64_encoded", st.booleans()),
        ("null_partition_key", st.booleans()),
        ("ordering_key", blob),
        ("event_time", uint64),
        ("null_value", st.booleans()),
    ):
        value = draw(st.none() | values)
        if value is not None:
            setattr(metadata, name, value)


@st.composite
def entries(draw, keys: st.SearchStrategy[str] = key) -> tuple[bytes, str]:
    """An entry as a producer might send it, and what it is."""
    metadata = pb.MessageMetadata(
        producer_name=draw(text), sequence_id=draw(uint64), publish_time=draw(uint64 | st.just(1_700_000_000_000))
    )
    for name, values in (
        ("replicated_from", text),
        ("schema_version", blob),
        ("deliver_at_time", st.integers(-(1 << 63), (1 << 63) - 1)),
        ("txnid_most_bits", uint64),
        ("txnid_least_bits", uint64),
        ("highest_sequence_id", uint64),
        ("uuid", text),
    ):
        value = draw(st.none() | values)
        if value is not None:
            setattr(metadata, name, value)
    metadata.replicate_to.extend(draw(st.lists(text, max_size=2)))
    kind = draw(st.sampled_from([MESSAGE, MESSAGE, "batch", CHUNK, ENCRYPTED, MARKER, ABORTED, UNDECODABLE]))
    payload = draw(blob | st.just(b"x" * 5000))
    if kind == "batch":
        parts = []
        for _ in range(draw(st.integers(1, 5))):
            single = pb.SingleMessageMetadata(payload_size=0)
            _fill(draw, single, keys)
            if draw(st.booleans()):
                single.sequence_id = draw(uint64)
            single.compacted_out = draw(st.booleans())
            value = draw(blob)
            single.payload_size = len(value)
            head = single.SerializeToString()
            parts.append(len(head).to_bytes(4, "big") + head + value)
        metadata.num_messages_in_batch = len(parts)
        payload = b"".join(parts) + draw(st.sampled_from([b"", b"", b"behind"]))
    else:
        _fill(draw, metadata, keys)
    if kind == CHUNK:
        metadata.num_chunks_from_msg, metadata.chunk_id = draw(st.integers(2, 9)), draw(int32)
        metadata.total_chunk_msg_size = draw(int32)
    elif kind == ENCRYPTED:
        metadata.encryption_keys.add(key="k", value=b"v")
        if draw(st.booleans()):
            metadata.num_messages_in_batch = draw(int32)
    elif kind == MARKER:
        metadata.marker_type = draw(int32)
    codec = draw(st.integers(0, 4)) if kind in (MESSAGE, "batch") else 0
    if codec:
        metadata.compression, metadata.uncompressed_size = codec, len(payload)
        payload = compress(codec, payload)
    entry = encode_entry(metadata, payload)
    if kind == UNDECODABLE:
        cut = draw(st.integers(0, len(entry) - 1))
        entry = draw(st.sampled_from([entry[:cut], entry[:6] + bytes([entry[6] ^ 1]) + entry[7:], b"", b"junk"]))
    elif draw(st.booleans()):
        entry = encode_broker_entry_metadata(broker_timestamp_ms=draw(uint64), index=draw(uint64)) + entry
    elif draw(st.booleans()):
        entry = entry[6:]  # of a client that sends no checksum
    return entry, kind
