"""What an entry means to compaction, and entries with some of their messages left out."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

import pytest

from geminga.broker.core.compaction import entry_messages
from geminga.broker.core.compaction.entry_messages import (
    DELETES,
    IS_GONE,
    NOTHING,
    ChunkPart,
    EntryMessages,
    count_of,
    last_index_of,
    repacked,
    taken_apart,
)
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch, single_message_head
from geminga.wire.pulsar.compression import LZ4, NONE, SNAPPY, ZLIB, ZSTD, compress, decompress
from geminga.wire.pulsar.metadata import (
    broker_entry_metadata,
    checksum_matches,
    encode_broker_entry_metadata,
    encode_entry,
    message_offset,
    split_entry,
)

T = TypeVar("T")


def through(steps: Generator[None, None, T]) -> tuple[int, T]:
    """How many steps there were, and what they came to."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def messages_of(entry: bytes, tombstones_from_ms: int | None = None) -> EntryMessages:
    steps = taken_apart([entry], tombstones_from_ms=tombstones_from_ms)
    (found,) = [found for found in steps if found is not None]
    return found


def kept_of(entry: bytes, keeps: Callable[[int], bool]) -> tuple[int, bytes | None]:
    count = count_of(entry)
    bits = sum(1 << index for index in range(count) if keeps(index))
    return count, through(repacked(entry, count, bits))[1] if bits else None


COMPRESSIONS = [NONE, LZ4, ZLIB, ZSTD, SNAPPY]


def metadata_of(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)


def single(value: bytes, compression: int = NONE, *, encrypted: bool = False, **fields: object) -> bytes:
    metadata = metadata_of(uncompressed_size=len(value), compression=compression, **fields)
    payload = compress(compression, value)
    if encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
        payload = b"sixteen bytes or" + payload  # encrypted, nothing has no length
    return encode_entry(metadata, payload)


def batch(*messages: tuple[str | None, bytes], compression: int = NONE, encrypted: bool = False) -> bytes:
    payload = b"".join(
        single_message_head(len(value), index, partition_key=key) + value for index, (key, value) in enumerate(messages)
    )
    metadata = metadata_of(uncompressed_size=len(payload), compression=compression, num_messages_in_batch=len(messages))
    if encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
    return encode_entry(metadata, compress(compression, payload))


