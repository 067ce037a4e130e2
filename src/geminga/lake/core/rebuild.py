"""Rows become entries again, and entries are compared. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from geminga.model.crc32c import crc32c
from geminga.model.errors import CorruptionError
from geminga.wire.pulsar.compression import DecompressionError, compress, decompress
from geminga.wire.pulsar.metadata import MAGIC_CHECKSUM, checksum_matches, message_offset, split_entry

_UINT32: Final = Struct(">I")
_CHECKSUM_END: Final = 6


def rebuild(head: bytes, payload: bytes) -> bytes:
    """An entry of its head, as it is stored, and its decompressed payload. Raises CorruptionError.

    Without compression it is the stored entry, byte by byte, and its checksum says so. With it the checksum is that of
    what the compressor gives now.
    """
    metadata, offset = split_entry(head)
    if metadata is None or offset != len(head):
        raise CorruptionError("the head of an entry can not be read")
    start = message_offset(head)
    if not metadata.compression:
        entry = head + payload
        if not checksum_matches(entry[start:] if start else entry):
            raise CorruptionError("an entry does not have its checksum")
        return entry
    try:
        rest = compress(metadata.compression, payload)
    except ValueError as error:
        raise CorruptionError(f"the head of an entry names compression {metadata.compression}") from error
    if head[start : start + 2] != MAGIC_CHECKSUM:
        return head + rest
    covered = head[start + _CHECKSUM_END :]
    checksum = crc32c(rest, crc32c(covered))
    return b"".join((head[: start + 2], _UINT32.pack(checksum), covered, rest))


def rebuild_entries(
    entry_ids: Sequence[int],
    heads: Sequence[bytes | None],
    message_heads: Sequence[bytes | None],
    values: Sequence[bytes | None],
    raws: Sequence[bytes | None],
) -> list[tuple[int, bytes]]:
    """(id, entry) of consecutive rows, which begin with the first row of an entry. Raises CorruptionError."""
    entries: list[tuple[int, bytes]] = []
    count = len(entry_ids)
    row = 0
    while row < count:
        entry_id, first = entry_ids[row], row
        row += 1
        while row < count and entry_ids[row] == entry_id:
            row += 1
        raw, head = raws[first], heads[first]
        if raw is not None:
            entries.append((entry_id, raw))
            continue
        if head is None:
            raise CorruptionError(f"entry {entry_id} has neither a head nor its bytes")
        if message_heads[first] is None:
            if row - first > 1:
                raise CorruptionError(f"entry {entry_id} has {row - first} rows and is no batch")
            entries.append((entry_id, rebuild(head, values[first] or b"")))
            continue
        parts: list[bytes] = []
        for each in range(first, row):
            parts += (message_heads[each] or b"", values[each] or b"")
        entries.append((entry_id, rebuild(head, b"".join(parts))))
    return entries


def is_same(stored: bytes, rebuilt: bytes) -> bool:
    """Whether a rebuilt entry is the stored one: the same metadata, the same decompressed payload."""
    if stored == rebuilt:
        return True
    first, first_offset = split_entry(stored)
    second, second_offset = split_entry(rebuilt)
    if first is None or second is None or not first.compression or first != second:
        return False
    start, again = message_offset(stored), message_offset(rebuilt)
    if stored[:start] != rebuilt[:again] or not checksum_matches(rebuilt[again:]):
        return False
    if (stored[start : start + 2] == MAGIC_CHECKSUM) != (rebuilt[again : again + 2] == MAGIC_CHECKSUM):
        return False
    try:
        size = first.uncompressed_size
        return decompress(first.compression, stored[first_offset:], size) == decompress(
            second.compression, rebuilt[second_offset:], size
        )
    except DecompressionError:
        return False
