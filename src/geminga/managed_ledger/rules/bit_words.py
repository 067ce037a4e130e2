"""A part's portable Roaring bitmap as a plain bit set, and back: Pulsar keeps bit sets, we Roaring bitmaps. Pure.

A part has 65,536 entries, so its bitmap is one container: the sorted ids, the runs, or the bits themselves. Format of
the bitmap: the specification of Roaring's portable serialisation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from geminga.managed_ledger.rules.acked_entries import PART_BITS, PART_ENTRIES
from geminga.model.errors import invariant

#: Bytes of a part's bit set.
PART_BYTES: Final = PART_ENTRIES // 8
#: int64 words of a part's bit set.
PART_WORDS: Final = PART_ENTRIES // 64
_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
#: A container with more ids has them as bits.
_IDS_MAX: Final = 4096
#: What one container's bits stand behind: cookie, count, key and cardinality - 1, offset.
_HEADER: Final = struct.Struct("<IIHHI")
_HEADER_WITH_RUNS: Final = struct.Struct("<HHBHH")


def bits_of_part(data: bytes) -> int:
    """The entries of a part (a bitmap of one container, as ``AckedEntries.part_bytes`` gives) as an int's set bits."""
    if not data:
        return 0
    if int.from_bytes(data[:2], "little") == _COOKIE_WITH_RUNS:
        _, more, run_flags, _, less_one = _HEADER_WITH_RUNS.unpack_from(data)
        invariant(not more, "a part's bitmap has one container")
        at = _HEADER_WITH_RUNS.size
        if run_flags:
            return _bits_of_runs(data, at)
    else:
        _, count, _, less_one, at = _HEADER.unpack_from(data)
        invariant(count == 1, "a part's bitmap has one container")
    if less_one >= _IDS_MAX:
        return int.from_bytes(data[at : at + PART_BYTES], "little")
    found = bytearray(PART_BYTES)
    for entry_id in struct.unpack_from(f"<{less_one + 1}H", data, at):
        found[entry_id >> 3] |= 1 << (entry_id & 7)
    return int.from_bytes(found, "little")


def _bits_of_runs(data: bytes, at: int) -> int:
    (count,) = struct.unpack_from("<H", data, at)
    pairs = struct.unpack_from(f"<{2 * count}H", data, at + 2)
    found = bytearray(PART_BYTES)
    for first, length in zip(pairs[::2], pairs[1::2], strict=True):
        last = first + length
        begin, end = first >> 3, last >> 3
        if begin == end:
            found[begin] |= (2 << (last & 7)) - (1 << (first & 7))
        else:
            found[begin] |= 256 - (1 << (first & 7))
            found[end] |= (2 << (last & 7)) - 1
            found[begin + 1 : end] = b"\xff" * (end - begin - 1)
    return int.from_bytes(found, "little")


def range_count(bits: int) -> int:
    """How many runs of set bits there are."""
    return (bits & ~(bits << 1)).bit_count()


def words_of_parts(parts: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The int64 words of parts (number, bits; ascending, none empty), up to the last that has a bit."""
    last, bits = parts[-1]
    word_count = last * PART_WORDS + (bits.bit_length() + 63) // 64
    data = bytearray(word_count * 8)
    for part, bits in parts:
        begin = part * PART_BYTES
        size = min(PART_BYTES, len(data) - begin)
        data[begin : begin + size] = bits.to_bytes(size, "little")
    return struct.unpack(f"<{word_count}q", data)


def part_of_words(words: Sequence[int], part: int) -> bytes:
    """A part of a bit set of int64 words, as a portable Roaring bitmap; empty for none."""
    here = words[part * PART_WORDS : (part + 1) * PART_WORDS]
    data = struct.pack(f"<{len(here)}q", *here)
    count = int.from_bytes(data, "little").bit_count()
    if not count:
        return b""
    header = _HEADER.pack(_COOKIE, 1, 0, count - 1, _HEADER.size)
    if count > _IDS_MAX:
        return header + data.ljust(PART_BYTES, b"\0")
    ids: list[int] = []
    for at, byte in enumerate(data):
        if byte:
            ids += [8 * at + bit for bit in range(8) if byte >> bit & 1]
    return header + struct.pack(f"<{count}H", *ids)


def part_count(words: Sequence[int]) -> int:
    """How many parts a bit set of int64 words reaches over."""
    return -(-len(words) * 64 >> PART_BITS)
