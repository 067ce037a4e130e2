"""What columns of a row group mean to compaction; entries of all kinds are in the property test."""

from __future__ import annotations

import pytest

from geminga.broker.core.compaction.entry_messages import DELETES, IS_GONE, EntryMessages
from geminga.broker.core.compaction.lake_messages import KeptEntry, kept_of, messages_of, packed
from geminga.lake.core.rows import EntryRun, KeyRows, UndividedEntry
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch, single_message_head
from geminga.wire.pulsar.metadata import encode_entry, split_entry


def entry(key: str, value: bytes) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key=key)
    return encode_entry(metadata, value)


def test_rows_around_an_entry_that_is_stored_whole_come_before_and_behind_it() -> None:
    rows = KeyRows(
        [b"a", b"b", None],
        bytes((0, 1, 0)),
        bytes(3),
        [UndividedEntry(1, 4, entry("x", b"1")), UndividedEntry(1, 5, None), UndividedEntry(3, 9, entry("y", b""))],
        (),
    )
    assert list(messages_of(rows)) == [
        EntryMessages([b"a"], bytes(1)),
        EntryMessages([b"x"], bytes(1)),
        EntryMessages([b"b", None], bytes((DELETES, 0))),
        EntryMessages([b"y"], bytes((DELETES,))),
    ]


def test_what_was_left_out_before_stays_so() -> None:
    rows = KeyRows([b"a", b"b"], bytes((1, 0)), bytes((1, 0)), (), ())
    (found,) = messages_of(rows)
    assert found == EntryMessages([b"a", b"b"], bytes((DELETES | IS_GONE, 0)))


@pytest.mark.parametrize(("from_ms", "flags"), [(None, (1, 1, 1, 0)), (11, (1, 1, 1, 0)), (10, (0, 1, 1, 0))])
def test_young_tombstones_are_values_but_those_without_a_key_and_those_left_out(from_ms, flags) -> None:
    rows = KeyRows([b"a", None, b"c", b"d"], bytes((1, 1, 1, 0)), bytes((0, 0, 0, 0)), (), (10, 10, 9, 10))
    (found,) = messages_of(rows, tombstones_from_ms=from_ms)
    assert found is not None
    assert found.flags == bytes(flags)


def test_entries_of_which_something_is_kept_are_found_by_their_bits() -> None:
    runs = [EntryRun(0, 1), EntryRun(1, 3), EntryRun(2, 0), EntryRun(3, 0), EntryRun(4, 2)]
    stored = [UndividedEntry(4, 2, entry("x", b"1")), UndividedEntry(4, 3, None)]
    assert kept_of(runs, stored, 0b01_1_010_0) == [KeptEntry(1, 3, 0b010), KeptEntry(2, 1, 1), KeptEntry(4, 2, 1)]
    assert kept_of(runs, stored, 0) == []


def test_a_batch_comes_with_those_that_are_kept() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=3)
    parts = [single_message_head(1, number, partition_key=f"k{number}") + b"%d" % number for number in range(3)]
    batch = encode_entry(metadata, b"".join(parts))
    assert packed(batch, KeptEntry(0, 3, 0b111)) is batch
    again = packed(batch, KeptEntry(0, 3, 0b101))
    found, offset = split_entry(again)
    assert found is not None
    assert list(found.compacted_batch_indexes) == [0, 2]
    assert [one.compacted_out for one, _ in decode_batch(again[offset:], 3)] == [False, True, False]
