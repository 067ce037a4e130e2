"""Batches read in columns against the parser that reads message by message: the same messages, or none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.client import EntryBatch, ReadError
from geminga.spark.rules.columns import arrow_schema, raw_schema
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from geminga.spark.source import batch_columns
from geminga.spark.source.arrow import MessageRows, cut_by_bytes, record_batch
from geminga.spark.source.batch_columns import GUESS_BYTES_MIN, PAD_BYTES, BatchColumns, read_batches
from geminga.spark.source.entry_rows import EntryRows, Piece
from geminga.spark.source.single_metadata import signed
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches.batch_layout import HAS_KEY, BatchFormatError, batch_layout

keys = st.one_of(st.sampled_from(["", "k", "key-1", "schlüssel", "x" * 127, "y" * 200]), st.text(max_size=5))
#: What may pass for the head of a message: zeros, sizes, tags.
payloads = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"\0", b"\0\0\0\2\x18\0", b"\0\0\0\x05\x12\x01k\x18\x01", b"\x18"]), max_size=8).map(
        b"".join
    ),
    st.integers(100, 20_000).map(lambda size: b"\x07" * size),
)
numbers = st.one_of(st.integers(0, 300), st.integers(0, (1 << 56) - 1), st.just((1 << 64) - 1), st.just(1 << 56))
fields = st.fixed_dictionaries(
    {},
    optional={
        "event_time": numbers,
        "sequence_id": numbers,
        "partition_key": keys,
        "partition_key_b64_encoded": st.booleans(),
        "null_value": st.booleans(),
        "compacted_out": st.booleans(),
        "null_partition_key": st.booleans(),
        "ordering_key": st.binary(max_size=5),
        "properties": st.lists(
            st.tuples(st.sampled_from(["a", "", "n" * 60, "o" * 300]), st.sampled_from(["", "x", "v" * 60])), max_size=4
        ),
    },
)
batches = st.lists(st.tuples(fields, payloads, st.integers(1, 12)), min_size=1, max_size=5)


def message(values, payload):
    values = dict(values)
    properties = values.pop("properties", [])
    metadata = pb.SingleMessageMetadata(**values, payload_size=len(payload))
    for key, value in properties:
        metadata.properties.add(key=key, value=value)
    encoded = metadata.SerializeToString()
    return len(encoded).to_bytes(4, "big") + encoded + payload


def batch(kinds):
    parts = [message(values, payload) for values, payload, count in kinds for _ in range(count)]
    return b"".join(parts), len(parts)


def read(found):
    """The entries at odd places of some bytes, and what the columns say of them."""
    data = bytearray(b"\xff")
    bounds = []
    for encoded, count in found:
        bounds.append((len(data), len(data) + len(encoded), count))
        data += encoded + b"\x80\0"[: len(bounds) % 3]
    data += bytes(PAD_BYTES)
    starts, ends, counts = np.array(bounds, np.int64).T
    columns, is_read = read_batches(np.frombuffer(bytes(data), np.uint8), starts, ends, counts)
    rows = np.cumsum(counts) - counts
    return [
        (BatchColumns._make(column[row : row + count] for column in columns) if was_read else None, start)
        for row, (start, _, count), was_read in zip(rows.tolist(), bounds, is_read.tolist(), strict=True)
    ]


def check(encoded, count, columns, start):
    """What was read in columns is what the slow parser reads."""
    layout = batch_layout(encoded, 0, count)
    assert columns.flags.tobytes() == layout.flags
    assert (columns.metadata_starts - start).tolist() == list(layout.metadata_starts)
    assert (columns.metadata_ends - start).tolist() == list(layout.payload_starts)
    assert (columns.payload_ends - start).tolist() == list(layout.payload_ends)
    for index in range(count):
        first, last = layout.metadata_starts[index], layout.metadata_ends[index]
        metadata = pb.SingleMessageMetadata.FromString(encoded[first:last])
        assert bool(layout.flags[index] & HAS_KEY) == metadata.HasField("partition_key")
        key = encoded[columns.key_starts[index] - start : columns.key_ends[index] - start]
        sent = metadata.partition_key
        assert key == (sent if isinstance(sent, bytes) else sent.encode())
        assert first <= columns.key_starts[index] - start <= columns.key_ends[index] - start <= last
        time = signed(metadata.event_time) if metadata.HasField("event_time") else -1
        number = signed(metadata.sequence_id) if metadata.HasField("sequence_id") else -1
        assert (columns.event_times_ms[index], columns.sequence_ids[index]) == (time, number)
        assert columns.has_properties[index] == bool(metadata.properties)


@given(st.lists(batches, min_size=1, max_size=4))
def test_batches_in_columns_are_what_the_slow_parser_reads(many):
    found = [batch(kinds) for kinds in many]
    for (encoded, count), (columns, start) in zip(found, read(found), strict=True):
        if columns is not None:
            check(encoded, count, columns, start)


@given(batches, st.data())
def test_damaged_batches_in_columns_are_what_the_slow_parser_reads_or_are_not_read(kinds, data):
    encoded, count = batch(kinds)
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, min(60, len(damaged) - 1)))] = data.draw(st.integers(0, 255))
    count += data.draw(st.sampled_from([-1, 0, 0, 0, 1]))
    damaged = bytes(damaged)
    whole = batch([({"partition_key": "k"}, b"whole", 3)])
    (columns, start), (other, other_start) = read([(damaged, count), whole])
    if columns is not None and count:
        check(damaged, count, columns, start)
    # A neighbour is not harmed.
    check(*whole, other, other_start)


def test_usual_batches_are_all_read_in_columns():
    usual = [
        [({"partition_key": f"key-{index}", "event_time": 1_700_000_000_000 + index, "sequence_id": index}, b"x", 1)]
        for index in range(200)
    ]
    with_properties = [({"properties": [("a", "b"), ("c", "")], "sequence_id": 7}, b"\0" * 50, 40)]
    plain = [({}, bytes([index]) * (index + 1), 1) for index in range(100)]
    deceptive = [({"partition_key": "k"}, message({}, b"within") * 3, 5)]
    found = [batch([one for kind in usual for one in kind]), *map(batch, (with_properties, plain, deceptive))]
    for (encoded, count), (columns, start) in zip(found, read(found), strict=True):
        assert columns is not None
        check(encoded, count, columns, start)


def entry_of(kinds, *, is_laid_out, entry_id=1, kept=()):
    encoded, count = batch(kinds)
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count, compacted_batch_indexes=kept
    )
    return EntryBatch(b"head" + encoded, 4, metadata, 7, entry_id, is_laid_out=is_laid_out)


@given(st.lists(st.tuples(batches, st.integers(0, 9), st.integers(0, 60), st.booleans()), min_size=1, max_size=4))
def test_rows_of_pieces_are_the_messages_of_their_range_that_compaction_left(many):
    pieces, expected = [], []
    for number, (kinds, first, last, is_whole) in enumerate(many):
        # Of those that were kept; which were not is said by each message.
        kept = (1,) if number % 2 else ()
        whole = entry_of(kinds, is_laid_out=True, entry_id=number, kept=kept)
        lazy = entry_of(kinds, is_laid_out=False, entry_id=number, kept=kept)
        pieces.append(Piece(lazy) if is_whole else Piece(lazy, first, last))
        wanted = [index for index in whole.order if is_whole or first <= index < last]
        expected += [(number, index, whole.payload(index), whole.key_as_sent(index)) for index in wanted]
    rows = EntryRows(pieces)
    columns = rows.columns
    found = [
        (piece, index, rows.data[start:end], rows.data[key:key_end])
        for piece, index, start, end, key, key_end in zip(
            rows.piece_of.tolist(),
            rows.index.tolist(),
            columns.metadata_ends.tolist(),
            columns.payload_ends.tolist(),
            columns.key_starts.tolist(),
            columns.key_ends.tolist(),
            strict=True,
        )
    ]
    assert found == expected
    assert rows.counts.tolist() == [sum(one[0] == number for one in expected) for number in range(len(many))]


def in_block(entries, slack_bytes):
    """The same entries as views of one block, with what lies between them on the wire."""
    block = bytearray()
    places = []
    for entry in entries:
        block += b"\0\0\4\1\0\0\0\x0c\x08\x09J\x08\x08\0\x12\4\x08\0\x10\0"
        places.append(len(block))
        block += entry.data
    block += b"\0\0\0\2\x18\0" * (slack_bytes // 6)
    view = memoryview(block)
    return [
        EntryBatch(view[at : at + len(one.data)], one.payload_start, one.metadata, *one.key, is_laid_out=False)
        for one, at in zip(entries, places, strict=True)
    ]


@given(st.lists(batches, min_size=1, max_size=4), st.sampled_from([PAD_BYTES + 8, 30]))
def test_rows_of_entries_in_one_block_are_those_of_their_copies(many, slack_bytes):
    copies = [entry_of(kinds, is_laid_out=False, entry_id=number) for number, kinds in enumerate(many)]
    expected = MessageRows([Piece(entry) for entry in copies])
    views = in_block(copies, slack_bytes)
    found = MessageRows([Piece(entry) for entry in views])
    assert isinstance(found._rows.data, memoryview) == (slack_bytes > PAD_BYTES)
    schema = arrow_schema(raw_schema(ALL_COLUMNS))
    assert record_batch(found, "t", schema).equals(record_batch(expected, "t", schema))


def test_groups_do_not_cross_blocks_unless_there_is_little():
    kinds = [({"sequence_id": 1}, b"x" * 90, 10)]
    entries = [entry_of(kinds, is_laid_out=False, entry_id=number) for number in range(9)]
    size = entries[0].size_bytes
    pieces = [Piece(entry) for part in (entries[:5], entries[5:6], entries[6:]) for entry in in_block(part, PAD_BYTES)]
    assert [len(group) for group in cut_by_bytes(pieces, 8 * size)] == [5, 4]
    assert [len(group) for group in cut_by_bytes(pieces, 40 * size)] == [9]
    assert [len(group) for group in cut_by_bytes(pieces, 4 * size)] == [4, 1, 1, 3]
    assert [len(group) for group in cut_by_bytes([Piece(entry) for entry in entries], 8 * size)] == [8, 1]


def test_payloads_of_one_size_are_found_without_a_search(monkeypatch):
    searched = []
    search = batch_columns._places
    monkeypatch.setattr(batch_columns, "_places", lambda data: searched.append(len(data)) or search(data))
    sizes = {"alike": [GUESS_BYTES_MIN] * 300, "not alike": [GUESS_BYTES_MIN, GUESS_BYTES_MIN + 1] * 150}
    for name, of_payloads in sizes.items():
        searched.clear()
        kinds = [
            ({"partition_key": "k" * (index % 9), "sequence_id": index}, bytes(size), 1)
            for index, size in enumerate(of_payloads)
        ]
        found = [batch(kinds), batch(kinds[:7])]
        for (encoded, count), (columns, start) in zip(found, read(found), strict=True):
            check(encoded, count, columns, start)
        assert bool(searched) == (name == "not alike")


def test_entry_that_is_no_batch_is_named_when_its_rows_are_read():
    encoded, _ = batch([({}, b"abc", 3)])
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=4)
    entry = EntryBatch(encoded + b"\0" * 9, 0, metadata, 7, 8, topic_name="persistent://p/n/t", is_laid_out=False)
    with pytest.raises(ReadError, match="persistent://p/n/t: entry 7:8 can not be read: broken"):
        EntryRows([Piece(entry)])


@pytest.mark.parametrize("count", [-1, 1 << 30])
def test_number_of_messages_that_can_not_be_takes_no_memory(count):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count)
    with pytest.raises(BatchFormatError):
        EntryBatch(b"\0" * 1000, 0, metadata, 7, 8, is_laid_out=False)
