"""Key hashes as Pulsar's clients and Key_Shared dispatchers compute them."""

from __future__ import annotations

from typing import Final

import mmh3

_MASK32: Final = 0xFFFFFFFF
_POSITIVE_INT: Final = 0x7FFFFFFF


def murmur3_32(key: bytes) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) with the sign bit cleared: Pulsar's ``Murmur3_32Hash``."""
    return mmh3.hash(key, 0, False) & _POSITIVE_INT


def java_string_hash(key: str) -> int:
    """``String.hashCode`` of Java with the sign bit cleared: Pulsar's ``JavaStringHash``."""
    encoded = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(encoded), 2):
        value = (31 * value + (encoded[index] << 8 | encoded[index + 1])) & _MASK32
    return value & _POSITIVE_INT
