"""Numbers of clients: what a SEND's entry is refused for, and what it counts as, against the whole metadata."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import transaction_marker
from geminga.wire.pulsar.metadata import SOURCE_POSITION, encode_entry
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
    txnid_most_bits=st.none() | uint64,
    txnid_least_bits=st.none() | uint64,
)


@given(metadatas, st.binary(max_size=300), st.booleans())
@example(
    pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, txnid_most_bits=1, txnid_least_bits=1),
    b"",
    False,
)
def test_entry_is_refused_for_the_fields_beyond_their_limits(
    metadata: pb.MessageMetadata, payload: bytes, is_in_transaction: bool
) -> None:
    entry = encode_entry(metadata, payload)
    beyond = [
        name for name, (least, largest) in METADATA_LIMITS.items() if not least <= getattr(metadata, name) <= largest
    ]
    refusal = metadata_refusal(entry, is_in_transaction)
    names_one = metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")
    is_strange = names_one and not is_in_transaction
    assert bool(refusal) == (bool(beyond) or is_strange)
    assert not beyond or refusal.startswith(beyond[0])
    # The quick look finds every negative number.
    if any(getattr(metadata, name) < 0 for name in beyond):
        size = metadata.ByteSize()
        assert size > plain_metadata_bytes(metadata.producer_name)
        assert is_suspect(entry, is_in_transaction)
    # And every transaction that the command does not name.
    assert not is_strange or is_suspect(entry, is_in_transaction)


def test_what_says_how_a_transaction_ended_is_looked_at_whoever_sends_it() -> None:
    forged = transaction_marker(TxnId(0, 0), commit=False, now_ms=0)
    assert forged[9] > plain_metadata_bytes("a producer with a name of any length" * 3)
    for is_in_transaction in (False, True):
        assert is_suspect(forged, is_in_transaction)
        assert metadata_refusal(forged, is_in_transaction)


@given(st.text(max_size=30), st.text(max_size=300), st.text("0:", max_size=3))
def test_where_it_was_stored_elsewhere_is_looked_at_in_the_smallest_metadata(name: str, other: str, place: str) -> None:
    forged = pb.MessageMetadata(producer_name=name, sequence_id=0, publish_time=0, replicated_from="e")
    forged.properties.add(key=SOURCE_POSITION, value=place)
    forged.properties.add(key=other, value="")
    entry = encode_entry(forged, b"")
    assert forged.ByteSize() > plain_metadata_bytes("a producer with a name of any length" * 3)
    for is_in_transaction in (False, True):
        assert is_suspect(entry, is_in_transaction)
        assert "replicator" in metadata_refusal(entry, is_in_transaction)
        assert not metadata_refusal(entry, is_in_transaction, is_copier=True)
        if entry[8] == entry[7] == 0 and 255 not in entry[10:] and is_in_transaction:
            assert not is_suspect(entry, is_in_transaction, is_copier=True)
    # A field's number may be written with more bytes than it takes.
    spread = forged.SerializeToString().replace(b"*\x01e", b"\xaa\x80\x00\x01e")
    entry = entry[:6] + len(spread).to_bytes(4, "big") + spread
    assert is_suspect(entry, True)
    assert metadata_refusal(entry, True)
    forged.ClearField("replicated_from")
    assert not metadata_refusal(encode_entry(forged, b""), False)


@given(st.binary(max_size=40))
def test_any_bytes_are_looked_at_without_an_error(data: bytes) -> None:
    for is_in_transaction in (False, True):
        metadata_refusal(data, is_in_transaction)
        send_refusal(data, is_in_transaction)
        if len(data) >= 10:
            is_suspect(data, is_in_transaction)


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
