"""Keys of a row group, and some of its entries; what they mean is in the property test of compaction from the lake."""

from __future__ import annotations

import base64

import pytest

from geminga.lake.core import names
from geminga.lake.core.rows import EntryRun, UndividedEntry
from geminga.lake.key_rows import read_entries, read_keys, read_runs
from geminga.lake.parquet import LedgerFacts, LedgerFileReader, LedgerFileWriter
from geminga.model.errors import CorruptionError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import single_message_head
from geminga.wire.pulsar.metadata import encode_broker_entry_metadata, encode_entry
from support.worlds.lake_world import MemoryLakeStore

UID = "0123456789abcdef" * 2


def entry(payload: bytes = b"v", **fields: object) -> bytes:
    return encode_entry(
        pb.MessageMetadata(**{"producer_name": "p", "sequence_id": 0, "publish_time": 5, **fields}), payload
    )


def batch(*messages: tuple[str, bytes]) -> bytes:
    parts = [
        single_message_head(len(value), index, partition_key=key) + value for index, (key, value) in enumerate(messages)
    ]
    return entry(b"".join(parts), num_messages_in_batch=len(parts))


def file_of(*stored: bytes, aborted: frozenset[int] = frozenset()) -> LedgerFileReader:
    store, path = MemoryLakeStore(), f"t/{names.ledger_file(7, UID)}"
    facts = LedgerFacts("persistent://a/b/c", 7, UID, len(stored), 1, 2, 3, "CRC32C", 3, 2, 2, {})
    writer = LedgerFileWriter(store, path, facts, started_ms=1, writer="test")
    writer.add(stored, aborted)
    writer.finish([])
    return LedgerFileReader(store, path)


def test_keys_come_as_they_were_sent_whatever_they_travelled_as() -> None:
    sent = base64.b64encode(b"\xff\x00").decode()
    rows = read_keys(
        file_of(
            entry(partition_key=sent, partition_key_b64_encoded=True),
            entry(partition_key="no base64!", partition_key_b64_encoded=True),
            entry(partition_key=sent),
            entry(),
            batch(("a", b"1"), ("b", b"")),
        ),
        0,
    )
    assert rows.keys == [sent.encode(), b"no base64!", sent.encode(), None, b"a", b"b"]
    assert rows.is_empty == bytes((0, 0, 0, 0, 0, 1))
    assert (rows.is_gone, list(rows.stored), list(rows.times_ms)) == (bytes(6), [], [])


def test_what_is_stored_whole_stands_apart_and_what_nobody_gets_has_no_bytes() -> None:
    chunk = entry(uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=9)
    stored = (entry(), chunk, entry(marker_type=1), batch(("a", b"1"), ("b", b"2")), entry())
    reader = file_of(*stored, aborted=frozenset({4}))
    found = [UndividedEntry(1, 1, chunk), UndividedEntry(1, 2, None), UndividedEntry(3, 4, None)]
    assert list(read_keys(reader, 0).stored) == found
    runs, again = read_runs(reader, 0)
    assert list(again) == found
    assert list(runs) == [EntryRun(0, 1), EntryRun(1, 0), EntryRun(2, 0), EntryRun(3, 2), EntryRun(4, 0)]


def test_times_are_the_brokers_where_it_noted_them() -> None:
    noted = encode_broker_entry_metadata(broker_timestamp_ms=9, index=1)
    assert list(read_keys(file_of(entry(), noted + entry()), 0, with_times=True).times_ms) == [5, 9]


def test_some_entries_are_read_alone_and_one_that_is_not_there_is_an_error() -> None:
    stored = [entry(b"%d" % number) for number in range(5)]
    reader = file_of(*stored)
    assert read_entries(reader, 0, {1, 3}) == [(1, stored[1]), (3, stored[3])]
    assert read_entries(reader, 0, range(5)) == list(enumerate(stored))
    with pytest.raises(CorruptionError, match="1 of 2 entries"):
        read_entries(reader, 0, {1, 9})
