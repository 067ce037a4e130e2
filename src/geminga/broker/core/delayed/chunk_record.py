"""Chunks of the delayed index as bytes (docs/formats/delayed-index.md), as they are packed in memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.chunks import UNIT, DelayedChunk
from geminga.broker.core.delayed.column import COLUMN_MAX, PIECES_MAX
from geminga.broker.core.delayed.log_stretch import LogStretch
from geminga.broker.core.delayed.packed_positions import ENTRY_BITS, ENTRY_MASK

#: Lowest bucket, bits of a place, last place that was discarded (-1: none), ledgers, units.
_CHUNK: Final = Struct("<QBqII")
#: Ledger id, first and last entry id.
_PIECE: Final = Struct("<QII")
#: First key, keys, bytes.
_UNIT: Final = Struct("<QHI")


def encode_chunk(chunk: DelayedChunk) -> bytes:
    """What is left of a chunk."""
    chunk.close()
    return b"".join(
        [
            _CHUNK.pack(chunk.base, chunk.shift, chunk.floor, len(chunk.stretch), len(chunk.units)),
            *(_PIECE.pack(*piece) for piece in chunk.stretch.pieces()),
            *(
                _UNIT.pack(first, length, len(unit))
                for first, length, unit in zip(chunk.firsts, chunk.lengths, chunk.units, strict=True)
            ),
            *chunk.units,
        ]
    )


def decode_chunks(data: bytes, offset: int, count: int) -> Iterator[DelayedChunk]:
    """``count`` chunks from ``offset`` to the end. Raises ValueError, StructError, zlib.error, OverflowError."""
    for _ in range(count):
        base, shift, floor, piece_count, units = _CHUNK.unpack_from(data, offset)
        offset += _CHUNK.size
        if not 0 < piece_count <= PIECES_MAX:
            raise ValueError(f"a chunk of {piece_count} ledgers")
        pieces = [_PIECE.unpack_from(data, offset + _PIECE.size * index) for index in range(piece_count)]
        offset += _PIECE.size * piece_count
        ledgers = [ledger_id for ledger_id, _, _ in pieces]
        if ledgers != sorted({*ledgers}) or any(not first <= last <= ENTRY_MASK for _, first, last in pieces):
            raise ValueError("ledgers or their entries do not ascend")
        stretch = LogStretch(pieces)
        span = stretch.span
        if shift > ENTRY_BITS or not floor < span <= 1 << shift:
            raise ValueError(f"a chunk of {span} places of {shift} bits")
        chunk = DelayedChunk(stretch, base, shift)
        sizes = []
        for _ in range(units):
            first, length, size = _UNIT.unpack_from(data, offset)
            offset += _UNIT.size
            if not 0 < length <= UNIT or not size:
                raise ValueError(f"a unit of {length} entries in {size} bytes")
            chunk.firsts.append(first)
            chunk.lengths.append(length)
            sizes.append(size)
        for size in sizes:
            if offset + size > len(data):
                raise ValueError("a unit ends early")
            chunk.units.append(data[offset : offset + size])
            offset += size
        chunk.count = sum(chunk.lengths)
        if not 0 < chunk.count <= min(COLUMN_MAX, span):
            raise ValueError(f"a chunk of {chunk.count} entries")
        if chunk.count == span:
            chunk.view = BitMap(range(span))
        if floor >= 0:
            chunk.floor = floor
            chunk.view = None
            chunk.count = len(chunk.members())
            chunk.view = None
        yield chunk
    if offset != len(data):
        raise ValueError(f"{len(data) - offset} bytes too many")