def values_in(entry: bytes) -> list[bytes | None]:
    """Of a batch; None: left out."""
    metadata, start = split_entry(entry)
    assert metadata is not None
    assert checksum_matches(entry[message_offset(entry) :])
    payload = decompress(metadata.compression, entry[start:], metadata.uncompressed_size)
    return [
        None if one.compacted_out else value for one, value in decode_batch(payload, metadata.num_messages_in_batch)
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("encrypted", [False, True])
def test_an_empty_value_deletes_its_key_also_compressed_and_encrypted(compression: int, encrypted: bool) -> None:
    # Pulsar counted the bytes of the header (PR 25817), and an encrypted nothing has a length.
    for value, is_null in ((b"", True), (b"x", False)):
        entry = single(value, compression, encrypted=encrypted, partition_key="k")
        assert messages_of(entry) == EntryMessages([b"k"], bytes((DELETES if is_null else 0,)))
    assert messages_of(single(b"x", partition_key="k", null_value=True)).flags == bytes((DELETES,))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_one_empty_value_in_a_batch_deletes_its_own_key_alone(compression: int) -> None:
    entry = batch(("a", b"1"), ("b", b""), (None, b"3"), compression=compression)
    found = messages_of(entry)
    assert found.keys == [b"a", b"b", None]
    assert found.flags == bytes((0, DELETES, 0))
    assert not found.is_whole


def test_what_can_not_be_judged_stays_whole() -> None:
    encrypted = messages_of(batch(("a", b"1"), ("b", b""), encrypted=True))
    assert (encrypted.is_whole, len(encrypted.keys)) == (True, 2)
    torn = batch(("a", b"1"), ("b", b"22"))[:-3]
    assert messages_of(torn).is_whole
    assert messages_of(b"no entry").is_whole
    for entry in (batch(("a", b"1"), ("b", b""), encrypted=True), torn, b"no entry"):
        assert kept_of(entry, lambda _: True)[1] == entry


def test_a_marker_is_nothing() -> None:
    marker = encode_entry(metadata_of(marker_type=21), b"")
    assert messages_of(marker) == NOTHING
    assert kept_of(marker, lambda _: True) == (0, None)


def test_a_part_of_a_message_says_which() -> None:
    entry = single(b"part", partition_key="k", uuid="u", chunk_id=1, num_chunks_from_msg=3)
    assert messages_of(entry).chunk == ChunkPart("u", 1, 3)
    # (Without its checksum, which nobody asks about here.)
    assert messages_of(entry[6:].replace(b"\x01u", b"\x01\xff")).chunk == ChunkPart(b"\xff", 1, 3)
    # The last part may be empty; it deletes nothing.
    assert messages_of(single(b"", partition_key="k", uuid="u", num_chunks_from_msg=3)).flags == bytes(1)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_batch_is_packed_again_without_what_is_left_out(compression: int) -> None:
    entry = batch(("a", b"1"), ("b", b"22"), ("c", b"333"), compression=compression)
    count, data = kept_of(entry, lambda index: index == 1)
    assert count == 3
    assert data is not None
    assert values_in(data) == [None, b"22", None]
    # Those that were left out once stay so.
    assert messages_of(data).flags == bytes((DELETES | IS_GONE, 0, DELETES | IS_GONE))
    assert last_index_of(data) == 1


def test_what_the_broker_put_in_front_of_a_batch_stays_there() -> None:
    head = encode_broker_entry_metadata(broker_timestamp_ms=7, index=9)
    _, data = kept_of(head + batch(("a", b"1"), ("b", b"2")), lambda index: index == 0)
    assert data is not None
    assert values_in(data) == [b"1", None]
    found = broker_entry_metadata(data)
    assert found is not None
    assert found.index == 9


def test_one_message_is_kept_or_not() -> None:
    entry = single(b"x", partition_key="k")
    assert kept_of(entry, lambda _: True) == (1, entry)
    assert kept_of(entry, lambda _: False) == (1, None)
    assert last_index_of(entry) == -1


@pytest.mark.parametrize("compression", [NONE, LZ4])
def test_a_large_batch_is_taken_apart_and_packed_in_steps(compression: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A batch of a thousand messages held everybody else on the broker for 10 ms.
    monkeypatch.setattr(entry_messages, "STEP_MESSAGES", 3)
    messages = [(f"k{number}" if number % 3 else None, b"v" * (number % 4)) for number in range(11)]
    entry = batch(*messages, compression=compression)
    *steps, found = taken_apart([entry])
    assert len(steps) >= 4
    assert not any(steps)
    assert found is not None
    assert found.keys == [None if key is None else key.encode() for key, _ in messages]
    assert [flag == DELETES for flag in found.flags] == [not value for _, value in messages]
    count, data = through(repacked(entry, 11, 0b10000100110))
    assert count >= 4
    assert values_in(data) == [value if index in (1, 2, 5, 10) else None for index, (_, value) in enumerate(messages)]
    assert last_index_of(data) == 10


def test_a_batch_that_is_torn_behind_its_first_steps_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_messages, "STEP_MESSAGES", 2)
    torn = batch(*((f"k{number}", b"v") for number in range(7)))[:-1]
    found = messages_of(torn)
    assert (found.is_whole, len(found.keys)) == (True, 7)
    assert through(repacked(torn, 7, 1))[1] == torn


def test_a_batch_whose_metadata_lack_what_they_need_is_packed_again_without() -> None:
    """They can be parsed, and a client may send them: the compaction of its topic would end there."""
    metadata, offset = split_entry(batch(("a", b"1"), ("b", b"2"), compression=NONE))
    assert metadata is not None
    payload = batch(("a", b"1"), ("b", b"2"), compression=NONE)[offset:]
    for field in ("producer_name", "sequence_id", "publish_time"):
        metadata.ClearField(field)
    encoded = metadata.SerializePartialToString()
    _, data = through(repacked(len(encoded).to_bytes(4, "big") + encoded + payload, 2, 0b10))
    assert values_in(data) == [None, b"2"]


def test_entries_of_one_message_come_together_and_in_order_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_messages, "STEP_ENTRIES", 2)
    ones = [single(b"x" if number % 2 else b"", partition_key=f"k{number}") for number in range(5)]
    part = single(b"part", partition_key="p", uuid="u", chunk_id=1, num_chunks_from_msg=3)
    marker = encode_entry(metadata_of(marker_type=21), b"")
    entries = [*ones[:3], None, batch(("a", b"1"), ("b", b"2")), ones[3], marker, part, b"no entry", ones[4]]
    found = [one for one in taken_apart(entries) if one is not None]
    assert [(list(one.keys), one.entries) for one in found] == [
        ([b"k0", b"k1"], 2),
        ([b"k2"], 1),
        ([], 1),
        ([b"a", b"b"], 1),
        ([b"k3"], 1),
        ([], 1),
        ([b"p"], 1),
        ([None], 1),
        ([b"k4"], 1),
    ]
    assert found[0].flags == bytes((DELETES, 0))
    assert [count_of(entry) for entry in entries if entry is not None] == [1, 1, 1, 2, 1, 0, 1, 1, 1]


def test_a_deletion_is_a_value_while_it_is_young_by_the_broker_or_else_the_producer() -> None:
    one = single(b"", partition_key="k")
    _, half = kept_of(batch(("a", b"1"), ("b", b"2")), lambda index: index == 0)
    assert half is not None
    entries = {one: DELETES, batch(("a", b""), (None, b"2")): DELETES}
    for entry, flag in entries.items():
        assert messages_of(entry).flags[0] == flag
        # They were published at 1.
        assert messages_of(entry, 2).flags[0] == flag
        assert messages_of(entry, 1).flags[0] == 0
        noted = encode_broker_entry_metadata(broker_timestamp_ms=7, index=9) + entry
        assert messages_of(noted, 8).flags[0] == flag
        assert messages_of(noted, 7).flags[0] == 0
    # Neither of a message without a key, nor of what was left out before.
    assert messages_of(single(b""), 1).flags == bytes((DELETES,))
    assert messages_of(batch(("a", b""), (None, b"")), 1).flags == bytes((0, DELETES))
    assert messages_of(half, 1).flags == bytes((0, DELETES | IS_GONE))


def test_zlib_takes_its_time_in_steps() -> None:
    # 128 KiB took 4 ms at once.
    values = [bytes((number % 251,)) * 1000 for number in range(100)]
    entry = batch(*((f"k{number}", value) for number, value in enumerate(values)), compression=ZLIB)
    steps, data = through(repacked(entry, 100, (1 << 100) - 2))
    assert steps >= 7
    assert values_in(data) == [None, *values[1:]]
