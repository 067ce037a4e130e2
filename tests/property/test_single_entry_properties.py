"""An entry that is read without taking its metadata apart is what the general way makes of it."""

from __future__ import annotations

import crc32c
from hypothesis import given
from hypothesis import strategies as st

from geminga.client._consuming.entries import EntryReader
from geminga.client._messages.consumer_options import ConsumerCryptoFailureAction
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.message import Message
from geminga.client._messages.single_entry import single_entry
from geminga.client.consumer_rules.chunk_assembly import ChunkAssembly
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.hot import encode_message_head

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
TEXTS = st.text(max_size=200)
FIELDS = {
    "properties": st.lists(st.builds(lambda k, v: pb.KeyValue(key=k, value=v), TEXTS, TEXTS), max_size=2),
    "partition_key": TEXTS,
    "partition_key_b64_encoded": st.booleans(),
    "ordering_key": st.binary(max_size=5),
    "event_time": NUMBERS,
    "null_value": st.booleans(),
    "schema_version": st.binary(max_size=9),
    "replicated_from": TEXTS,
    "uncompressed_size": st.integers(0, 1 << 31),
    "highest_sequence_id": NUMBERS,
}


@st.composite
def metadata(draw: st.DrawFn) -> pb.MessageMetadata:
    """Of one message; half of the time with nothing but what all have, and perhaps a key."""
    made = pb.MessageMetadata(producer_name=draw(TEXTS), sequence_id=draw(NUMBERS), publish_time=draw(NUMBERS))
    names = draw(st.one_of(st.just([]), st.just(["partition_key"]), st.lists(st.sampled_from(sorted(FIELDS)))))
    for name in set(names):
        value = draw(FIELDS[name])
        getattr(made, name).extend(value) if name == "properties" else setattr(made, name, value)
    return made


def headers_and_payload(encoded: bytes, payload: bytes) -> bytes:
    body = len(encoded).to_bytes(4, "big") + encoded + payload
    return b"\x0e\x01" + crc32c.crc32c(body).to_bytes(4, "big") + body


def seen(entry: EntryBatch) -> tuple:
    """All that an application can ask for."""
    message: Message[bytes] = Message(entry, 0)
    names = ("key", "ledger_id", "entry_id", "partition", "topic_name", "redelivery_count", "size_bytes", "order")
    more = ("is_batch", "batch_size", "is_undecrypted", "acker", "first_chunk", "key_bounds", "key_data", "metadata")
    return (
        *(getattr(entry, name) for name in (*names, *more, "flags", "message_count", "broker_entry_metadata")),
        *(list(getattr(entry, name)) for name in ("payload_starts", "payload_ends", "key_starts", "key_ends")),
        *(message.data(), message.partition_key(), message.key_bytes(), message.has_key(), message.has_null_value()),
        *(message.message_id(), message.properties(), message.publish_timestamp(), message.event_timestamp()),
        *(message.sequence_id(), message.producer_name(), message.ordering_key_bytes(), message.schema_version()),
        *(entry.payload(0), entry.partition_key(0), entry.key_as_sent(0), entry.message_id(0), len(entry)),
    )


@given(metadata(), st.binary(max_size=30), st.sampled_from([0, 5000]))
def test_the_short_way_and_the_general_way_agree(made: pb.MessageMetadata, payload: bytes, padding: int) -> None:
    payload += bytes(padding)
    data = headers_and_payload(made.SerializeToString(), payload)
    short = single_entry(data, (3, 4), 2, "topic", 1)
    is_plain = {field.name for field, _ in made.ListFields()} <= {
        "producer_name",
        "sequence_id",
        "publish_time",
        "partition_key",
    }
    sizes = (len(made.producer_name.encode()), len(made.partition_key.encode()))
    fits = is_plain and max(sizes) < 128 and max(made.sequence_id, made.publish_time) < 1 << 63
    assert (short is not None) == fits
    if short is not None:
        general = EntryBatch(
            data, 10 + made.ByteSize(), made, 3, 4, partition=2, topic_name="topic", redelivery_count=1
        )
        assert seen(short) == seen(general)


@given(metadata(), st.binary(max_size=30), st.data())
def test_what_is_damaged_is_left_to_the_general_way(
    made: pb.MessageMetadata, payload: bytes, draw: st.DataObject
) -> None:
    data = bytearray(headers_and_payload(made.SerializeToString(), payload))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    assert single_entry(bytes(data), (3, 4), 2, "topic", 1) is None
    cut = draw.draw(st.integers(0, len(data) - 1))
    assert single_entry(bytes(data[:cut]), (3, 4), 2, "topic", 1) is None


@given(st.lists(st.tuples(metadata(), st.integers(0, 1 << 30), st.integers(0, 2)), max_size=8), st.integers(-1, 2))
def test_a_reader_gives_each_frame_its_head(frames, epoch: int) -> None:
    """Frames of one consumer: those of an older epoch are discarded, the others keep ids and order."""
    discarded: list[tuple[int, int]] = []
    reader = EntryReader(
        "t",
        ChunkAssembly(1, 0),
        decryptor=None,
        crypto_failure_action=ConsumerCryptoFailureAction.FAIL,
        now_ms=lambda: 0.0,
        on_discard=lambda key, why, permits: discarded.append(key),
        on_chunk=lambda *_: None,
    )
    reader.epoch = epoch
    read = []
    for made, entry_id, of_epoch in frames:
        data = headers_and_payload(made.SerializeToString(), b"x")
        head = encode_message_head(5, 1, entry_id, -1, len(data), consumer_epoch=of_epoch)
        command = head[8 : 8 + int.from_bytes(head[4:8], "big")]
        read.append((command, data))
    entries = reader.read(read)
    assert [entry.entry_id for entry in entries] == [number for _, number, of_epoch in frames if of_epoch >= epoch]
    assert [key[1] for key in discarded] == [number for _, number, of_epoch in frames if of_epoch < epoch]
