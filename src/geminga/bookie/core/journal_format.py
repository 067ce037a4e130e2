"""The journal's bytes: file header, groups, records. Pure; ``docs/formats/journal.md`` is the specification.

File header (64 bytes, big endian)::

    0   4  magic "GMJF"        4   4  format version (1)    8   8  journal id
    16 16  bookie instance id  32  4  CRC32C of bytes 0..32     36 28  zero

Group (40 bytes and body)::

    0   4  magic "GMJG"        4   4  CRC32C of bytes 8..end, seeded with the CRC32C of the instance id
    8   8  journal id          16  8  sequence              24  8  sequence of the last group durable before
    32  4  record count        36  4  body length           40     body

Record in a body: kind (1 byte), payload length (4), payload. ADD: ledger id (8), first entry id (8), count (4),
count lengths (4 each), the entries. FENCE: ledger id (8). LEDGER: ledger id (8), master key.

A group is written only after the one before it is durable. So an invalid group with a later valid group that
saw more groups before it than were found is damage; an invalid tail is a torn write that nobody was told of.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from geminga.model.crc32c import crc32c

GROUP_MAGIC: Final = b"GMJG"
FORMAT_VERSION: Final = 1
FILE_HEADER_BYTES: Final = 64
INSTANCE_ID_BYTES: Final = 16
_FILE_HEADER: Final = struct.Struct(">4sIQ16s")
_GROUP_PREFIX: Final = struct.Struct(">4sI")
_GROUP_FIELDS: Final = struct.Struct(">QQQII")
GROUP_HEADER_BYTES: Final = _GROUP_PREFIX.size + _GROUP_FIELDS.size
#: Mean size of a group's buffers from which on each is written by itself: a copy would cost more than one more buffer.
APART_BYTES_MIN: Final = 8 * 1024
_RECORD: Final = struct.Struct(">BI")
_ADD: Final = struct.Struct(">BIqqI")
_ADD_FIXED_BYTES: Final = 20
_LEDGER: Final = struct.Struct(">BIq")
_ID: Final = struct.Struct(">q")
_ADD_FIELDS: Final = struct.Struct(">qqI")
_ADD_ONE: Final = struct.Struct(">BIqqII")


class RecordKind(IntEnum):
    """First byte of a record."""

    ADD = 1
    FENCE = 2
    LEDGER = 3


class Group(NamedTuple):
    """A valid group: its numbers, its body, and the offset behind it."""

    sequence: int
    previous: int
    record_count: int
    body: memoryview
    end: int


class AddRecord(NamedTuple):
    """Consecutive entries of one ledger."""

    ledger_id: int
    first_entry_id: int
    entries: list[bytes]


class Fence(NamedTuple):
    """The ledger takes no more ordinary adds."""

    ledger_id: int


class NewLedgerRecord(NamedTuple):
    """A ledger first heard of, with its master key."""

    ledger_id: int
    master_key: bytes


Record = AddRecord | Fence | NewLedgerRecord


class JournalScan(NamedTuple):
    """What a journal file holds behind its header."""

    #: Valid groups in file order.
    groups: Sequence[Group]
    #: Offset behind the last valid group.
    end: int
    #: Offset at which groups are missing although later ones were written, or None; the first group's
    #: predecessors may also be missing from the end of an earlier file.
    damaged_at: int | None
    #: Whether anything but zeros lies behind ``end``: a torn group.
    is_torn: bool


def group_seed(instance_id: bytes) -> int:
    """Start value of every group's CRC: bytes of another bookie never decode."""
    return crc32c(instance_id)


class FileHeader(NamedTuple):
    """How a journal or an entry log begins: its first 64 bytes."""

    magic: bytes
    version: int

    def encode(self, file_id: int, instance_id: bytes) -> bytes:
        """The bytes. ``file_id``: of the journal or the log."""
        fields = _FILE_HEADER.pack(self.magic, self.version, file_id, instance_id)
        return (fields + crc32c(fields).to_bytes(4, "big")).ljust(FILE_HEADER_BYTES, b"\0")

    def decode(self, data: bytes) -> tuple[int, int, bytes] | None:
        """(format version, id of the file, instance id), or None if these are not the bytes of such a header."""
        if len(data) < FILE_HEADER_BYTES:
            return None
        fields = data[: _FILE_HEADER.size]
        if crc32c(fields) != int.from_bytes(data[_FILE_HEADER.size : _FILE_HEADER.size + 4], "big"):
            return None
        if any(data[_FILE_HEADER.size + 4 : FILE_HEADER_BYTES]):
            return None
        magic, version, file_id, instance_id = _FILE_HEADER.unpack(fields)
        return (version, file_id, instance_id) if magic == self.magic else None


_HEADER: Final = FileHeader(b"GMJF", FORMAT_VERSION)
encode_file_header: Final = _HEADER.encode
decode_file_header: Final = _HEADER.decode


def encode_add_header(ledger_id: int, first_entry_id: int, entries: Sequence[bytes], size_bytes: int) -> bytes:
    """The bytes before the entries of an ADD record; ``size_bytes`` is the sum of the entries' lengths."""
    count = len(entries)
    if count == 1:
        return _ADD_ONE.pack(1, 24 + size_bytes, ledger_id, first_entry_id, 1, size_bytes)
    length = _ADD_FIXED_BYTES + 4 * count + size_bytes
    return _ADD.pack(1, length, ledger_id, first_entry_id, count) + struct.pack(f">{count}I", *map(len, entries))


