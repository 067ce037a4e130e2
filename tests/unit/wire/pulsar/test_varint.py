"""Varints at their edges."""

from __future__ import annotations

import pytest

from geminga.wire.pulsar.varint import decode_varint, encode_varint, signed64


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, (1 << 63) - 1, (1 << 64) - 1])
def test_edges_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded, 0) == (value, len(encoded))


def test_minus_one_takes_ten_bytes() -> None:
    assert encode_varint(-1) == b"\xff" * 9 + b"\x01"
    assert signed64(decode_varint(encode_varint(-1), 0)[0]) == -1


def test_varint_cut_short_raises() -> None:
    with pytest.raises(IndexError):
        decode_varint(b"\x80", 0)


def test_endless_varint_raises() -> None:
    with pytest.raises(ValueError, match="ten bytes"):
        decode_varint(b"\x80" * 11, 0)
