"""Compression formats are those of other libraries; a payload never inflates past its size."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.wire.pulsar.compression import LZ4, NONE, SNAPPY, ZLIB, ZSTD, DecompressionError, compress, decompress

KINDS = [LZ4, ZLIB, ZSTD, SNAPPY]


@pytest.mark.parametrize("kind", [NONE, *KINDS])
@given(data=st.binary(max_size=2000))
def test_payload_comes_back(kind: int, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize("kind", KINDS)
def test_payload_of_another_size_is_refused(kind: int) -> None:
    data = compress(kind, bytes(10_000))
    for size in (0, 1, 9_999, 10_001, 20_000):
        with pytest.raises(DecompressionError):
            decompress(kind, data, size)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.binary(max_size=200), size=st.integers(0, 1000))
def test_damaged_payload_is_an_error_or_has_the_size(kind: int, data: bytes, size: int) -> None:
    try:
        assert len(decompress(kind, data, size)) == size
    except DecompressionError:
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_no_room_is_made_for_a_size_that_the_payload_can_not_have(kind: int) -> None:
    # Of Snappy it is said twice, by its first bytes, too.
    claimed = 1 << 28
    payload = b"\x80\x80\x80\x80\x01\xff" if kind == SNAPPY else compress(kind, b"short")
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError):
            decompress(kind, payload, claimed)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 300, 1 << 17, (1 << 24) + 5])
def test_what_compresses_best_comes_back(kind: int, size: int) -> None:
    assert decompress(kind, compress(kind, bytes(size)), size) == bytes(size)


def test_formats_are_the_raw_ones() -> None:
    data = b"abcd" * 100
    assert zlib.decompress(compress(ZLIB, data)) == data
    assert compress(ZSTD, data)[:4] == b"\x28\xb5\x2f\xfd"
    # Raw Snappy begins with the length as a varint; a raw LZ4 block with a token of four literals.
    assert compress(SNAPPY, data)[:2] == b"\x90\x03"
    assert compress(LZ4, data)[:5] == b"\x4fabcd"


def test_number_that_is_no_compression_is_refused() -> None:
    with pytest.raises(ValueError):
        compress(9, b"x")
    with pytest.raises(DecompressionError):
        decompress(9, b"x", 1)
