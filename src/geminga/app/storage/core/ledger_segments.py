"""Entries of a ledger of a cluster in a file of a backup: names, bytes, and which files make a ledger whole. Pure.

``docs/formats/backup.md``, A cluster's, is the specification.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from geminga.app.storage.core.backup_format import BackupFile
from geminga.model.bookie_port import ID_MAX
from geminga.model.errors import DataDirectoryError

#: Folder of the segments' names.
LEDGERS: Final = "ledgers"
_MAGIC: Final = b"GMLEDSEG"
_VERSION: Final = 1
#: Magic, version, ledger id, id of the first entry.
_HEADER: Final = struct.Struct(">8sIqq")
_SIZE: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size
_NAME: Final = re.compile(rf"{LEDGERS}/(\d{{1,19}})/(\d{{1,19}})-(\d{{1,19}})")


class LedgerSegment(NamedTuple):
    """Entries of one ledger that follow each other, and the file that has them."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    file: BackupFile

    @property
    def entries(self) -> int:
        """How many."""
        return self.last_entry_id - self.first_entry_id + 1


def segment_name(ledger_id: int, first_entry_id: int, last_entry_id: int) -> str:
    """Of a file in the manifest."""
    return f"{LEDGERS}/{ledger_id}/{first_entry_id}-{last_entry_id}"


def segment_of(file: BackupFile) -> LedgerSegment | None:
    """What a file of the manifest is by its name; None: something else. Raises DataDirectoryError for a bad name."""
    if not file.name.startswith(f"{LEDGERS}/"):
        return None
    match = _NAME.fullmatch(file.name)
    if match is None:
        raise DataDirectoryError(f"{file.name} is no segment of a ledger")
    ledger_id, first, last = map(int, match.groups())
    if not first <= last <= ID_MAX or ledger_id > ID_MAX:
        raise DataDirectoryError(f"{file.name} is no segment of a ledger: {first} to {last}")
    return LedgerSegment(ledger_id, first, last, file)


def by_ledger(files: Iterable[BackupFile]) -> dict[int, list[LedgerSegment]]:
    """Segments of each ledger, in the order of their entries. Raises DataDirectoryError."""
    found: dict[int, list[LedgerSegment]] = {}
    for file in files:
        segment = segment_of(file)
        if segment is not None:
            found.setdefault(segment.ledger_id, []).append(segment)
    for segments in found.values():
        segments.sort()
    return found


def usable(segments: Sequence[LedgerSegment], last_entry_id: int) -> list[LedgerSegment]:
    """The first of them that follow each other from entry 0 on, and end at ``last_entry_id`` or before."""
    found: list[LedgerSegment] = []
    wanted = 0
    for segment in segments:
        if segment.first_entry_id == wanted and segment.last_entry_id <= last_entry_id:
            found.append(segment)
            wanted = segment.last_entry_id + 1
    return found


def fault(ledger_id: int, segments: Sequence[LedgerSegment], last_entry_id: int) -> str | None:
    """What keeps segments from being all entries of a ledger up to ``last_entry_id``; None: nothing."""
    there = usable(segments, last_entry_id)
    end = there[-1].last_entry_id if there else -1
    if end == last_entry_id and len(there) == len(segments):
        return None
    return f"ledger {ledger_id}: entries 0 to {last_entry_id} are expected, the backup has 0 to {end} in order"


def encode_header(ledger_id: int, first_entry_id: int) -> bytes:
    """What a segment's file begins with."""
    return _HEADER.pack(_MAGIC, _VERSION, ledger_id, first_entry_id)


def header_fault(data: bytes, segment: LedgerSegment) -> str | None:
    """Why a file does not begin as this segment's; None: it does."""
    if data[:HEADER_BYTES] == encode_header(segment.ledger_id, segment.first_entry_id):
        return None
    return f"{segment.file.stored} ({segment.file.name}) does not begin as a segment of ledger {segment.ledger_id}"


def encode_records(payloads: Iterable[bytes]) -> list[bytes]:
    """Buffers to append: each payload behind its size."""
    buffers: list[bytes] = []
    for payload in payloads:
        buffers += (_SIZE.pack(len(payload)), payload)
    return buffers


def split_records(data: bytes | memoryview) -> Iterator[bytes]:
    """Payloads that are whole in ``data``, which begins at one; :func:`consumed` says how far they go."""
    offset = 0
    while offset + _SIZE.size <= len(data):
        (size,) = _SIZE.unpack_from(data, offset)
        end = offset + _SIZE.size + size
        if end > len(data):
            return
        yield bytes(data[offset + _SIZE.size : end])
        offset = end


def consumed(payloads: Iterable[bytes]) -> int:
    """Bytes that these take in a file."""
    return sum(_SIZE.size + len(payload) for payload in payloads)


def needed(data: bytes) -> int:
    """Bytes that the first record takes; of less than a size: those of a size."""
    return _SIZE.size + _SIZE.unpack_from(data)[0] if len(data) >= _SIZE.size else _SIZE.size
