"""Messages of a batch that differ, read one by one."""

from __future__ import annotations

from struct import pack

import pytest

from geminga.wire.pulsar.batch import encode_batch, single_message_head
from geminga.wire.pulsar.batches.batch_columns import HAS_KEY, KEY_IS_BASE64, BatchFormatError, Columns, scan
from geminga.wire.pulsar.batches.batch_layout import batch_layout


def encoded(metadata: bytes, payload: bytes) -> bytes:
    return pack(">I", len(metadata)) + metadata + payload


#: The fields backwards, as no usual writer puts them: sequence id, size of the payload, key, a property.
BACKWARDS = encoded(b"\x40\x05\x18\x03\x12\x03key\x0a\x06\x0a\x01a\x12\x01b", b"abc")


def test_unlike_messages_are_read_until_three_are_of_one_length() -> None:
    payloads = [b"1", b"22", b"22", b"333", b"444", b"555", b"6"]
    data = encode_batch(payloads, 7)
    columns = Columns()
    scanned, position = columns.scan_unlike(data, 0, len(payloads), 0)
    assert scanned == 6
    assert [data[a:b] for a, b in zip(columns.metadata_ends, columns.payload_ends, strict=True)] == payloads[:6]
    start, fields = columns.last()
    assert scan(data, start) == fields
    assert columns.scan_unlike(data, position, 1, 0) == (1, len(data))
    assert bytes(columns.flags) == bytes(7)


def test_patience_reads_on_behind_three_of_one_length() -> None:
    data = encode_batch([b"same"] * 9, 7)
    assert Columns().scan_unlike(data, 0, 9, 5)[0] == 6


def test_fields_in_another_order_are_found_all_the_same() -> None:
    data = BACKWARDS * 3
    columns = Columns()
    columns.scan_unlike(data, 0, 3, 3)
    keys = zip(columns.key_starts, columns.key_ends, strict=True)
    assert [data[start:end] for start, end in keys] == [b"key"] * 3
    assert list(columns.flags) == [HAS_KEY] * 3
    assert [data[a:b] for a, b in zip(columns.metadata_ends, columns.payload_ends, strict=True)] == [b"abc"] * 3


def test_keys_and_properties_longer_than_a_byte_says_are_found() -> None:
    long = "k" * 300
    heads = [
        single_message_head(3, 1, partition_key=long, properties={"name": long}),
        single_message_head(2, 2, partition_key="short", is_key_base64=True, properties={long: ""}),
    ]
    data = heads[0] + b"abc" + heads[1] + b"de"
    layout = batch_layout(data, 0, 2)
    assert layout.key_starts is not None
    assert layout.key_ends is not None
    keys = [data[a:b] for a, b in zip(layout.key_starts, layout.key_ends, strict=True)]
    assert keys == [long.encode(), b"short"]
    assert list(layout.flags) == [HAS_KEY, HAS_KEY | KEY_IS_BASE64]


def test_run_in_the_middle_of_unlike_messages_is_found_with_its_neighbours() -> None:
    payloads = (
        [b"a" * (index % 7) for index in range(40)] + [b"same"] * 50 + [b"b" * (index % 5) for index in range(40)]
    )
    data = encode_batch(payloads, 100)
    layout = batch_layout(data, 0, len(payloads))
    assert [data[a:b] for a, b in zip(layout.payload_starts, layout.payload_ends, strict=True)] == payloads


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\0",
        encoded(b"\x0a\x03\x0a\x01a", b""),  # no size of the payload, and nothing behind the properties
        encoded(b"\x18\x05", b"1234"),
        encoded(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"1234"),
        encoded(b"\x12\x05ke", b""),
        b"\0\0\0\x09\x18\x01",
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BatchFormatError):
        Columns().scan_unlike(data, 0, 1, 0)
    with pytest.raises(BatchFormatError):
        batch_layout(data, 0, 4)
    with pytest.raises(BatchFormatError):
        batch_layout(data, 0, -4)
