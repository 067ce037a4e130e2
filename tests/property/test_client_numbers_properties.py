"""Numbers of clients: what a SEND's entry is refused for, and what it counts as, against the whole metadata."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.numbers import (
    BATCH_MESSAGES_BELIEVED,
    BATCH_MESSAGES_MAX,
    LONG_MAX,
    METADATA_LIMITS,
    as_long,
    batch_size,
    is_suspect,
    metadata_refusal,
    plain_metadata_bytes,
    send_refusal,
)

int32 = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-3, 3), st.sampled_from([-(1 << 31), (1 << 31) - 1])
)
uint64 = st.one_of(st.integers(0, (1 << 64) - 1), st.sampled_from([0, LONG_MAX, LONG_MAX + 1, (1 << 64) - 1]))
metadatas = st.builds(
    pb.MessageMetadata,
    producer_name=st.text(max_size=300),
    sequence_id=uint64,
    publish_time=uint64,
    num_messages_in_batch=st.none() | int32,
    num_chunks_from_msg=st.none() | int32,
    chunk_id=st.none() | int32,
    total_chunk_msg_size=st.none() | int32,
    highest_sequence_id=st.none() | uint64,
    uncompressed_size=st.none() | st.integers(0, (1 << 32) - 1),
    compression=st.none() | st.sampled_from([pb.NONE, pb.LZ4]),
)


@given(metadatas, st.binary(max_size=300))
def test_entry_is_refused_for_the_fields_beyond_their_limits(metadata: pb.MessageMetadata, payload: bytes) -> None:
    entry = encode_entry(metadata, payload)
    beyond = [
        name for name, (least, largest) in METADATA_LIMITS.items() if not least <= getattr(metadata, name) <= largest
    ]
    refusal = metadata_refusal(entry)
    assert bool(refusal) == bool(beyond)
    assert not beyond or refusal.startswith(beyond[0])
    # The quick look finds every negative number.
    if any(getattr(metadata, name) < 0 for name in beyond):
        size = metadata.ByteSize()
        assert size > plain_metadata_bytes(metadata.producer_name)
        assert is_suspect(entry)


@given(st.binary(max_size=40))
def test_any_bytes_are_looked_at_without_an_error(data: bytes) -> None:
    metadata_refusal(data)
    send_refusal(data)
    if len(data) >= 10:
        is_suspect(data)


@given(metadatas, st.integers(0, 10_000_000))
def test_batch_counts_as_one_to_what_its_bytes_can_hold(metadata: pb.MessageMetadata, entry_bytes: int) -> None:
    size = batch_size(metadata, entry_bytes)
    told = metadata.num_messages_in_batch
    assert 1 <= size <= BATCH_MESSAGES_MAX
    assert size <= max(told, 1)
    if 1 <= told <= BATCH_MESSAGES_BELIEVED:
        assert size == told
    elif not metadata.compression:
        assert size <= max(BATCH_MESSAGES_BELIEVED, entry_bytes // 6)


@given(uint64)
def test_long_is_what_java_means_or_nothing(number: int) -> None:
    assert as_long(number) == (number if number < 1 << 63 else 0)
