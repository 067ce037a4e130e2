"""Key hashes as Pulsar's clients and Key_Shared dispatchers compute them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MASK32: Final = 0xFFFFFFFF
_POSITIVE_INT: Final = 0x7FFFFFFF
#: Keys whose hash is remembered; a longer key than this many bytes is computed each time.
KEY_HASH_CACHE_SIZE: Final = 16384
KEY_HASH_CACHED_BYTES_MAX: Final = 64


def murmur3_32(key: bytes) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) with the sign bit cleared: Pulsar's ``Murmur3_32Hash``."""
    if len(key) <= KEY_HASH_CACHED_BYTES_MAX:
        return _cached_murmur3_32(key)
    return _murmur3_32(key)


def java_string_hash(key: str) -> int:
    """``String.hashCode`` of Java with the sign bit cleared: Pulsar's ``JavaStringHash``."""
    encoded = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(encoded), 2):
        value = (31 * value + (encoded[index] << 8 | encoded[index + 1])) & _MASK32
    return value & _POSITIVE_INT


def _murmur3_32(key: bytes) -> int:
    size = len(key)
    whole = size & ~3
    value = 0
    for index in range(0, whole, 4):
        block = int.from_bytes(key[index : index + 4], "little")
        block = block * 0xCC9E2D51 & _MASK32
        block = (block << 15 | block >> 17) & _MASK32
        value ^= block * 0x1B873593 & _MASK32
        value = (value << 13 | value >> 19) & _MASK32
        value = (value * 5 + 0xE6546B64) & _MASK32
    if size > whole:
        block = int.from_bytes(key[whole:], "little")
        block = block * 0xCC9E2D51 & _MASK32
        block = (block << 15 | block >> 17) & _MASK32
        value ^= block * 0x1B873593 & _MASK32
    value ^= size
    value ^= value >> 16
    value = value * 0x85EBCA6B & _MASK32
    value ^= value >> 13
    value = value * 0xC2B2AE35 & _MASK32
    value ^= value >> 16
    return value & _POSITIVE_INT


_cached_murmur3_32 = lru_cache(maxsize=KEY_HASH_CACHE_SIZE)(_murmur3_32)
