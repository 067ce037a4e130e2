"""Files of ledgers whose entries have more metadata than payload."""

from __future__ import annotations

import gc as collector
import tracemalloc

import pytest

from geminga.lake import parquet
from geminga.lake.core import names
from geminga.lake.parquet import LedgerFacts, LedgerFileReader, LedgerFileWriter, SchemaFacts
from geminga.model.errors import StorageError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.lake_world import MemoryLakeStore

UID = "0123456789abcdef" * 2


def file_of(stored: list[bytes]) -> LedgerFileReader:
    store = MemoryLakeStore()
    path = f"t/{names.ledger_file(7, UID)}"
    facts = LedgerFacts("persistent://a/b/c", 7, UID, len(stored), 1, 2, 3, "CRC32C", 1, 1, 1, {})
    writer = LedgerFileWriter(store, path, facts, started_ms=1, writer="test")
    writer.add(stored)
    writer.finish([])
    return LedgerFileReader(store, path)


def entries_of(reader: LedgerFileReader) -> list[bytes]:
    return [entry for group in range(reader.group_count) for entry in reader.read_group(group)]


def test_a_row_group_ends_by_what_it_holds_where_entries_have_hardly_any_payload(monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_HELD_BYTES_MAX", 100_000)
    stored = []
    for number in range(20):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        metadata.properties.add(key="k", value="v" * 10_000)
        stored.append(encode_entry(metadata, b""))
    reader = file_of(stored)
    assert reader.group_count == 4
    assert [len(reader.entries_of(group)) for group in range(4)] == [5] * 4
    assert entries_of(reader) == stored


def test_a_batch_of_a_producer_with_a_name_of_a_megabyte_goes_to_a_file_and_comes_back():
    head = pb.SingleMessageMetadata(payload_size=0).SerializeToString()
    metadata = pb.MessageMetadata(
        producer_name="n" * 1_000_000, sequence_id=0, publish_time=1, num_messages_in_batch=3000
    )
    stored = [encode_entry(metadata, (len(head).to_bytes(4, "big") + head) * 3000)]
    reader = file_of(stored)
    assert entries_of(reader) == stored
    assert reader.contents.kinds == {"undecodable": 1}


def test_what_arrow_does_not_take_is_told_with_its_entries(monkeypatch):
    def refuse(*args) -> None:
        raise parquet.pa.ArrowInvalid("too large")

    monkeypatch.setattr(parquet, "table_of", refuse)
    with pytest.raises(StorageError, match=r"ledger 7, entries 0 to 0 can not be laid out as rows: too large"):
        file_of([encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")])


def test_an_open_file_holds_none_of_the_definitions_that_clients_put_in_its_footer():
    """A topic has eight files open, a view of compacted messages has all: 16 MiB of definitions each are too much."""
    store, path = MemoryLakeStore(), f"t/{names.ledger_file(7, UID)}"
    entry = encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")
    facts = LedgerFacts("persistent://public/default/t", 7, UID, 1, 1, 1, 1, "CRC32C", 1, 1, 1, {})
    writer = LedgerFileWriter(store, path, facts, started_ms=1, writer="test")
    writer.add([entry])
    definition = bytes(range(256)) * 64
    writer.finish([SchemaFacts(number.to_bytes(8, "big"), "JSON", "n", definition, {}, 1) for number in range(512)])
    assert len(store.files[path]) > parquet.FOOTER_BYTES_KEPT_MAX
    del writer
    readers = [LedgerFileReader(store, path)]  # what is loaded with the first one stays
    collector.collect()
    collector.disable()
    tracemalloc.start(32)
    try:
        readers += [LedgerFileReader(store, path) for _ in range(4)]
        # Other threads of this process make objects, too: what was made from here is counted.
        made_here = [tracemalloc.Filter(True, __file__, all_frames=True)]
        held = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(made_here).traces)
        assert collector.collect() == 0, "a footer waits for the collector"
    finally:
        tracemalloc.stop()
        collector.enable()
    assert 0 < held < 256 * 1024
    assert all(reader._metadata is None for reader in readers)
    assert [entries_of(reader) for reader in readers] == [[entry]] * 5
    assert readers[0].has_message_ids
    assert file_of([entry])._metadata is not None


def test_footers_of_very_many_open_files_are_kept_as_long_as_there_is_room(monkeypatch):
    """A topic with 1,000 ledgers in the lake, read compacted, has as many files open."""
    entry = encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")
    before = parquet._FOOTERS.size_bytes
    first = file_of([entry])
    size = parquet._FOOTERS.size_bytes - before
    assert size > 0
    monkeypatch.setattr(parquet, "FOOTERS_BYTES_KEPT_MAX", before + 2 * size)
    readers = [first, *(file_of([entry]) for _ in range(3))]
    assert [reader._metadata is not None for reader in readers] == [True, True, False, False]
    assert [entries_of(reader) for reader in readers] == [[entry]] * 4
    # Whatever is let go makes room; what had none took none.
    del first, readers
    assert parquet._FOOTERS.size_bytes == before
    assert file_of([entry])._metadata is not None
