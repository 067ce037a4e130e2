"""The hand-written codecs read and write what the generated classes do, or say that they do not know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import ProtocolError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import hot
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import FrameDecoder, encode_frame
from geminga.wire.pulsar.numbers import BATCH_MESSAGES_MAX
from geminga.wire.pulsar.varint import decode_varint, encode_varint, signed64

UINT64 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
INT63 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1))
UINT31 = st.one_of(st.integers(0, 2000), st.integers(0, (1 << 31) - 1))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BYTES_MAX = 1 << 20


def optional(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.none(), strategy)


def given_fields(**fields) -> dict:
    return {name: value for name, value in fields.items() if value is not None}


@given(UINT64)
def test_varint_round_trips(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded + b"\x01", 0) == (value, len(encoded))
    assert encode_varint(signed64(value)) == encoded


@given(
    INT63,
    INT63,
    optional(UINT31),
    optional(INT63),
    optional(st.booleans()),
    optional(st.booleans()),
    optional(INT63),
    optional(INT63),
)
def test_send_is_read_as_generated(producer_id, sequence_id, messages, highest, is_chunk, is_marker, most, least):
    send = pb.CommandSend(
        producer_id=producer_id,
        sequence_id=sequence_id,
        **given_fields(
            num_messages=messages,
            highest_sequence_id=highest,
            is_chunk=is_chunk,
            marker=is_marker,
            txnid_most_bits=most,
            txnid_least_bits=least,
        ),
    )
    data = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
    if send.num_messages > BATCH_MESSAGES_MAX:
        assert hot.decode_send(data) is None  # to be refused by who reads the whole command
        return
    flags = (hot.SEND_IS_CHUNK if is_chunk else 0) | (hot.SEND_IS_MARKER if is_marker else 0)
    is_in_transaction = send.HasField("txnid_most_bits") or send.HasField("txnid_least_bits")
    assert hot.decode_send(data) == (
        producer_id,
        sequence_id,
        send.highest_sequence_id,
        send.num_messages,
        flags,
        (send.txnid_most_bits, send.txnid_least_bits) if is_in_transaction else None,
    )


@given(INT63, st.booleans(), st.booleans())
def test_send_with_more_than_the_usual_is_left_to_the_generated(producer_id, is_negative, has_id) -> None:
    send = pb.CommandSend(producer_id=producer_id, sequence_id=1, txnid_least_bits=1, txnid_most_bits=2)
    if is_negative:
        send.txnid_least_bits = (1 << 64) - 1
    if has_id:
        send.message_id.ledgerId = send.message_id.entryId = 1
    data = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
    assert (hot.decode_send(data) is None) == (is_negative or has_id)


@given(st.data(), INT63, INT63, optional(INT63), optional(INT63))
def test_a_damaged_send_is_read_as_generated_or_not_at_all(data, producer_id, sequence_id, most, least) -> None:
    send = pb.CommandSend(
        producer_id=producer_id,
        sequence_id=sequence_id,
        **given_fields(txnid_most_bits=most, txnid_least_bits=least),
    )
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
    at = data.draw(st.integers(4, len(command) - 1))
    damaged = command[:at] + bytes((data.draw(st.integers(0, 255)),)) + command[at + 1 :]
    fields = hot.decode_send(damaged)
    if fields is not None:
        read = decode_command(damaged).send
        assert fields[:2] == (read.producer_id, read.sequence_id)
        has_txn = read.HasField("txnid_most_bits") or read.HasField("txnid_least_bits")
        assert fields[5] == ((read.txnid_most_bits, read.txnid_least_bits) if has_txn else None)


@given(st.data(), st.integers(0, 200), INT63, optional(UINT31), optional(INT63), optional(INT63), st.binary(max_size=4))
def test_sends_that_are_alike_are_read_alike(data, producer_id, sequence_id, messages, most, least, extra) -> None:
    send = pb.CommandSend(
        producer_id=producer_id,
        sequence_id=sequence_id,
        **given_fields(num_messages=messages, txnid_most_bits=most, txnid_least_bits=least),
    )
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString() + extra
    command = command[:3] + bytes((len(command) - 4,)) + command[4:]  # extra fields of the SEND, or broken ones
    fields = hot.decode_send(command)
    if fields is None:
        return
    tail, head, before = hot.send_likeness(command, fields[1])
    if tail is None:
        return
    for low in (command[7], data.draw(st.integers(128, 255))):
        read = hot.decode_send(head + bytes((low,)) + tail)
        assert read is not None
        assert read[1] == before + low
        assert (read[0], *read[2:]) == (fields[0], *fields[2:])


def test_usual_sends_are_alike() -> None:
    for sequence_id in (128, 262_144, 1 << 40):
        send = pb.CommandSend(producer_id=3, sequence_id=sequence_id, num_messages=1)
        command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
        tail, head, before = hot.send_likeness(command, sequence_id)
        assert tail is not None
        assert head + bytes((sequence_id + 1 - before,)) + tail == command[:7] + b"\x81" + command[8:]


@given(INT63, st.integers(0, (1 << 32) - 1))
def test_flow_is_read_as_generated(consumer_id, permits) -> None:
    flow = pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
    data = pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=flow).SerializeToString()
    assert hot.decode_flow(data) == (consumer_id, permits)


IDS = st.lists(
    st.builds(
        lambda ledger, entry, ack_set, partition, batch_index, size: pb.MessageIdData(
            ledgerId=ledger,
            entryId=entry,
            ack_set=ack_set,
            **given_fields(partition=partition, batch_index=batch_index, batch_size=size),
        ),
        UINT64,
        UINT64,
        st.lists(INT64, max_size=3),
        optional(st.integers(-1, 1 << 30)),
        optional(st.integers(-1, 1 << 30)),
        optional(st.integers(0, 1 << 30)),
    ),
    max_size=5,
)


@given(INT63, st.booleans(), IDS, optional(UINT64))
def test_ack_is_read_as_generated(consumer_id, is_cumulative, ids, request_id) -> None:
    ack = pb.CommandAck(
        consumer_id=consumer_id,
        ack_type=int(is_cumulative),
        message_id=ids,
        **given_fields(request_id=request_id),
    )
    fields = hot.decode_ack(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString())
    assert fields is not None
    assert (fields.consumer_id, fields.is_cumulative, fields.request_id) == (consumer_id, is_cumulative, request_id)
    assert fields.ids == [
        hot.AckedId(signed64(m.ledgerId), signed64(m.entryId), tuple(m.ack_set) if m.ack_set else None) for m in ids
    ]


def an_id(ledger: int, entry: int, tail: dict[str, int]) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=ledger, entryId=entry, **tail)


#: What clients send: many entries of few ledgers; entry ids as long as the one before, or not.
ALIKE = st.lists(
    st.builds(
        an_id,
        st.sampled_from([0, 7, 300, (1 << 64) - 1]),
        st.one_of(st.integers(0, 400), st.integers(16_300, 16_500), st.integers((1 << 21) - 3, (1 << 21) + 3)),
        st.sampled_from([{}, {"partition": 3}, {"partition": -1, "batch_index": -1}, {"batch_size": 5}]),
    ),
    max_size=30,
)


@given(ALIKE, st.data())
def test_acks_of_many_entries_alike_are_read_as_generated_whatever_is_damaged(ids, data) -> None:
    ack = pb.CommandAck(consumer_id=1, ack_type=0, message_id=ids, request_id=9)
    command = pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString()
    fields = hot.decode_ack(command)
    assert fields is not None
    assert fields.request_id == 9
    assert fields.ids == [hot.AckedId(signed64(m.ledgerId), m.entryId, None) for m in ids]
    at = data.draw(st.integers(3, len(command) - 1))
    damaged = command[:at] + bytes((data.draw(st.integers(0, 255)),)) + command[at + 1 :]
    fields = hot.decode_ack(damaged)
    if fields is not None:
        read = decode_command(damaged).ack
        assert fields.ids == [
            hot.AckedId(signed64(m.ledgerId), signed64(m.entryId), tuple(m.ack_set) if m.ack_set else None)
            for m in read.message_id
        ]


@given(INT63, st.sampled_from(["txnid_most_bits", "validation_error", "properties", "first_chunk"]))
def test_ack_with_more_than_the_usual_is_left_to_the_generated(consumer_id, extra) -> None:
    ack = pb.CommandAck(consumer_id=consumer_id, ack_type=0, message_id=[pb.MessageIdData(ledgerId=1, entryId=2)])
    if extra == "txnid_most_bits":
        ack.txnid_most_bits = 1
    elif extra == "validation_error":
        ack.validation_error = pb.CommandAck.ChecksumMismatch
    elif extra == "properties":
        ack.properties.add(key="k", value=1)
    else:
        ack.message_id[0].first_chunk_message_id.ledgerId = 1
        ack.message_id[0].first_chunk_message_id.entryId = 1
    assert hot.decode_ack(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString()) is None


def in_a_row(first: int, count: int) -> list[tuple[int, int]]:
    return [(sequence_id, sequence_id) for sequence_id in range(first, first + count)]


@given(
    UINT64,
    st.integers(-1, (1 << 63) - 1),
    st.one_of(st.integers(-1, 300), st.integers(-1, (1 << 62))),
    st.integers(0, 1),
    st.one_of(
        st.lists(st.tuples(UINT64, UINT64), max_size=20),
        st.builds(in_a_row, st.one_of(st.integers(0, 20_000), st.integers(0, 1 << 62)), st.integers(0, 300)),
    ),
)
def test_receipts_are_written_as_generated(producer_id, ledger_id, first_entry_id, step, sequence_ids) -> None:
    data = hot.encode_send_receipts(producer_id, ledger_id, first_entry_id, step, sequence_ids)
    frames = FrameDecoder(BYTES_MAX).feed(data)
    assert len(frames) == len(sequence_ids)
    for index, ((command, payload), (sequence_id, highest)) in enumerate(zip(frames, sequence_ids, strict=True)):
        assert payload == b""
        receipt = decode_command(command).send_receipt
        assert receipt.producer_id == producer_id
        assert (receipt.sequence_id, receipt.highest_sequence_id) == (sequence_id, highest)
        assert signed64(receipt.message_id.ledgerId) == ledger_id
        assert signed64(receipt.message_id.entryId) == first_entry_id + index * step


@given(
    UINT64,
    UINT64,
    UINT64,
    st.integers(-1, 1 << 20),
    st.integers(0, (1 << 32) - 1),
    optional(st.lists(INT64, max_size=20)),
    optional(UINT64),
    st.binary(max_size=100),
)
def test_message_heads_are_written_as_generated(
    consumer_id, ledger_id, entry_id, partition, redeliveries, ack_set, epoch, payload
) -> None:
    head = hot.encode_message_head(
        consumer_id, ledger_id, entry_id, partition, len(payload), redeliveries, ack_set, epoch
    )
    [(command, got)] = FrameDecoder(BYTES_MAX).feed(head + payload)
    assert got == payload
    message = decode_command(command).message
    assert message.consumer_id == consumer_id
    assert (message.message_id.ledgerId, message.message_id.entryId) == (ledger_id, entry_id)
    assert message.message_id.partition == partition
    assert message.redelivery_count == redeliveries
    assert list(message.ack_set) == (ack_set or [])
    assert (message.consumer_epoch if message.HasField("consumer_epoch") else None) == epoch


@given(st.binary(max_size=40), st.sampled_from([hot.SEND_PREFIX, hot.ACK_PREFIX, hot.FLOW_PREFIX, b""]))
def test_any_bytes_are_read_as_the_generated_classes_read_them_or_not_at_all(data: bytes, prefix: bytes) -> None:
    whole = prefix + (bytes((len(data),)) if prefix else b"") + data
    for decode, field in ((hot.decode_send, "send"), (hot.decode_ack, "ack"), (hot.decode_flow, "flow")):
        fields = decode(whole)
        if fields is None:
            continue
        try:
            command = decode_command(whole)
        except ProtocolError:
            raise AssertionError(f"{whole!r} is no command, but read as {fields}") from None
        part = getattr(command, field)
        if field == "send":
            assert fields[:2] == (part.producer_id, part.sequence_id)
            assert fields[2:4] == (part.highest_sequence_id, part.num_messages)
        elif field == "flow":
            assert fields == (part.consumer_id, part.messagePermits)
        else:
            assert (fields.consumer_id, fields.is_cumulative) == (part.consumer_id, part.ack_type == 1)
            assert len(fields.ids) == len(part.message_id)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1))
def test_the_answer_of_partitions_is_what_the_generated_class_writes(request_id, count):
    answers = pb.CommandPartitionedTopicMetadataResponse
    answer = answers(request_id=request_id, partitions=count, response=answers.Success)
    command = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer)
    assert hot.encode_partitions(request_id, count) == encode_frame(command.SerializeToString())