def encode_adds(ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes]) -> tuple[list[bytes], int, int]:
    """Buffers of the ADD records of entries with gaps, one for each run; how many; the bytes of their headers."""
    buffers: list[bytes] = []
    records = header_bytes = start = 0
    count = len(entry_ids)
    for end in range(1, count + 1):
        if end < count and entry_ids[end] == entry_ids[end - 1] + 1:
            continue
        run = entries[start:end]
        header = encode_add_header(ledger_id, entry_ids[start], run, sum(map(len, run)))
        buffers.append(header)
        buffers.extend(run)
        records += 1
        header_bytes += len(header)
        start = end
    return buffers, records, header_bytes


def encode_fence(ledger_id: int) -> bytes:
    """A FENCE record."""
    return _LEDGER.pack(RecordKind.FENCE, 8, ledger_id)


def encode_ledger(ledger_id: int, master_key: bytes) -> bytes:
    """A LEDGER record."""
    return _LEDGER.pack(RecordKind.LEDGER, 8 + len(master_key), ledger_id) + master_key


def encode_group(
    buffers: Sequence[bytes], *, seed: int, journal_id: int, sequence: int, previous: int, record_count: int
) -> tuple[bytes, ...]:
    """Buffers to write back to back: one join and one CRC for the whole group, or large ones as they are."""
    body_length = sum(map(len, buffers))
    fields = _GROUP_FIELDS.pack(journal_id, sequence, previous, record_count, body_length)
    if body_length < APART_BYTES_MIN * len(buffers):
        joined = b"".join((fields, *buffers))
        return _GROUP_PREFIX.pack(GROUP_MAGIC, crc32c(joined, seed)), joined
    crc = crc32c(fields, seed)
    for buffer in buffers:
        crc = crc32c(buffer, crc)
    return _GROUP_PREFIX.pack(GROUP_MAGIC, crc), fields, *buffers


def decode_group(data: memoryview, offset: int, *, seed: int, journal_id: int) -> Group | None:
    """The group at ``offset``, or None if these bytes are not one of this journal and bookie."""
    fields_at = offset + _GROUP_PREFIX.size
    body_at = offset + GROUP_HEADER_BYTES
    if body_at > len(data):
        return None
    magic, crc = _GROUP_PREFIX.unpack_from(data, offset)
    if magic != GROUP_MAGIC:
        return None
    group_journal_id, sequence, previous, record_count, body_length = _GROUP_FIELDS.unpack_from(data, fields_at)
    end = body_at + body_length
    if group_journal_id != journal_id or end > len(data) or crc32c(data[fields_at:end], seed) != crc:
        return None
    return Group(sequence, previous, record_count, data[body_at:end], end)


def scan_journal(data: bytes, *, seed: int, journal_id: int, known_sequence: int) -> JournalScan:
    """Every valid group behind the file header, and whether groups are missing between them.

    ``known_sequence``: groups up to this one are not needed (the mark) or were found in earlier files.
    """
    view = memoryview(data)
    groups: list[Group] = []
    damaged_at: int | None = None
    last = known_sequence
    used_bytes = len(data.rstrip(b"\0"))
    offset = end = FILE_HEADER_BYTES
    while True:
        group = decode_group(view, offset, seed=seed, journal_id=journal_id)
        if group is None:
            offset = data.find(GROUP_MAGIC, offset + 1, used_bytes)
            if offset < 0:
                return JournalScan(groups, end, damaged_at, used_bytes > end)
            continue
        # A group knows the last one that was durable before it: if that was not found, it is damaged.
        if damaged_at is None and (group.previous > last or (groups and group.sequence <= groups[-1].sequence)):
            damaged_at = end
        groups.append(group)
        last = max(last, group.sequence)
        offset = end = group.end


def decode_records(body: memoryview) -> Iterator[Record]:
    """The records of a valid group's body; raises ValueError if they do not fill it (a bug, not damage)."""
    offset = 0
    size = len(body)
    while offset < size:
        kind, length = _RECORD.unpack_from(body, offset)
        offset += _RECORD.size
        payload = body[offset : offset + length]
        if len(payload) != length:
            raise ValueError(f"record of {length} bytes at {offset} of a body of {size}")
        offset += length
        yield _decode_record(kind, payload)


def _decode_record(kind: int, payload: memoryview) -> Record:
    if kind == RecordKind.ADD:
        ledger_id, first_entry_id, count = _ADD_FIELDS.unpack_from(payload)
        lengths = struct.unpack_from(f">{count}I", payload, _ADD_FIXED_BYTES)
        entries = []
        at = _ADD_FIXED_BYTES + 4 * count
        for length in lengths:
            entries.append(bytes(payload[at : at + length]))
            at += length
        return AddRecord(ledger_id, first_entry_id, entries)
    if kind == RecordKind.FENCE:
        return Fence(_ID.unpack(payload)[0])
    if kind == RecordKind.LEDGER:
        return NewLedgerRecord(_ID.unpack_from(payload)[0], bytes(payload[8:]))
    raise ValueError(f"record kind {kind}")
