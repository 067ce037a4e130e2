"""Batches, SEND frames and receipts written by hand are what the generated classes write and read."""

from __future__ import annotations

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import (
    SendEncoder,
    decode_batch,
    decode_send_receipt,
    encode_batch,
    message_consumer_id,
    single_message_head,
)
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.hot import encode_message_head, encode_send_receipts
from geminga.wire.pulsar.metadata import checksum_matches

ids = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 5000))
texts = st.text(max_size=20)


def generated(payload: bytes, **fields: object) -> bytes:
    metadata = pb.SingleMessageMetadata(payload_size=len(payload), **fields).SerializeToString()
    return len(metadata).to_bytes(4, "big") + metadata


@given(st.lists(st.binary(max_size=300), max_size=400), ids)
@settings(max_examples=60)
def test_plain_batch_is_what_the_generated_classes_write(payloads: list[bytes], first: int) -> None:
    expected = b"".join(generated(p, sequence_id=first + i) + p for i, p in enumerate(payloads))
    assert encode_batch(payloads, first) == expected


@given(
    st.binary(max_size=50),
    ids,
    st.dictionaries(texts, texts, max_size=3),
    st.none() | texts,
    st.booleans(),
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(0, (1 << 63) - 1),
    st.booleans(),
)
def test_head_of_a_message_is_what_the_generated_classes_write(
    payload, sequence_id, properties, key, is_base64, ordering_key, event_time, is_null
) -> None:
    head = single_message_head(
        len(payload),
        sequence_id,
        properties=properties,
        partition_key=key,
        is_key_base64=is_base64,
        ordering_key=ordering_key,
        event_time_ms=event_time,
        is_null=is_null,
    )
    fields: dict[str, object] = {"sequence_id": sequence_id}
    if properties:
        fields["properties"] = [pb.KeyValue(key=k, value=v) for k, v in properties.items()]
    if key is not None:
        fields["partition_key"] = key
    if is_base64:
        fields["partition_key_b64_encoded"] = True
    if ordering_key is not None:
        fields["ordering_key"] = ordering_key
    if event_time is not None:
        fields["event_time"] = event_time
    if is_null:
        fields["null_value"] = True
    assert head == generated(payload, **fields)
    batch = encode_batch([b"first", payload], sequence_id, {1: head})
    messages = decode_batch(batch, 2)
    assert [p for _, p in messages] == [b"first", payload]
    assert messages[1][0].partition_key == (key or "")


@given(st.binary(max_size=60), st.integers(1, 5))
def test_damaged_batch_is_an_error_not_a_crash(data: bytes, count: int) -> None:
    try:
        messages = decode_batch(data, count)
    except ValueError:
        return
    assert len(messages) == count


@given(ids, ids, st.integers(1, 2000), st.booleans(), st.binary(max_size=100), st.binary(min_size=1, max_size=100))
def test_send_frame_is_what_the_generated_classes_read(
    producer_id, sequence_id, messages, is_chunk, head, body
) -> None:
    highest = sequence_id + messages - 1
    frame = SendEncoder(producer_id).encode(
        head, body, sequence_id, highest_sequence_id=highest, messages=messages, is_chunk=is_chunk
    )
    ((command, payload),) = FrameDecoder(5 << 20).feed(frame)
    send = pb.BaseCommand.FromString(command).send
    assert (send.producer_id, send.sequence_id, send.num_messages) == (producer_id, sequence_id, messages)
    assert (send.highest_sequence_id or sequence_id, send.is_chunk) == (highest, is_chunk)
    assert checksum_matches(payload)
    assert payload[6:] == len(head).to_bytes(4, "big") + head + body
    assert int.from_bytes(payload[2:6], "big") == crc32c.crc32c(payload[6:])


@given(ids, ids, ids, ids, ids)
def test_receipt_is_read_back(producer_id, ledger_id, entry_id, sequence_id, highest) -> None:
    frames = encode_send_receipts(producer_id, ledger_id, entry_id, 1, [(sequence_id, highest), (highest, highest)])
    first, second = FrameDecoder(5 << 20).feed(frames)
    assert decode_send_receipt(first[0]) == (producer_id, sequence_id, highest, ledger_id, entry_id)
    assert decode_send_receipt(second[0]) == (producer_id, highest, highest, ledger_id, entry_id + 1)


def test_receipt_of_a_duplicate_has_minus_one_as_id() -> None:
    ((command, _),) = FrameDecoder(5 << 20).feed(encode_send_receipts(3, -1, -1, 0, [(7, 7)]))
    assert decode_send_receipt(command) == (3, 7, 7, -1, -1)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_receipt_are_left_to_the_generated_classes(data: bytes) -> None:
    command = b"\x08\x07\x3a" + data
    decoded = decode_send_receipt(command)
    if decoded is not None:
        receipt = pb.BaseCommand.FromString(command).send_receipt
        assert decoded[:3] == (receipt.producer_id, receipt.sequence_id, receipt.highest_sequence_id)


@given(ids, st.integers(-1, 500), st.integers(0, 3), st.integers(0, 200))
def test_consumer_of_a_message_is_found(consumer_id, partition, redeliveries, words) -> None:
    head = encode_message_head(consumer_id, 5, 6, partition, 0, redeliveries, [1 << 60] * words)
    ((command, _),) = FrameDecoder(5 << 20).feed(head)
    found = message_consumer_id(command)
    assert found == consumer_id


def test_consumer_of_a_message_is_found_whatever_its_size_is_written_as() -> None:
    """A size of 1024 is written as 80 08, and 08 is the tag of the consumer, too."""
    sizes = set()
    for words in range(95, 110):
        for redeliveries in (0, 1, 200, 20_000, 3_000_000):
            for partition in (-1, 0, 200):
                head = encode_message_head(5, 5, 6, partition, 0, redeliveries, [1 << 60] * words)
                ((command, _),) = FrameDecoder(5 << 20).feed(head)
                assert message_consumer_id(command) == 5
                sizes.add(command[3:5])
    assert b"\x80\x08" in sizes


@pytest.mark.parametrize("command", [b"\x08\x09\x4a", b"\x08\x09\x4a\x00", b"\x08\x09\x4a\x02\x10\x01"])
def test_message_without_consumer_has_none(command: bytes) -> None:
    assert message_consumer_id(command) == -1
