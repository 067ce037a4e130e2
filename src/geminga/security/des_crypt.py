"""The password hash of old Unix: 25 times DES, of which a salt of 12 bits disturbs the expansion.

``ab3h5IBJCPEqg`` is two characters of salt, then 64 bits. Of a password the first eight bytes count, and of each seven
bits: a file of Pulsar's documentation may have it, and nobody should make a new one. Source: crypt(3), FIPS 46-3.
"""

from __future__ import annotations

from functools import cache
from typing import Final

ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: Characters of salt and hash.
LENGTH: Final = 13
_ROUNDS: Final = 25

#: FIPS 46-3: bits counted from 1, the leftmost.
_CHOICE_1: Final = (
    *(57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36),
    *(63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4),
)
_CHOICE_2: Final = (
    *(14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2),
    *(41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32),
)
_SHIFTS: Final = (1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1)
_PERMUTATION: Final = (
    *(16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10),
    *(2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25),
)
#: Rows of 16 digits each, four for each box.
_BOXES: Final = (
    "e4d12fb83a6c59070f74e2d1a6cb953841e8d62bfc973a50fc8249175b3ea06d",
    "f18e6b34972dc05a3d47f28ec01a69b50e7ba4d158c6932fd8a13f42b67c05e9",
    "a09e63f51dc7b428d709346a285ecbf1d6498f30b12c5ae71ad069874fe3b52c",
    "7de3069a1285bc4fd8b56f03472c1ae9a690cb7df13e52843f06a1d8945bc72e",
    "2c417ab6853fd0e9eb2c47d150fa3986421bad78f9c5630eb8c71e2d6f09a453",
    "c1af92680d34e75baf427c9561de0b389ef528c3704a1db6432c95fabe17608d",
    "4b2ef08d3c975a61d0b7491ae35c2f8614bdc37eaf6805926bd814a7950fe23c",
    "d2846fb1a93e50c71fd8a374c56b0e927b419ce206adf35821e74a8dfc90356b",
)


def des_crypt(password: bytes, salt: str) -> str:
    """Salt and hash. ``salt``: two characters of :data:`ALPHABET`, else ValueError."""
    if len(salt) != 2 or any(one not in ALPHABET for one in salt):
        raise ValueError("a salt of DES is two characters of [./0-9A-Za-z]")
    number = ALPHABET.index(salt[0]) | ALPHABET.index(salt[1]) << 6
    # The lowest bit of the salt swaps the first bits of the expansion's halves.
    swapped = sum(1 << (23 - bit) for bit in range(12) if number >> bit & 1)
    keys = _schedule(password)
    tables = _tables()
    left = right = 0
    for _ in range(_ROUNDS):
        for high_key, low_key in keys:
            ring = (right & 1) << 33 | right << 1 | right >> 31
            high = (ring >> 28 & 63) << 18 | (ring >> 24 & 63) << 12 | (ring >> 20 & 63) << 6 | ring >> 16 & 63
            low = (ring >> 12 & 63) << 18 | (ring >> 8 & 63) << 12 | (ring >> 4 & 63) << 6 | ring & 63
            change = (high ^ low) & swapped
            high ^= change ^ high_key
            low ^= change ^ low_key
            out = (
                tables[0][high >> 18]
                | tables[1][high >> 12 & 63]
                | tables[2][high >> 6 & 63]
                | tables[3][high & 63]
                | tables[4][low >> 18]
                | tables[5][low >> 12 & 63]
                | tables[6][low >> 6 & 63]
                | tables[7][low & 63]
            )
            left, right = right, left ^ out
        left, right = right, left
    block = _final(left << 32 | right) << 2
    return salt + "".join(ALPHABET[block >> shift & 63] for shift in range(60, -6, -6))


def _schedule(password: bytes) -> list[tuple[int, int]]:
    """Sixteen keys of 24 bits and 24 bits."""
    key = 0
    for byte in password[:8].ljust(8, b"\0"):
        key = key << 8 | byte << 1 & 0xFF
    chosen = _permuted(key, 64, _CHOICE_1)
    one, other = chosen >> 28, chosen & 0xFFFFFFF
    keys = []
    for shift in _SHIFTS:
        one = (one << shift | one >> (28 - shift)) & 0xFFFFFFF
        other = (other << shift | other >> (28 - shift)) & 0xFFFFFFF
        made = _permuted(one << 28 | other, 56, _CHOICE_2)
        keys.append((made >> 24, made & 0xFFFFFF))
    return keys


@cache
def _tables() -> tuple[tuple[int, ...], ...]:
    """For each box, by its six bits: four bits, permuted into 32."""
    found = []
    for place, digits in enumerate(_BOXES):
        row = [int(digit, 16) for digit in digits]
        table = []
        for six in range(64):
            line, column = (six >> 4 & 2) | six & 1, six >> 1 & 15
            table.append(_permuted(row[line * 16 + column] << (28 - 4 * place), 32, _PERMUTATION))
        found.append(tuple(table))
    return tuple(found)


@cache
def _final_order() -> tuple[int, ...]:
    """The final permutation: bit 40, 8, 48, 16, ... to the front."""
    return tuple(start - row for row in range(8) for start in (40, 8, 48, 16, 56, 24, 64, 32))


def _final(block: int) -> int:
    return _permuted(block, 64, _final_order())


def _permuted(value: int, bits: int, order: tuple[int, ...]) -> int:
    made = 0
    for place in order:
        made = made << 1 | value >> (bits - place) & 1
    return made
