from __future__ import annotations

from itertools import pairwise

from geminga.bookie.core import entry_log_format as fmt
from support.house.format_docs import documented_bytes

INSTANCE = bytes(range(16))


def seed_of(log_id: int) -> int:
    return fmt.log_seed(INSTANCE, log_id)


def test_chunk_is_as_documented():
    data = documented_bytes("entry-log")
    assert b"".join(fmt.encode_entries(7, 0, [b"one", b"two!"], seed_of(1))) == data
    chunk = fmt.decode_chunk(memoryview(data), 0, seed_of(1))
    assert chunk is not None
    assert (chunk.kind, chunk.ledger_id, chunk.first_entry_id, chunk.entry_count) == (fmt.KIND_ENTRIES, 7, 0, 2)
    ends = fmt.chunk_entry_ends(chunk)
    assert [bytes(chunk.body[a:b]) for a, b in pairwise(ends)] == [b"one", b"two!"]


def test_file_header_round_trip():
    header = fmt.encode_file_header(5, INSTANCE)
    assert fmt.decode_file_header(header) == (1, 5, INSTANCE)
    assert fmt.decode_file_header(header[:20]) is None


def test_chunk_of_another_log_never_decodes():
    data = memoryview(b"".join(fmt.encode_entries(7, 0, [b"one"], seed_of(1))))
    assert fmt.decode_chunk(data, 0, seed_of(1)) is not None
    assert fmt.decode_chunk(data, 0, seed_of(2)) is None
    assert fmt.decode_chunk(data, 0, fmt.log_seed(bytes(16), 1)) is None


def test_entries_are_split_at_gaps_and_at_the_size_limit():
    entries = {i: bytes(40) for i in (9, 8, 7, 1, 3)}
    entries[4] = bytes(500)
    split = [(first, len(stretch)) for first, stretch in fmt.split_into_chunks(entries, 100)]
    assert split == [(1, 1), (3, 1), (4, 1), (7, 2), (9, 1)]


def test_consecutive_stretches_of_edge_cases():
    assert fmt.consecutive_stretches([]) == []
    assert fmt.consecutive_stretches([4]) == [(0, 1)]
    assert fmt.consecutive_stretches([4, 5, 6]) == [(0, 3)]
    assert fmt.consecutive_stretches([4, 6, 7]) == [(0, 1), (1, 3)]


def test_find_chunk_skips_what_only_looks_like_one():
    chunk = b"".join(fmt.encode_entries(7, 0, [b"one"], seed_of(1)))
    assert fmt.find_chunk(b"GMEC" + bytes(50) + chunk, 0, seed_of(1)) == 54
    assert fmt.find_chunk(chunk[:-1], 0, seed_of(1)) == -1


def test_large_entries_are_not_copied_and_have_the_layout_of_small_ones():
    entries = [b"a" * (2 * fmt.APART_BYTES_MIN), b"b" * (2 * fmt.APART_BYTES_MIN)]
    buffers = fmt.encode_entries(7, 0, entries, seed_of(1))
    assert all(any(buffer is entry for buffer in buffers) for entry in entries)
    data = b"".join(buffers)
    chunk = fmt.decode_chunk(memoryview(data), 0, seed_of(1))
    assert chunk is not None
    assert chunk.end == len(data)
    ends = fmt.chunk_entry_ends(chunk)
    assert [bytes(chunk.body[a:b]) for a, b in pairwise(ends)] == entries
    assert fmt.decode_chunk(memoryview(data[:-1] + b"c"), 0, seed_of(1)) is None
