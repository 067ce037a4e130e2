"""Protobuf varints for the hand-written codecs: small ones come from a table."""

from __future__ import annotations

from typing import Final

_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
_UINT64_MASK: Final = (1 << 64) - 1


def encode_varint(value: int) -> bytes:
    """The varint of ``value``; a negative one as two's complement of 64 bits, ten bytes, as protobuf does."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if 0 <= value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    if 0 <= value < 2097152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    value &= _UINT64_MASK
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """The varint at ``position`` as unsigned 64 bits and the position behind it; IndexError if cut short.

    ValueError if it is longer than ten bytes.
    """
    value = data[position]
    position += 1
    if value < 128:
        return value, position
    value &= 127
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _UINT64_MASK, position
        shift += 7
        if shift > 63:
            raise ValueError("varint longer than ten bytes")


def signed64(value: int) -> int:
    """An unsigned 64-bit number read as two's complement: the ids -1 travel as 2^64 - 1."""
    return value - (1 << 64) if value >> 63 else value
