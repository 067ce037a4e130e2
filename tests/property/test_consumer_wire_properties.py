"""Hand-written codecs of the consumer's side against the generated protobuf classes."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.client._api.message_id import MessageId
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.message import Message
from geminga.model.errors import ProtocolError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches.batch_layout import (
    HAS_KEY,
    IS_NULL_VALUE,
    KEY_IS_BASE64,
    BatchFormatError,
    batch_layout,
)
from geminga.wire.pulsar.consumer_codec import MessageHeadDecoder, encode_ack, encode_flow

UINT64 = (1 << 64) - 1
ids = st.tuples(st.integers(-1, (1 << 63) - 1), st.integers(-1, (1 << 63) - 1))
words = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=4)
texts = st.text(st.characters(codec="utf-8"), max_size=20)

single_metadata = st.builds(
    lambda key, size, properties, event, base64, ordering, sequence, null, compacted: (
        pb.SingleMessageMetadata(
            partition_key=key,
            properties=[pb.KeyValue(key=name, value=value) for name, value in properties],
            event_time=event,
            partition_key_b64_encoded=base64,
            ordering_key=ordering,
            sequence_id=sequence,
            null_value=null,
            compacted_out=compacted,
            payload_size=size,
        ),
        b"p" * size,
    ),
    st.none() | texts,
    st.integers(0, 300),
    st.lists(st.tuples(texts, texts), max_size=2),
    st.none() | st.integers(0, UINT64),
    st.none() | st.booleans(),
    st.none() | st.binary(max_size=10),
    st.none() | st.integers(0, UINT64),
    st.none() | st.booleans(),
    st.none() | st.booleans(),
)


def encode(messages) -> bytes:
    parts = []
    for metadata, payload in messages:
        encoded = metadata.SerializeToString()
        parts.append(pack(">I", len(encoded)) + encoded + payload)
    return b"".join(parts)


def assert_layout_is_right(messages, prefix: bytes, rest: bytes) -> None:
    data = prefix + encode(messages) + rest
    layout = batch_layout(data, len(prefix), len(messages))
    assert layout.has_compacted_out == any(metadata.compacted_out for metadata, _ in messages)
    for index, (metadata, payload) in enumerate(messages):
        assert data[layout.payload_starts[index] : layout.payload_ends[index]] == payload
        start, end = layout.metadata_starts[index], layout.metadata_ends[index]
        assert pb.SingleMessageMetadata.FromString(data[start:end]) == metadata
        flags = layout.flags[index]
        assert bool(flags & HAS_KEY) == metadata.HasField("partition_key")
        assert bool(flags & KEY_IS_BASE64) == metadata.partition_key_b64_encoded
        assert bool(flags & IS_NULL_VALUE) == metadata.null_value
        if layout.key_starts is not None and layout.key_ends is not None:
            key = data[layout.key_starts[index] : layout.key_ends[index]]
            assert key == metadata.partition_key.encode()
        else:
            assert not metadata.HasField("partition_key")


@given(st.lists(single_metadata, min_size=1, max_size=12), st.binary(max_size=9), st.binary(max_size=9))
def test_layout_of_any_batch_is_that_of_its_messages(messages, prefix, rest) -> None:
    assert_layout_is_right(messages, prefix, rest)


@settings(deadline=None)
@given(
    single_metadata,
    st.integers(0, 20_000),
    st.lists(st.tuples(st.integers(1, 150), st.sampled_from(["same", "key", "payload", "null"])), max_size=5),
)
def test_layout_of_runs_of_equal_messages_is_right(first, sequence_id, runs) -> None:
    template, payload = first
    messages = []
    for length, change in runs or [(40, "same")]:
        template = pb.SingleMessageMetadata.FromString(template.SerializeToString())
        if change == "key":
            template.partition_key += "x"
        elif change == "payload":
            payload += b"x"
            template.payload_size = len(payload)
        elif change == "null":
            template.null_value = not template.null_value
        for _ in range(length):
            metadata = pb.SingleMessageMetadata.FromString(template.SerializeToString())
            metadata.sequence_id = sequence_id
            sequence_id += 1
            messages.append((metadata, payload))
    assert_layout_is_right(messages, b"", b"")


@given(st.lists(single_metadata, min_size=1, max_size=6), st.data())
def test_damaged_batches_are_refused_or_stay_within_their_bytes(messages, data) -> None:
    whole = encode(messages)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(BatchFormatError):
        batch_layout(cut, 0, len(messages))
    damaged = bytearray(whole)
    for _ in range(3):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        layout = batch_layout(bytes(damaged), 0, len(messages))
    except BatchFormatError:
        return
    starts, ends = list(layout.payload_starts), list(layout.payload_ends)
    assert all(0 <= start <= end <= len(whole) for start, end in zip(starts, ends, strict=True))


@given(
    st.integers(0, UINT64),
    st.lists(st.tuples(ids, st.none() | words), max_size=20),
    st.booleans(),
    st.none() | st.integers(0, UINT64),
)
def test_ack_is_what_the_generated_class_writes(consumer_id, acked, is_cumulative, request_id) -> None:
    frame = encode_ack(consumer_id, acked, is_cumulative=is_cumulative, request_id=request_id)
    command = pb.BaseCommand.FromString(frame[8:])
    expected = pb.BaseCommand(
        type=pb.BaseCommand.ACK,
        ack=pb.CommandAck(
            consumer_id=consumer_id,
            ack_type=pb.CommandAck.Cumulative if is_cumulative else pb.CommandAck.Individual,
            request_id=request_id,
            message_id=[
                pb.MessageIdData(ledgerId=ledger & UINT64, entryId=entry & UINT64, ack_set=ack_set or ())
                for (ledger, entry), ack_set in acked
            ],
        ),
    )
    assert command == expected
    assert frame[8:] == expected.SerializeToString()
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


@given(st.integers(0, UINT64), st.integers(0, (1 << 32) - 1))
def test_flow_is_what_the_generated_class_writes(consumer_id, permits) -> None:
    expected = pb.BaseCommand(
        type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
    )
    assert encode_flow(consumer_id, permits)[8:] == expected.SerializeToString()


messages_in = st.builds(
    lambda consumer, message_id, partition, count, ack_set, epoch: pb.BaseCommand(
        type=pb.BaseCommand.MESSAGE,
        message=pb.CommandMessage(
            consumer_id=consumer,
            message_id=pb.MessageIdData(
                ledgerId=message_id[0] & UINT64, entryId=message_id[1] & UINT64, partition=partition
            ),
            redelivery_count=count,
            ack_set=ack_set,
            consumer_epoch=epoch,
        ),
    ),
    st.integers(0, 300),
    st.tuples(st.integers(-1, 3), st.integers(-1, 40_000)),
    st.none() | st.integers(-1, 3),
    st.none() | st.integers(0, 3),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=2),
    st.none() | st.integers(0, 2),
)


@given(st.lists(messages_in, min_size=1, max_size=20))
def test_message_heads_are_read_as_the_generated_class_reads_them(commands) -> None:
    decoder = MessageHeadDecoder()
    for command in commands:
        message = command.message
        head = decoder.decode(command.SerializeToString())
        assert head.ledger_id & UINT64 == message.message_id.ledgerId
        assert head.entry_id & UINT64 == message.message_id.entryId
        assert head.partition == message.message_id.partition
        assert head.redelivery_count == message.redelivery_count
        assert list(head.ack_set) == list(message.ack_set)
        assert head.consumer_epoch == (message.consumer_epoch if message.HasField("consumer_epoch") else None)


@given(st.binary(max_size=40), messages_in)
def test_broken_message_heads_are_a_protocol_error(junk, command) -> None:
    decoder = MessageHeadDecoder()
    encoded = command.SerializeToString()
    decoder.decode(encoded)
    for broken in (b"\x08\x09\x4a" + junk, encoded[:-1], encoded[: len(encoded) // 2]):
        try:
            decoder.decode(broken)
        except ProtocolError:
            continue
        # Read, then: only if the generated class can read it as well.
        assert pb.BaseCommand.FromString(broken).message.IsInitialized()


@given(st.integers(1, 80), st.sets(st.integers(0, 79)), st.sets(st.integers(0, 79)))
def test_entry_delivers_what_the_ack_set_leaves_and_completes_with_it(size, acked, compacted) -> None:
    messages = []
    for index in range(size):
        metadata = pb.SingleMessageMetadata(payload_size=3, partition_key="k", compacted_out=index in compacted)
        messages.append((metadata, b"%03d" % index))
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=size)
    entry = EntryBatch(encode(messages), 0, metadata, 4, 5, partition=2, topic_name="t")
    left = [index for index in range(size) if index not in acked]
    bits = sum(1 << index for index in left)
    ack_set = [word - (1 << 64) if word >> 63 else word for word in (bits & UINT64, bits >> 64)] if left else []
    entry.keep_unacknowledged(ack_set, None)
    wanted = [index for index in (left or range(size)) if index not in compacted]
    assert list(entry.order) == wanted
    assert [Message(entry, index).data() for index in entry.order] == [b"%03d" % index for index in wanted]
    assert entry.acker is not None
    assert [entry.acker.acknowledge(index) for index in wanted] == [index == wanted[-1] for index in wanted]


@given(ids, st.integers(-1, 9), st.integers(-1, 9), st.integers(0, 12))
def test_message_id_survives_its_bytes(position, partition, index, size) -> None:
    message_id = MessageId(partition, *position, index, size)
    again = MessageId.deserialize(message_id.serialize())
    assert again == message_id
    assert hash(again) == hash(message_id)
    assert (again.ledger_id(), again.entry_id()) == position
    assert (again.partition(), again.batch_index(), again.batch_size()) == (partition, index, size)


@pytest.mark.parametrize("first", [0, 126, 16_382, 2_097_150, (1 << 28) - 2, (1 << 35) - 2, (1 << 62) - 2])
def test_entry_ids_in_a_row_are_read_through_each_length_of_a_number(first):
    decoder = MessageHeadDecoder()
    for entry_id in range(first, first + 6):
        command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
        command.message.consumer_id = 7
        command.message.message_id.ledgerId = 300
        command.message.message_id.entryId = entry_id
        command.message.redelivery_count = 2
        encoded = command.SerializeToString()
        told = decoder.entry_id(encoded)
        assert told in (-1, entry_id)
        head = decoder.decode(encoded)
        assert (head.ledger_id, head.entry_id, head.redelivery_count) == (300, entry_id, 2)
        # The one before had as many bytes, and the same in all others: it is known.
        assert decoder.entry_id(encoded) == entry_id
