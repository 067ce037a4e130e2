"""Records of the delayed index (docs/formats/delayed-index.md): what waits, as bytes, and back. Pure.

A record is readable by itself, so that an index is written as any number of them and more are appended as it grows.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Final

from pyroaring import BitMap

from geminga.broker.core.delayed.chunk_record import decode_chunks, encode_chunk
from geminga.broker.core.delayed.packed_positions import ENTRY_MASK, SLOT_BITS, SLOT_MASK, PackedPositions
from geminga.broker.core.delayed.time_buckets import BITS_MAX, TimeBuckets
from geminga.model.errors import CorruptionError

#: Bytes of a record, about: what is encoded or taken in without giving way to others.
RECORD_BYTES_MAX: Final = 256 * 1024
_MAGIC: Final = b"GDI"
#: Of records with slots, and of those with chunks.
_SLOTS: Final = 1
_CHUNKS: Final = 2
#: Magic, version, bits, flags, bits of the coarsest buckets, then by version: ledgers and slots, or CRC-32 of what
#: follows it and chunks.
_HEAD: Final = Struct("<3sBBBHII")
_CHECKED: Final = _HEAD.size - 4
_SLOT: Final = Struct("<qIII")
_BITMAP: Final = Struct("<II")
#: Items, and runs, of a slot in one record.
_ITEMS_MAX: Final = 1 << 14
#: Entry ids of a bitmap in one record, as a power of two: 128 KiB.
_PIECE_BITS: Final = 20


def encode(index: TimeBuckets) -> Iterator[bytes]:
    """The records of the whole index; none if it is empty. Each is true of the moment when it is given. If the index
    changes between two of them, what was added or moved may be missing; if ledgers are numbered anew, it ends."""
    yield from _chunk_records(index)
    table = index.slots.ledger_ids
    slots: list[bytes] = []
    numbers: set[int] = set()
    size = 0
    for slot, packed in index.slots.parts():
        for piece in _pieces(packed):
            data = _encode_slot(slot, piece)
            if size + len(data) > RECORD_BYTES_MAX and slots:
                yield _record(index, slots, numbers)
                if index.slots.ledger_ids is not table:
                    return
                slots, numbers, size = [], set(), 0
            slots.append(data)
            size += len(data)
            numbers.update(piece.ledger_numbers())
    if slots:
        yield _record(index, slots, numbers)


def load(data: bytes, index: TimeBuckets, now: int, *, refines: bool = False) -> bool:
    """Add what a record says, less what is due at ``now``. False if it was written with another mode, or with larger
    buckets unless ``refines``, and was left out; CorruptionError if it is no record."""
    try:
        magic, version, bits, flags, coarse_bits, ledger_count, slot_count = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise CorruptionError(f"a record of the delayed index begins with {magic!r}")
        if (
            version not in {_SLOTS, _CHUNKS}
            or (bits > index.bits and not refines)
            or bool(flags & 1) != index.is_strict
        ):
            return False
        if coarse_bits >= BITS_MAX:
            raise CorruptionError(f"a record of the delayed index has buckets of {coarse_bits} bits")
        offset = _HEAD.size
        if version == _CHUNKS:
            if _checksum(data) != ledger_count:
                raise CorruptionError("a record of the delayed index has another checksum")
            _load_chunks(data, slot_count, index, max(bits, coarse_bits), bits, now)
            return True
        numbers = _array("I", data, offset, ledger_count)
        offset += 4 * ledger_count
        ledger_ids = dict(zip(numbers, _array("Q", data, offset, ledger_count), strict=True))
        offset += 8 * ledger_count
        slots: list[tuple[int, PackedPositions]] = []
        for _ in range(slot_count):
            slot, packed, offset = _decode_slot(data, offset)
            slots.append((slot, packed))
    except (ValueError, IndexError, OverflowError, StructError, zlib.error) as error:
        raise CorruptionError(f"a record of the delayed index is damaged: {error}") from error
    if offset != len(data):
        raise CorruptionError(f"a record of the delayed index has {len(data) - offset} bytes too many")
    index.coarse_bits = max(index.coarse_bits, bits, coarse_bits)
    if not set().union(*(packed.ledger_numbers() for _, packed in slots)) <= ledger_ids.keys():
        raise CorruptionError("a record of the delayed index names a ledger that its table has not")
    for slot, packed in slots:
        if bits == index.bits and slot << SLOT_BITS << bits > now:
            index.merge(slot, packed, ledger_ids)
            continue
        for number, part in packed.split().items():
            time = (slot << SLOT_BITS | number) << bits
            if time > now:
                bucket = index.bucket_of(time)
                part.renumber({known: known for known in ledger_ids}, bucket & SLOT_MASK)
                index.merge(bucket >> SLOT_BITS, part, ledger_ids)
    return True


def _load_chunks(data: bytes, count: int, index: TimeBuckets, coarse_bits: int, bits: int, now: int) -> None:
    # All of them before the index has any: damage is told before.
    chunks = list(decode_chunks(data, _HEAD.size, count))
    index.coarse_bits = max(index.coarse_bits, coarse_bits)
    for chunk in chunks:
        due = now >> bits if now >= 0 else -1
        while chunk.count and chunk.first_bucket <= due:
            chunk.take_next(due, early_max=0)
        if bits == index.bits and chunk.count:
            index.merge_chunk(chunk)
        elif chunk.count:
            index.merge_entries(
                (index.bucket_of(bucket << bits), ledger_id, entry_id)
                for bucket, ledger_id, entry_id in chunk.entries()
            )


def _chunk_records(index: TimeBuckets) -> Iterator[bytes]:
    chunks: list[bytes] = []
    size = 0
    for chunk in index.chunks():
        # Between two records it may have given everything, or it was discarded.
        if not chunk.count:
            continue
        data = encode_chunk(chunk)
        if size + len(data) > RECORD_BYTES_MAX and chunks:
            yield _chunk_record(index, chunks)
            chunks, size = [], 0
            if not chunk.count:
                continue
        chunks.append(data)
        size += len(data)
    if chunks:
        yield _chunk_record(index, chunks)


def _chunk_record(index: TimeBuckets, chunks: list[bytes]) -> bytes:
    head = _HEAD.pack(_MAGIC, _CHUNKS, index.bits, index.is_strict, index.coarse_bits, 0, len(chunks))
    record = b"".join([head, *chunks])
    return b"".join([head[: _CHECKED - 4], _checksum(record).to_bytes(4, "little"), record[_CHECKED:]])


def _checksum(record: bytes) -> int:
    """CRC-32 of all but the checksum."""
    return zlib.crc32(record[_CHECKED:], zlib.crc32(record[: _CHECKED - 4]))


def _record(index: TimeBuckets, slots: list[bytes], numbers: set[int]) -> bytes:
    table = sorted(numbers)
    head = _HEAD.pack(_MAGIC, _SLOTS, index.bits, index.is_strict, index.coarse_bits, len(table), len(slots))
    ids = array("Q", [index.slots.ledger_ids[number] for number in table])
    return b"".join([head, _bytes(array("I", table)), _bytes(ids), *slots])


def _pieces(packed: PackedPositions) -> Iterator[PackedPositions]:
    """The same in pieces that fit into a record."""
    if len(packed.singles) <= _ITEMS_MAX and len(packed.runs) <= 2 * _ITEMS_MAX and not packed.bitmaps:
        if not packed.is_empty:
            yield packed
        return
    for start in range(0, len(packed.singles), _ITEMS_MAX):
        piece = PackedPositions()
        piece.singles = packed.singles[start : start + _ITEMS_MAX]
        yield piece
    for start in range(0, len(packed.runs), 2 * _ITEMS_MAX):
        piece = PackedPositions()
        piece.runs = packed.runs[start : start + 2 * _ITEMS_MAX]
        yield piece
    for key, bitmap in packed.bitmaps.items():
        for start in range(bitmap.min() >> _PIECE_BITS, (bitmap.max() >> _PIECE_BITS) + 1):
            piece = PackedPositions()
            ids = bitmap & BitMap(range(start << _PIECE_BITS, (start + 1) << _PIECE_BITS))
            if ids:
                piece.bitmaps[key] = ids
                yield piece


def _encode_slot(slot: int, packed: PackedPositions) -> bytes:
    parts = [
        _SLOT.pack(slot, len(packed.singles), len(packed.runs) // 2, len(packed.bitmaps)),
        _bytes(packed.singles),
        _bytes(packed.runs),
    ]
    for key, bitmap in packed.bitmaps.items():
        body = bitmap.serialize()
        parts += [_BITMAP.pack(key, len(body)), body]
    return b"".join(parts)


def _decode_slot(data: bytes, offset: int) -> tuple[int, PackedPositions, int]:
    slot, singles, runs, bitmaps = _SLOT.unpack_from(data, offset)
    offset += _SLOT.size
    if slot < 0:
        raise CorruptionError(f"slot {slot} of the delayed index")
    packed = PackedPositions()
    packed.singles = _array("Q", data, offset, singles)
    offset += 8 * singles
    packed.runs = _array("Q", data, offset, 2 * runs)
    offset += 16 * runs
    if any((first & ENTRY_MASK) + count > ENTRY_MASK or not count for first, count in _pairs(packed.runs)):
        raise CorruptionError("a run of the delayed index is empty or too long")
    for _ in range(bitmaps):
        key, size = _BITMAP.unpack_from(data, offset)
        offset += _BITMAP.size
        if offset + size > len(data):
            raise CorruptionError("a bitmap of the delayed index ends early")
        packed.bitmaps[key] = BitMap.deserialize(data[offset : offset + size])
        offset += size
    return slot, packed, offset


def _pairs(values: array[int]) -> Iterator[tuple[int, int]]:
    each = iter(values)
    return zip(each, each, strict=True)


def _array(kind: str, data: bytes, offset: int, count: int) -> array[int]:
    values: array[int] = array(kind)
    end = offset + count * values.itemsize
    if end > len(data):
        raise CorruptionError("a record of the delayed index ends early")
    values.frombytes(data[offset:end])
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _bytes(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
