"""The data directory of a stopped standalone, read and never changed: metadata values, journal files, stored entries.

The directory is locked meanwhile, so that one in use is refused and none can be started. Metadata is read from a copy,
since SQLite writes when it opens a file that a crash left behind. Entries are found by reading journal and entry logs
from end to end, without the index: slower than the bookie, and independent of what may be damaged.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from geminga.app.storage.core.bookie_set import BOOKIES_MAX, bookie_slot
from geminga.app.storage.data_directory import DIRECTORY_FORMAT, FORMAT_FILE, METADATA_FILE, PROCESS_FILE
from geminga.bookie.core import entry_log_format as log_format
from geminga.bookie.core import journal_format
from geminga.model.errors import DataDirectoryError

#: Groups of a journal that are behind the checkpoint are as valid as the others.
_EVERY_SEQUENCE: Final = 1 << 62


class StoredEntry(NamedTuple):
    """An entry as the bookie keeps it, digest included, and the file it was found in (the last one read wins)."""

    data: bytes
    file: str


@dataclass(frozen=True, slots=True)
class JournalFile:
    """What one journal file holds."""

    name: str
    journal_id: int
    instance_id: str
    groups: int
    first_sequence: int
    last_sequence: int
    #: Records by kind, and entries in them.
    adds: int
    entries: int
    fences: int
    ledgers: int
    used_bytes: int
    size_bytes: int
    is_torn: bool
    damaged_at: int | None


class Stopped(ABC):
    """What nobody runs now, held so that it stays so while somebody looks into it: a context manager."""

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let go."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go."""


class StoppedDirectory(Stopped):
    """See the module. Raises DataDirectoryError if it is in use, missing, foreign or newer."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = _lock(path)
        self._metadata: sqlite3.Connection | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            _check_format(path)
        except DataDirectoryError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the lock and the copy."""
        if self._metadata is not None:
            self._metadata.close()
            self._metadata = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None
        os.close(self._lock)

    # ---- metadata

    def value(self, path: str) -> bytes | None:
        """The value of a metadata node."""
        parent, _, name = path.rpartition("/")
        rows = self._select("SELECT value FROM node WHERE parent = ? AND name = ?", parent or "/", name)
        return bytes(rows[0][0]) if rows else None

    def children(self, path: str) -> list[str]:
        """Names below a metadata node, sorted."""
        rows = self._select("SELECT name FROM node WHERE parent = ? AND name != '' ORDER BY name", path)
        return [str(row[0]) for row in rows]

    def _select(self, statement: str, *values: str) -> list[tuple[bytes]]:
        if self._metadata is None:
            self._copy = tempfile.TemporaryDirectory(prefix="geminga-inspect-")
            for suffix in ("", "-wal"):
                source = os.path.join(self.path, METADATA_FILE + suffix)
                if os.path.exists(source):
                    shutil.copy(source, self._copy.name)
            self._metadata = sqlite3.connect(os.path.join(self._copy.name, METADATA_FILE))
        try:
            return self._metadata.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise DataDirectoryError(f"{os.path.join(self.path, METADATA_FILE)}: {error}") from error

    # ---- journal

    def journal_files(self) -> list[JournalFile]:
        """Every journal file, oldest first."""
        return [journal_file(name, data) for name, data in self._files("journal", ".journal")]

    def records(self) -> Iterator[tuple[str, int, journal_format.Record]]:
        """(file, sequence of its group, record) of every record in the journal, oldest first."""
        for name, data in self._files("journal", ".journal"):
            scan = scan_of(data)
            for group in scan.groups if scan is not None else ():
                for record in journal_format.decode_records(group.body):
                    yield name, group.sequence, record

    # ---- entries

    def entries(self, ledger_id: int) -> Mapping[int, StoredEntry]:
        """Every stored entry of a ledger, wherever it lies, by entry id: all of them are held."""
        return dict(sorted(self.copies(ledger_id)))

    def copies(self, ledger_id: int) -> Iterator[tuple[int, StoredEntry]]:
        """The same one after the other, beside one file: of several copies of an entry the last one counts.

        A journal's are here where no entry log has one.
        """
        seen: set[int] = set()
        for name, data in self._files("ledgers", ".log"):
            for chunk in chunks_of(data):
                if chunk.kind == log_format.KIND_ENTRIES and chunk.ledger_id == ledger_id:
                    ends = log_format.chunk_entry_ends(chunk)
                    for index in range(chunk.entry_count):
                        seen.add(chunk.first_entry_id + index)
                        body = bytes(chunk.body[ends[index] : ends[index + 1]])
                        yield chunk.first_entry_id + index, StoredEntry(body, name)
        for name, _, record in self.records():
            if isinstance(record, journal_format.AddRecord) and record.ledger_id == ledger_id:
                for entry_id, entry in enumerate(record.entries, record.first_entry_id):
                    if entry_id not in seen:
                        seen.add(entry_id)
                        yield entry_id, StoredEntry(entry, name)

    def _files(self, directory: str, suffix: str) -> Iterator[tuple[str, bytes]]:
        """Name and contents of the numbered files of one of each bookie's directories, in order.

        Those of the first bookie by their plain name, those of the others with their directory in front.
        """
        slots = [bookie_slot(number) for number in range(1, BOOKIES_MAX + 1)]
        places = {slot: os.path.join(self.path, slot.name, directory) for slot in slots}
        if not any(os.path.isdir(place) for place in places.values()):
            raise DataDirectoryError(f"{places[slots[0]]} is not there: nothing was ever stored here")
        for slot, place in places.items():
            try:
                names = sorted(name for name in os.listdir(place) if name.endswith(suffix))
            except FileNotFoundError:
                continue  # there are not so many, or it is lost
            for name in names:
                with open(os.path.join(place, name), "rb") as file:
                    if not os.fstat(file.fileno()).st_size:
                        continue
                    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                        yield (name if slot.number == 1 else f"{slot.name}/{name}"), mapped[:]


