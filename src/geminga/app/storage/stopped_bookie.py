"""The directories of a stopped bookie: read and never changed, or emptied by ``format``.

Both are locked meanwhile, so that those in use are refused and none can be started. Entries are found by reading
journal and entry logs from end to end, without the index: slower than the bookie, and independent of what is damaged.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

from geminga.app.storage.stopped_directory import Stopped, chunks_of, journal_file, lock_directory, scan_of
from geminga.bookie.core import entry_log_format as log_format
from geminga.bookie.core import journal_format
from geminga.bookie.core.checkpoint_format import Checkpoint, decode_checkpoint, decode_cookie
from geminga.bookie.core.ledger_states import decode_states
from geminga.bookie.entry_logs import SUFFIX as LOG_SUFFIX
from geminga.bookie.entry_logs import log_name
from geminga.bookie.journal import SUFFIX as JOURNAL_SUFFIX
from geminga.bookie.ledger_storage import CHECKPOINT_NAME, run_name
from geminga.bookie.recovery import COOKIE_NAME, VERSION_NAME, is_own_file
from geminga.model.errors import CorruptionError, DataDirectoryError
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie, decode_bookie_cookie

#: Bytes of an entry that a bookie reads: ledger id, entry id and last add confirmed.
_IDS_BYTES: Final = 24
#: Bytes of entries that are held at once, beside one file.
WINDOW_BYTES: Final = 64 << 20

Document = dict[str, object]


class LedgerOnDisk:
    """What is stored of a ledger."""

    __slots__ = ("entry_ids", "is_fenced", "size_bytes")

    def __init__(self) -> None:
        self.entry_ids = BitMap64()
        self.size_bytes = 0
        self.is_fenced = False


class FoundEntry(NamedTuple):
    """Where an entry lies, and what is told of it without its bytes."""

    file: str
    size_bytes: int
    last_add_confirmed: int


class StoppedBookie(Stopped):
    """See the module. Raises DataDirectoryError if a directory is missing or in use.

    ``pairs``: (journal's, ledgers' directory) of each of its parts, in order.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.parts: list[StoppedDirectories] = []
        try:
            for journal, ledgers in pairs:
                self.parts.append(StoppedDirectories(journal, ledgers))
        except DataDirectoryError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the locks."""
        for part in self.parts:
            part.close()

    @property
    def places(self) -> str:
        """Its directories, to be named in a sentence."""
        return ", ".join(path for part in self.parts for path in (part.ledger_directory, part.journal_directory))

    def ledgers(self) -> Mapping[int, LedgerOnDisk]:
        """Every ledger of which something is stored and that was not deleted, by id."""
        found = {ledger_id: ledger for part in self.parts for ledger_id, ledger in part.ledgers().items()}
        return dict(sorted(found.items()))

    def entries(self, ledger_id: int) -> Mapping[int, FoundEntry]:
        """Every stored entry of a ledger, by entry id."""
        return self.parts[ledger_id % len(self.parts)].entries(ledger_id)

    def contents(self, ledger_id: int, entries: Mapping[int, FoundEntry]) -> Iterator[bytes]:
        """The bytes of ``entries``, in their order; :data:`WINDOW_BYTES` of them are held at once."""
        return self.parts[ledger_id % len(self.parts)].contents(ledger_id, entries)

    def sanity(self) -> Document:
        """Every file checked from end to end: what is wrong, and how much was looked at."""
        found = [part.sanity() for part in self.parts]
        problems = [problem for one in found for problem in one.problems]
        for number, part in enumerate(self.parts):
            astray = [ledger_id for ledger_id in part.ledgers() if ledger_id % len(self.parts) != number]
            if astray:
                problems.append(
                    f"{part.ledger_directory} and {part.journal_directory} hold {len(astray)} ledgers that belong to "
                    f"another pair of directories, from {min(astray)} on: is their number or order another one?"
                )
        return {
            "isSane": not problems,
            "problems": problems,
            "journals": sum(one.journals for one in found),
            "entryLogs": sum(one.entry_logs for one in found),
            "ledgers": sum(one.ledgers for one in found),
            "entries": sum(one.entries for one in found),
        }

    def cookie(self) -> BookieCookie | None:
        """Whose directories these are; None if no directory says so. Raises CorruptionError."""
        for part in self.parts:
            for directory in (part.ledger_directory, part.journal_directory):
                path = os.path.join(directory, VERSION_NAME)
                try:
                    with open(path, "rb") as file:
                        return decode_bookie_cookie(file.read(), path)
                except FileNotFoundError:
                    continue
        return None

    def own_files(self) -> list[str]:
        """Paths of all files that a bookie made here."""
        return [path for part in self.parts for path in part.own_files()]

    def format(self) -> int:
        """Remove all that a bookie made here; how many files that were.

        Cookies go last: what a crash leaves behind is refused by the next start, and can be formatted again.
        """
        files = self.own_files()
        for path in sorted(files, key=lambda path: os.path.basename(path) in (COOKIE_NAME, VERSION_NAME)):
            os.unlink(path)
        return len(files)


class Sanity(NamedTuple):
    """What a part was found to be."""

    problems: tuple[str, ...]
    journals: int
    entry_logs: int
    ledgers: int
    entries: int


class StoppedDirectories:
    """One pair of directories."""

    def __init__(self, journal_directory: str, ledger_directory: str) -> None:
        self.journal_directory = journal_directory
        self.ledger_directory = ledger_directory
        self._locks: list[int] = []
        try:
            for path in (journal_directory, ledger_directory):
                self._locks.append(_lock(path))
        except DataDirectoryError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the locks."""
        locks, self._locks = self._locks, []
        for descriptor in locks:
            os.close(descriptor)

    # ---- what is stored

    def cookie(self) -> BookieCookie | None:
        """Whose directories they are; None: there is no cookie. Raises CorruptionError."""
        path = os.path.join(self.ledger_directory, VERSION_NAME)
        data = _contents(path)
        return None if data is None else decode_bookie_cookie(data, path)

    def ledgers(self) -> Mapping[int, LedgerOnDisk]:
        """Every ledger of which something is stored and that was not deleted, by id."""
        found: dict[int, LedgerOnDisk] = {}
        for ledger_id, entry_id, size, _ in self._entries():
            ledger = found.setdefault(ledger_id, LedgerOnDisk())
            if entry_id not in ledger.entry_ids:
                ledger.entry_ids.add(entry_id)
                ledger.size_bytes += size
        for ledger_id, is_fenced in self._states():
            found.setdefault(ledger_id, LedgerOnDisk()).is_fenced |= is_fenced
        checkpoint = self.checkpoint()
        deleted = BitMap64() if checkpoint is None else BitMap64.deserialize(checkpoint.deleted)
        return {ledger_id: found[ledger_id] for ledger_id in sorted(found) if ledger_id not in deleted}

    def entries(self, ledger_id: int) -> Mapping[int, FoundEntry]:
        """Every stored entry of a ledger, by entry id."""
        found: dict[int, FoundEntry] = {}
        for name, entry_id, entry in self._copies(ledger_id):
            # Of entry logs the last copy counts, before any of a journal.
            if entry_id not in found or name.endswith(LOG_SUFFIX):
                confirmed = int.from_bytes(entry[16:_IDS_BYTES], "big", signed=True)
                found[entry_id] = FoundEntry(name, len(entry), confirmed)
        return dict(sorted(found.items()))

    def contents(self, ledger_id: int, entries: Mapping[int, FoundEntry]) -> Iterator[bytes]:
        """See :meth:`StoppedBookie.contents`."""
        window: dict[int, FoundEntry] = {}
        size = 0
        for entry_id, entry in entries.items():
            if window and size + entry.size_bytes > WINDOW_BYTES:
                yield from self._window(ledger_id, window)
                window, size = {}, 0
            window[entry_id] = entry
            size += entry.size_bytes
        yield from self._window(ledger_id, window)

    def _window(self, ledger_id: int, window: Mapping[int, FoundEntry]) -> Iterator[bytes]:
        found: dict[int, bytes] = {}
        for name, entry_id, body in self._copies(ledger_id, {entry.file for entry in window.values()}):
            # As they were found: of a log the last copy, of a journal the first.
            is_wanted = entry_id in window and window[entry_id].file == name
            if is_wanted and (name.endswith(LOG_SUFFIX) or entry_id not in found):
                found[entry_id] = bytes(body)
        for entry_id in window:
            yield found.pop(entry_id)

    def _copies(
        self, ledger_id: int, names: Container[str] | None = None
    ) -> Iterator[tuple[str, int, bytes | memoryview]]:
        """(file, entry id, entry) of each copy: those of entry logs first. ``names``: of these files alone."""
        for name, data in self._files(self.ledger_directory, LOG_SUFFIX, names):
            for chunk in chunks_of(data):
                if chunk.kind == log_format.KIND_ENTRIES and chunk.ledger_id == ledger_id:
                    for entry_id, body in _bodies(chunk):
                        yield name, entry_id, body
        for name, record in self._records(names):
            if isinstance(record, journal_format.AddRecord) and record.ledger_id == ledger_id:
                for entry_id, entry in enumerate(record.entries, record.first_entry_id):
                    yield name, entry_id, entry

    def checkpoint(self) -> Checkpoint | None:
        """None: there is none, or it is damaged."""
        data = _contents(os.path.join(self.ledger_directory, CHECKPOINT_NAME))
        cookie = _contents(os.path.join(self.ledger_directory, COOKIE_NAME))
        own = decode_cookie(cookie) if cookie is not None else None
        return None if data is None or own is None else decode_checkpoint(data, own.instance_id)

    def sanity(self) -> Sanity:
        """Every file checked from end to end."""
        problems = [*self._problems_of_cookies(), *self._problems_of_journals(), *self._problems_of_logs()]
        ledgers = self.ledgers()
        return Sanity(
            tuple(problems),
            len(self._names(self.journal_directory, JOURNAL_SUFFIX)),
            len(self._names(self.ledger_directory, LOG_SUFFIX)),
            len(ledgers),
            sum(len(ledger.entry_ids) for ledger in ledgers.values()),
        )

    # ---- format

    def own_files(self) -> list[str]:
        """Paths of all files that a bookie made here."""
        return [
            os.path.join(path, name)
            for path in (self.journal_directory, self.ledger_directory)
            for name in sorted(os.listdir(path))
            if is_own_file(name)
        ]

    # ---- files

    def _names(self, directory: str, suffix: str) -> list[str]:
        return sorted(name for name in os.listdir(directory) if name.endswith(suffix))

    def _files(self, directory: str, suffix: str, names: Container[str] | None = None) -> Iterator[tuple[str, bytes]]:
        for name in self._names(directory, suffix):
            if names is not None and name not in names:
                continue
            data = _contents(os.path.join(directory, name))
            if data:
                yield name, data

    def _records(self, names: Container[str] | None = None) -> Iterator[tuple[str, journal_format.Record]]:
        for name, data in self._files(self.journal_directory, JOURNAL_SUFFIX, names):
            scan = scan_of(data)
            for group in scan.groups if scan is not None else ():
                for record in journal_format.decode_records(group.body):
                    yield name, record

    def _entries(self) -> Iterator[tuple[int, int, int, bool]]:
        """(ledger id, entry id, bytes, whether its own header says the same) of each copy of each entry."""
        for _, data in self._files(self.ledger_directory, LOG_SUFFIX):
            for chunk in chunks_of(data):
                if chunk.kind == log_format.KIND_ENTRIES:
                    for entry_id, body in _bodies(chunk):
                        yield chunk.ledger_id, entry_id, len(body), _is_own(body, chunk.ledger_id, entry_id)
        for _, record in self._records():
            if isinstance(record, journal_format.AddRecord):
                for entry_id, entry in enumerate(record.entries, record.first_entry_id):
                    yield record.ledger_id, entry_id, len(entry), _is_own(entry, record.ledger_id, entry_id)

    def _states(self) -> Iterator[tuple[int, bool]]:
        """(ledger id, whether it is fenced) as often as it is told."""
        for _, data in self._files(self.ledger_directory, LOG_SUFFIX):
            for chunk in chunks_of(data):
                if chunk.kind == log_format.KIND_LEDGERS:
                    for state in decode_states(chunk.body):
                        yield state.ledger_id, state.is_fenced
        for _, record in self._records():
            if not isinstance(record, journal_format.AddRecord):
                yield record.ledger_id, isinstance(record, journal_format.Fence)

    # ---- sanity

    def _problems_of_cookies(self) -> Iterator[str]:
        found = []
        for directory in (self.journal_directory, self.ledger_directory):
            path = os.path.join(directory, VERSION_NAME)
            data = _contents(path)
            try:
                found.append(None if data is None else decode_bookie_cookie(data, path))
            except CorruptionError as error:
                yield str(error)
            if data is None:
                yield f"{path} is missing"
        if len(found) > 1 and found[0] != found[1]:
            yield f"{VERSION_NAME} of {self.journal_directory} differs from that of {self.ledger_directory}"
        identities = set()
        for directory in (self.journal_directory, self.ledger_directory):
            path = os.path.join(directory, COOKIE_NAME)
            data = _contents(path)
            own = None if data is None else decode_cookie(data)
            if own is None:
                yield f"{path} is {'missing' if data is None else 'damaged'}"
            else:
                identities.add(own.instance_id)
        if len(identities) > 1:
            yield f"{self.journal_directory} and {self.ledger_directory} are not of one bookie"

    def _problems_of_journals(self) -> Iterator[str]:
        for name, data in self._files(self.journal_directory, JOURNAL_SUFFIX):
            damaged_at = journal_file(name, data).damaged_at
            if damaged_at is not None:
                yield f"{os.path.join(self.journal_directory, name)} at offset {damaged_at}: damaged"

    def _problems_of_logs(self) -> Iterator[str]:
        checkpoint = self.checkpoint()
        if checkpoint is None:
            yield f"{os.path.join(self.ledger_directory, CHECKPOINT_NAME)} is missing or damaged"
        sizes = dict(checkpoint.logs) if checkpoint is not None else {}
        names = set(os.listdir(self.ledger_directory))
        wanted = [log_name(log_id) for log_id in sizes]
        wanted += [run_name(run_id) for run_id in checkpoint.run_ids] if checkpoint is not None else []
        yield from (f"{os.path.join(self.ledger_directory, name)} is missing" for name in wanted if name not in names)
        of_name = {log_name(log_id): size for log_id, size in sizes.items()}
        for name, data in self._files(self.ledger_directory, LOG_SUFFIX):
            path = os.path.join(self.ledger_directory, name)
            end, has_more = _whole_until(data)
            if end < of_name.get(name, 0) or has_more:
                yield f"{path} at offset {end}: damaged"
        foreign = sum(not is_own for *_, is_own in self._entries())
        if foreign:
            yield f"{foreign} entries tell another ledger or entry id than they are stored under"


