"""Records of chunks: read back as they were, and anything else told as damage."""

from __future__ import annotations

import zlib
from struct import error as StructError

import pytest
from tests.unit.broker.core.test_delayed_chunks import at_random, packed

from geminga.broker.core.delayed.chunk_record import decode_chunks, encode_chunk
from geminga.runtime import SystemRng
from support.house.weekly_sample import sampled


def test_chunk_is_read_back_with_what_was_taken_and_discarded():
    chunk = packed(at_random(500, 1), unit=60)
    chunk.take_next(chunk.first_bucket + 30, early_max=0)
    ledger_id, entry_id = chunk.stretch.positions([chunk.stretch.span // 3])[0]
    assert chunk.discard_through(ledger_id, entry_id) > 50
    data = encode_chunk(chunk)
    (again, other) = decode_chunks(b"12345" + data * 2, 5, 2)
    for read in (again, other):
        assert read.count == chunk.count == len(read.members())
        assert list(read.entries()) == list(chunk.entries())
        assert list(read.stretch.pieces()) == list(chunk.stretch.pieces())
        assert encode_chunk(read) == data


def test_chunk_of_entries_in_a_row_knows_its_members_unread():
    (chunk,) = decode_chunks(encode_chunk(packed([(i * 7 % 50, 1, i) for i in range(100)])), 0, 1)
    assert chunk.view is not None
    assert list(chunk.view) == list(range(100))


@pytest.mark.parametrize("seed", sampled("chunk record", range(20), 7))
def test_damaged_chunk_is_told_or_has_no_more_than_it_may(seed):
    draw = SystemRng(seed)
    data = bytearray(encode_chunk(packed(at_random(90, seed), unit=40)))
    with pytest.raises((ValueError, StructError)):
        list(decode_chunks(bytes(data[: draw.below(len(data))]), 0, 1))
    with pytest.raises((ValueError, StructError)):
        list(decode_chunks(bytes(data) + b"\0", 0, 1))
    for _ in range(60):
        damaged = data.copy()
        damaged[draw.below(len(damaged))] = draw.below(256)
        try:
            (chunk,) = decode_chunks(bytes(damaged), 0, 1)
            list(chunk.entries())
        except (ValueError, StructError, IndexError, OverflowError, zlib.error):
            continue
        assert 0 <= chunk.count <= 90
