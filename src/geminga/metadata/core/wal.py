"""Damage in SQLite's write-ahead log, which SQLite itself takes for a torn end. Pure.

SQLite reads the log up to the first frame whose checksum fails and forgets the rest without a word. With
``synchronous=FULL`` a transaction is written only after the one before is durable, so at most the last one can be
torn: a bad frame with more than one commit behind it is damage to something acknowledged. The log's format is
SQLite's own (https://www.sqlite.org/fileformat2.html#walformat).
"""

from __future__ import annotations

import struct
from typing import Final

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
#: Magic number of a log whose checksums are over little-endian words; one more: big-endian.
_MAGIC: Final = 0x377F0682
_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MASK: Final = 0xFFFFFFFF

#: The two running sums.
_Sums = tuple[int, int]


def find_wal_damage(data: bytes) -> int | None:
    """Offset of a damaged header or frame that transactions behind it prove to have been durable; None if there
    is none, or if it can not be told from a torn end."""
    if len(data) <= HEADER_BYTES:
        return None
    magic, _, page_bytes, _, *salts, sum1, sum2 = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    sums = _checksum(data[:24], order, (0, 0))
    if magic & ~1 != _MAGIC or sums != (sum1, sum2):
        # The header is durable before the first frame is written.
        return 0
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    damaged_at: int | None = None
    commits = 0
    for offset in range(HEADER_BYTES, len(data) - frame_bytes + 1, frame_bytes):
        _, pages, *frame_salts, sum1, sum2 = _FRAME.unpack_from(data, offset)
        if damaged_at is None:
            body = offset + FRAME_HEADER_BYTES
            sums = _checksum(data[offset : offset + 8], order, sums)
            sums = _checksum(data[body : body + page_bytes], order, sums)
            if frame_salts == salts and sums == (sum1, sum2):
                continue
            damaged_at = offset
        # Frames with other salts are left over from an earlier round of the log.
        commits += bool(pages) and frame_salts == salts
    return damaged_at if commits > 1 else None


def _checksum(data: bytes, order: str, sums: _Sums) -> _Sums:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