def _whole_until(data: bytes) -> tuple[int, bool]:
    """Where the valid chunks from the beginning of an entry log end, and whether there are some behind that."""
    header = log_format.decode_file_header(data)
    if header is None:
        return 0, False
    seed = log_format.log_seed(header[2], header[1])
    view, offset = memoryview(data), log_format.FILE_HEADER_BYTES
    while offset < len(data):
        chunk = log_format.decode_chunk(view, offset, seed)
        if chunk is None:
            break
        offset = chunk.end
    return offset, offset < len(data) and log_format.find_chunk(data, offset + 1, seed) >= 0


def _bodies(chunk: log_format.LogChunk) -> Iterator[tuple[int, memoryview]]:
    ends = log_format.chunk_entry_ends(chunk)
    for index in range(chunk.entry_count):
        yield chunk.first_entry_id + index, chunk.body[ends[index] : ends[index + 1]]


def _is_own(entry: bytes | memoryview, ledger_id: int, entry_id: int) -> bool:
    ids = ledger_id.to_bytes(8, "big", signed=True) + entry_id.to_bytes(8, "big", signed=True)
    return len(entry) >= _IDS_BYTES and bytes(entry[:16]) == ids


def _lock(path: str) -> int:
    try:
        return lock_directory(path)
    except BlockingIOError as error:
        raise DataDirectoryError(f"{path} is in use by a bookie: stop it first") from error
    except OSError as error:
        story = "there is no bookie" if error.errno == errno.ENOENT else error.strerror or str(error)
        raise DataDirectoryError(f"{path}: {story}") from error


def _contents(path: str) -> bytes | None:
    """None: there is no such file. Raises OSError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
