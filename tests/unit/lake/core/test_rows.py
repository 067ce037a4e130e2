"""Entries that would take far more memory as rows than they have bytes are kept as they are stored."""

from __future__ import annotations

import pytest

from geminga.lake.core import rows as module
from geminga.lake.core.rows import MESSAGE, UNDECODABLE, RowBuffer
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry


def batch(count: int, single: pb.SingleMessageMetadata | None = None, **fields) -> bytes:
    """An entry with a batch of empty messages."""
    head = (single or pb.SingleMessageMetadata(payload_size=0)).SerializeToString()
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count)
    metadata.MergeFrom(pb.MessageMetadata(**fields))
    return encode_entry(metadata, (len(head).to_bytes(4, "big") + head) * count)


def kinds_of(entry: bytes) -> list[str]:
    rows = RowBuffer(7, -1)
    rows.add(0, entry)
    taken = rows.take()
    kinds: list[str] = taken.of_message["kind"]
    assert taken.of_message["raw"][0] == (entry if kinds[0] == UNDECODABLE else None)
    return kinds


def test_a_batch_of_very_many_messages_is_kept_as_it_is_stored(monkeypatch):
    monkeypatch.setattr(module, "ENTRY_ROWS_MAX", 1000)
    assert kinds_of(batch(1000)) == [MESSAGE] * 1000
    assert kinds_of(batch(1001)) == [UNDECODABLE]


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_name": "n" * 1000},
        {"schema_version": b"v" * 1000},
        {"replicated_from": "c" * 1000},
        {"replicate_to": ["c"] * 112},
    ],
)
def test_a_batch_whose_shared_metadata_would_be_very_large_in_each_row_is_kept_as_it_is_stored(monkeypatch, fields):
    monkeypatch.setattr(module, "SHARED_BYTES_MAX", 100_000)
    assert kinds_of(batch(90, **fields)) == [MESSAGE] * 90
    assert kinds_of(batch(110, **fields)) == [UNDECODABLE]


def test_a_batch_with_very_much_metadata_of_its_messages_is_kept_as_it_is_stored(monkeypatch):
    monkeypatch.setattr(module, "HEADS_BYTES_MAX", 10_000)
    single = pb.SingleMessageMetadata(payload_size=0)
    single.properties.add(key="k" * 100, value="v" * 100)
    assert kinds_of(batch(40, single)) == [MESSAGE] * 40
    assert kinds_of(batch(60, single)) == [UNDECODABLE]


def test_what_is_held_counts_metadata_where_there_is_hardly_any_payload():
    rows = RowBuffer(7, -1)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.properties.add(key="k", value="v" * 10_000)
    rows.add(0, encode_entry(metadata, b"x"))
    assert rows.payload_bytes == 1
    assert rows.held_bytes > 20_000


def test_a_part_of_a_message_says_which_it_is():
    rows = RowBuffer(7, -1)
    part = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, uuid="u", num_chunks_from_msg=3, chunk_id=1,
        total_chunk_msg_size=90,
    )  # fmt: skip
    rows.add(0, encode_entry(part, b"x"))
    rows.add(1, encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x"))
    columns = rows.take().of_entry
    told = [columns[name] for name in ("chunk_uuid", "chunk_id", "chunk_count", "chunked_bytes")]
    assert told == [["u", None], [1, None], [3, None], [90, None]]


def test_versions_of_schemas_are_looked_up_as_far_as_they_are_some(monkeypatch):
    """Clients write whatever they like there: what is remembered for a whole ledger has a limit, and so has each."""
    monkeypatch.setattr(module, "SCHEMA_VERSIONS_MAX", 3)
    rows = RowBuffer(7, -1)
    given = [*(number.to_bytes(8, "big") for number in (5, 4, 4, 3, 2, 1)), b"\xff" * 8, b"short", bytes(9), bytes(100)]
    for number, version in enumerate(reversed(given)):
        rows.add(number, batch(1, schema_version=version))
    assert sorted(rows.schema_versions) == [number.to_bytes(8, "big") for number in (1, 2, 3)]
    # The column has what was sent.
    assert rows.take().of_entry["schema_version"] == given[::-1]
