"""The entry log's bytes: file header and chunks. Pure; ``docs/formats/entry-log.md`` is the specification.

File header (64 bytes, big endian)::

    0   4  magic "GMEL"        4   4  format version (1)    8   8  log id
    16 16  bookie instance id  32  4  CRC32C of bytes 0..32     36 28  zero

Chunk (36 bytes and body)::

    0   4  magic "GMEC"        4   4  CRC32C of bytes 8..end, seeded with that of instance id and log id
    8   4  kind                12  4  body length           16  8  ledger id
    24  8  first entry id      32  4  count                 36     body

Kind 1, entries: count lengths (4 each), then consecutive entries of one ledger. Kind 2, ledgers: a table of
ledger states (``ledger_states``), with count = number of rows; a log opens with that of all ledgers, so that
the newest log alone restores them.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from geminga.bookie.core.journal_format import FILE_HEADER_BYTES as FILE_HEADER_BYTES
from geminga.bookie.core.journal_format import FileHeader
from geminga.model.crc32c import crc32c

CHUNK_MAGIC: Final = b"GMEC"
FORMAT_VERSION: Final = 1
KIND_ENTRIES: Final = 1
KIND_LEDGERS: Final = 2
_CHUNK_PREFIX: Final = struct.Struct(">4sI")
_CHUNK_FIELDS: Final = struct.Struct(">IIqqI")
#: Mean size of a body's buffers from which on each is written by itself: a copy would cost more than one more buffer.
APART_BYTES_MIN: Final = 8 * 1024
CHUNK_HEADER_BYTES: Final = _CHUNK_PREFIX.size + _CHUNK_FIELDS.size


class LogChunk(NamedTuple):
    """A valid chunk and the offset behind it."""

    kind: int
    ledger_id: int
    first_entry_id: int
    entry_count: int
    body: memoryview
    end: int


def log_seed(instance_id: bytes, log_id: int) -> int:
    """Start value of every chunk's CRC: bytes of another log or bookie never decode."""
    return crc32c(log_id.to_bytes(8, "big"), crc32c(instance_id))


_HEADER: Final = FileHeader(b"GMEL", FORMAT_VERSION)
encode_file_header: Final = _HEADER.encode
decode_file_header: Final = _HEADER.decode


def encode_chunk(
    kind: int, ledger_id: int, first_entry_id: int, count: int, body: Sequence[bytes], seed: int
) -> tuple[bytes, ...]:
    """One chunk, as buffers to write back to back: a large body is not copied."""
    body_length = sum(map(len, body))
    fields = _CHUNK_FIELDS.pack(kind, body_length, ledger_id, first_entry_id, count)
    if body_length < APART_BYTES_MIN * len(body):
        joined = b"".join((fields, *body))
        return _CHUNK_PREFIX.pack(CHUNK_MAGIC, crc32c(joined, seed)), joined
    crc = crc32c(fields, seed)
    for buffer in body:
        crc = crc32c(buffer, crc)
    return _CHUNK_PREFIX.pack(CHUNK_MAGIC, crc), fields, *body


def encode_entries(ledger_id: int, first_entry_id: int, entries: Sequence[bytes], seed: int) -> tuple[bytes, ...]:
    """A chunk of consecutive entries, as :func:`encode_chunk`."""
    count = len(entries)
    table = struct.pack(f">{count}I", *map(len, entries))
    return encode_chunk(KIND_ENTRIES, ledger_id, first_entry_id, count, (table, *entries), seed)


def split_into_chunks(entries: Mapping[int, bytes], chunk_bytes_max: int) -> Iterator[tuple[int, list[bytes]]]:
    """(first entry id, entries) of each chunk of one ledger, in the order of entry ids.

    Consecutive entries share a chunk as long as they fit ``chunk_bytes_max``; a larger entry has its own.
    """
    entry_ids = sorted(entries)
    for start, stop in consecutive_stretches(entry_ids):
        stretch = list(map(entries.__getitem__, entry_ids[start:stop]))
        ends = list(accumulate(map(len, stretch)))
        at = 0
        while at < len(stretch):
            before = ends[at - 1] if at else 0
            upto = max(at + 1, bisect_right(ends, before + chunk_bytes_max))
            yield entry_ids[start + at], stretch[at:upto]
            at = upto


def consecutive_stretches(entry_ids: Sequence[int]) -> list[tuple[int, int]]:
    """[start, stop) index pairs of the stretches without a gap in the sorted ``entry_ids``."""
    count = len(entry_ids)
    if count and entry_ids[-1] - entry_ids[0] == count - 1:
        return [(0, count)]
    stretches = []
    start = 0
    for i in range(1, count + 1):
        if i == count or entry_ids[i] != entry_ids[i - 1] + 1:
            stretches.append((start, i))
            start = i
    return stretches


def decode_chunk(data: memoryview, offset: int, seed: int) -> LogChunk | None:
    """The chunk at ``offset``, or None if these bytes are not one of this log."""
    fields_at = offset + _CHUNK_PREFIX.size
    body_at = offset + CHUNK_HEADER_BYTES
    if body_at > len(data):
        return None
    magic, crc = _CHUNK_PREFIX.unpack_from(data, offset)
    if magic != CHUNK_MAGIC:
        return None
    kind, body_length, ledger_id, first_entry_id, count = _CHUNK_FIELDS.unpack_from(data, fields_at)
    end = body_at + body_length
    if end > len(data) or crc32c(data[fields_at:end], seed) != crc:
        return None
    return LogChunk(kind, ledger_id, first_entry_id, count, data[body_at:end], end)


def chunk_entry_ends(chunk: LogChunk) -> list[int]:
    """Ends of the chunk's entries as offsets in its body; entry i starts where i-1 ends, the first at 4 * count."""
    lengths = struct.unpack_from(f">{chunk.entry_count}I", chunk.body)
    return list(accumulate(lengths, initial=4 * chunk.entry_count))


def find_chunk(data: bytes, offset: int, seed: int) -> int:
    """Offset of the first valid chunk at or behind ``offset``, or -1: tells damage in the middle from a torn end."""
    view = memoryview(data)
    while (offset := data.find(CHUNK_MAGIC, offset)) >= 0:
        if decode_chunk(view, offset, seed) is not None:
            return offset
        offset += 1
    return -1