def lock_directory(path: str) -> int:
    """A descriptor that holds the directory until it is closed; raises OSError, BlockingIOError where it is in use."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _lock(path: str) -> int:
    try:
        return lock_directory(path)
    except BlockingIOError as error:
        raise DataDirectoryError(
            f"data directory {path} is in use by process {_holder(path)}: stop it first, or ask it with "
            "geminga admin topics stats-internal"
        ) from error
    except OSError as error:
        raise DataDirectoryError(f"data directory {path}: {error.strerror or error}") from error


def _holder(path: str) -> str:
    try:
        with open(os.path.join(path, PROCESS_FILE), "rb") as file:
            return str(json.load(file)["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def _check_format(path: str) -> None:
    try:
        with open(os.path.join(path, FORMAT_FILE), "rb") as file:
            number = json.load(file)["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataDirectoryError(f"{path} is no data directory of a standalone: {error}") from error
    if number != DIRECTORY_FORMAT:
        raise DataDirectoryError(f"data directory {path} has format {number}, this program reads {DIRECTORY_FORMAT}")


def scan_of(data: bytes) -> journal_format.JournalScan | None:
    """The groups of one journal file; None: its header is damaged."""
    header = journal_format.decode_file_header(data)
    if header is None:
        return None
    _, journal_id, instance_id = header
    seed = journal_format.group_seed(instance_id)
    return journal_format.scan_journal(data, seed=seed, journal_id=journal_id, known_sequence=_EVERY_SEQUENCE)


def journal_file(name: str, data: bytes) -> JournalFile:
    """What one journal file holds."""
    header = journal_format.decode_file_header(data)
    scan = scan_of(data)
    if header is None or scan is None:
        return JournalFile(name, -1, "", 0, -1, -1, 0, 0, 0, 0, 0, len(data), is_torn=False, damaged_at=0)
    records = [record for group in scan.groups for record in journal_format.decode_records(group.body)]
    adds = [record for record in records if isinstance(record, journal_format.AddRecord)]
    return JournalFile(
        name=name,
        journal_id=header[1],
        instance_id=header[2].hex(),
        groups=len(scan.groups),
        first_sequence=scan.groups[0].sequence if scan.groups else -1,
        last_sequence=scan.groups[-1].sequence if scan.groups else -1,
        adds=len(adds),
        entries=sum(len(record.entries) for record in adds),
        fences=sum(isinstance(record, journal_format.Fence) for record in records),
        ledgers=sum(isinstance(record, journal_format.NewLedgerRecord) for record in records),
        used_bytes=scan.end,
        size_bytes=len(data),
        is_torn=scan.is_torn,
        damaged_at=scan.damaged_at,
    )


def chunks_of(data: bytes) -> Iterator[log_format.LogChunk]:
    """The valid chunks of an entry log, whatever is damaged between them."""
    header = log_format.decode_file_header(data)
    if header is None:
        return
    _, log_id, instance_id = header
    seed = log_format.log_seed(instance_id, log_id)
    view = memoryview(data)
    offset = log_format.FILE_HEADER_BYTES
    while offset < len(data):
        chunk = log_format.decode_chunk(view, offset, seed)
        if chunk is None:
            offset = log_format.find_chunk(data, offset + 1, seed)
            if offset < 0:
                return
            continue
        yield chunk
        offset = chunk.end
