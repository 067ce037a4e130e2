"""Entries of all kinds become a Parquet file and come back: the same ids, the same metadata, the same payloads."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminga.client import MessageId
from geminga.lake.arrow_rows import SCHEMA
from geminga.lake.core import names
from geminga.lake.core.rebuild import is_same
from geminga.lake.core.rows import (
    ABORTED,
    CHUNK,
    COMPACTED,
    ENCRYPTED,
    MARKER,
    MESSAGE,
    UNDECODABLE,
    RowBuffer,
    _id_ends,
)
from geminga.lake.parquet import LedgerFacts, LedgerFileReader, LedgerFileWriter, pq
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compression import decompress
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from support.stories.any_entries import entries
from support.worlds.lake_world import MemoryLakeStore

UID = "0123456789abcdef" * 2


@given(st.lists(entries(), min_size=1, max_size=12), st.integers(1, 12), st.sampled_from([-1, 0, 300]))
def test_entries_come_back_from_a_file_as_they_were(found, at_once, partition):
    stored = [entry for entry, _ in found]
    aborted = frozenset(number for number, (_, kind) in enumerate(found) if kind == ABORTED)
    store = MemoryLakeStore()
    path = f"t/{names.ledger_file(7, UID)}"
    topic = "persistent://a/b/c" if partition < 0 else f"persistent://a/b/c-partition-{partition}"
    facts = LedgerFacts(topic, 7, UID, len(stored), 1, 2, 3, "CRC32C", 3, 2, 2, {"x": b"\xff"})
    writer = LedgerFileWriter(store, path, facts, started_ms=1, writer="test")
    for first in range(0, len(stored), at_once):
        writer.add(stored[first : first + at_once], aborted)
    contents = writer.finish([])
    reader = LedgerFileReader(store, path)
    assert reader.facts == facts
    assert reader.contents == contents
    rebuilt = [entry for group in range(reader.group_count) for entry in reader.read_group(group)]
    assert len(rebuilt) == len(stored)
    for (entry, kind), again in zip(found, rebuilt, strict=True):
        assert is_same(entry, again)
        metadata, offset = split_entry(entry)
        if kind in (MESSAGE, "batch") and metadata is not None:
            other, there = split_entry(again)
            assert other == metadata
            size = metadata.uncompressed_size if metadata.compression else len(entry) - offset
            assert decompress(metadata.compression, entry[offset:], size) == decompress(
                metadata.compression, again[there:], size
            )
    assert reader.has_message_ids
    rows = _check_rows(store.files[path], found, aborted)
    assert contents.with_properties == sum(bool(row["properties"]) for row in rows)
    for row in rows:
        entry, index, size = row["entry"], row["batch_index"], row["batch_size"]
        expected = MessageId(partition, 7, entry, index, size if index >= 0 else 0).serialize()
        assert row["message_id"] == (expected if row["kind"] == MESSAGE else None)


def test_ends_of_ids_of_very_large_batches_are_not_kept():
    _id_ends.cache_clear()
    rows = RowBuffer(7, -1)
    for size in (4096, 4097):
        single = pb.SingleMessageMetadata(payload_size=0).SerializeToString()
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=size)
        rows.add(size, encode_entry(metadata, (len(single).to_bytes(4, "big") + single) * size))
        ids = rows.take().of_message["message_id"]
        assert ids == [MessageId(-1, 7, size, index, size).serialize() for index in range(size)]
    assert _id_ends.cache_info().currsize == 1


def _check_rows(data: bytes, found, aborted) -> list[dict[str, Any]]:
    """What other readers see: kinds, values and keys of the rows."""
    import pyarrow as pa

    table = pq.read_table(pa.BufferReader(data))
    assert table.schema.names == SCHEMA.names
    rows = table.to_pylist()
    assert {row["ledger"] for row in rows} == {7}
    assert [row["entry"] for row in rows] == sorted(row["entry"] for row in rows)
    for number, (entry, kind) in enumerate(found):
        mine = [row for row in rows if row["entry"] == number]
        metadata, offset = split_entry(entry)
        if mine[0]["kind"] in (UNDECODABLE, MARKER, ABORTED, ENCRYPTED, CHUNK):
            assert mine[0]["raw"] == entry
            assert len(mine) == 1
            assert (mine[0]["kind"], mine[0]["value"]) == (kind if kind != UNDECODABLE else UNDECODABLE, None) or (
                number in aborted
            )
        elif kind == MESSAGE:
            assert metadata is not None
            size = metadata.uncompressed_size if metadata.compression else len(entry) - offset
            payload = decompress(metadata.compression, entry[offset:], size)
            assert mine[0]["value"] == (None if metadata.null_value else payload)
            assert mine[0]["batch_index"] == -1
        else:
            assert [row["batch_index"] for row in mine] == list(range(len(mine)))
            assert {row["kind"] for row in mine} <= {MESSAGE, COMPACTED}
    return rows
