"""A ledger that was offloaded, as a reader has it: from its file, from the bookies where that fails and they have it.

Loaded with the first read of such a ledger. An error names the file and is never "no such ledger": what the list names
was not deleted by us.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from geminga.lake.core.names import ledger_file, topic_directory
from geminga.lake.service import Lake, LakeFile, Root
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.ports import Ledger, Ledgers, PayloadsDone
from geminga.model.errors import (
    CorruptionError,
    DiskIOError,
    MissingFileError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
)
from geminga.runtime import again, answer_of, get_logger, spawn
from geminga.wire.bookkeeper.digest import DigestType
from geminga.wire.managed_ledger.offload_context import OffloadRecord, decode_offload_context

_log = get_logger(__name__)


class FileFacts(NamedTuple):
    """What is written down of the ledger."""

    created_ms: int | None
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: DigestType
    custom_metadata: Mapping[str, bytes]


async def open_to_read(
    ledgers: Ledgers, lake: Callable[[], Lake], name: str, info: LedgerInfo, *, is_bookkeeper_first: bool
) -> Ledger:
    """The ledger of a managed ledger's list. Raises StorageError."""
    ledger_id = info.ledger_id
    record = decode_offload_context(info.offload_context)

    async def from_bookies() -> Ledger:
        ledger = await ledgers.open_ledger(ledger_id, recover=True)
        if record.is_complete and ledger.last_add_confirmed + 1 != info.entries:
            raise StorageError(f"{name}: ledger {ledger_id} has {ledger.last_add_confirmed + 1} entries on the bookies")
        return ledger

    if not record.is_complete or not record.is_ours:
        try:
            return await from_bookies()
        except NoSuchLedgerError as error:
            if record.is_complete:
                told = f"offloaded by Pulsar's driver {record.driver!r}, which Geminga can not read"
                raise StorageError(f"{name}: ledger {ledger_id} was {told}") from error
            raise
    if is_bookkeeper_first and not record.is_bookkeeper_deleted:
        try:
            return await from_bookies()
        except StorageError as error:
            _log.warning("%s: ledger %d is read from the lake: %s", name, ledger_id, error)
    try:
        file = await open_file(lake(), name, info, record)
    except StorageError as error:
        return await _instead(name, ledger_id, from_bookies, error)
    return LakeLedger(name, file, from_bookies)


async def open_file(lake: Lake, name: str, info: LedgerInfo, record: OffloadRecord) -> LakeFile:
    """The file of a ledger of a managed ledger's list. Raises StorageError, which names it."""
    root = await lake.root(record.driver, record.properties)
    try:
        file = await root.open(topic_directory(name), info.ledger_id, record.uid)
    except MissingFileError as error:
        if await root.is_marked():
            raise
        raise DiskIOError(f"{error}; nor is the mark of a cluster in {root.where}: is it mounted?") from error
    if file.facts.entries != info.entries:
        raise CorruptionError(f"{file.where} has {file.facts.entries} entries, the list says {info.entries}")
    return file


async def missing_files(lake: Lake, name: str, infos: Sequence[LedgerInfo]) -> list[str]:
    """Of ledgers that are in the lake, the files that are not there. Raises StorageError."""
    directory = topic_directory(name)
    there: dict[Root, set[str]] = {}  # by where it is two buckets of one name would be one
    missing: list[str] = []
    for info in infos:
        record = decode_offload_context(info.offload_context)
        root = await lake.root(record.driver, record.properties)
        if root not in there:
            there[root] = {file.name for file in await root.list(directory)}
        file = ledger_file(info.ledger_id, record.uid)
        if file not in there[root]:
            missing.append(f"{root.where}/{directory}/{file}")
    return missing


async def _instead(name: str, ledger_id: int, other: Callable[[], Awaitable[Ledger]], error: StorageError) -> Ledger:
    """The bookies' copy, or the error that was the first."""
    try:
        ledger = await other()
    except StorageError:
        try:
            raise error from None
        finally:
            del error  # see runtime's value_of
    _log.error("%s: ledger %d is read from the bookies, its file can not be: %s", name, ledger_id, error)
    return ledger


class LakeLedger:
    """See the module."""

    __slots__ = ("_bookies", "_fallback", "_file", "_name", "metadata")

    def __init__(self, name: str, file: LakeFile, bookies: Callable[[], Awaitable[Ledger]]) -> None:
        self._name = name
        self._file = file
        self._bookies = bookies
        #: The bookies' copy, once the file failed.
        self._fallback: Ledger | None = None
        facts = file.facts
        self.metadata = FileFacts(
            facts.created_ms or None,
            facts.ensemble_size,
            facts.write_quorum,
            facts.ack_quorum,
            DigestType[facts.digest_type],
            facts.custom_metadata,
        )

    @property
    def ledger_id(self) -> int:
        """Its id."""
        return self._file.facts.ledger_id

    @property
    def last_add_confirmed(self) -> int:
        """Its last entry."""
        return self._file.facts.entries - 1

    @property
    def length_bytes(self) -> int:
        """Payload bytes as they were on the bookies."""
        return self._file.facts.length_bytes

    def read(
        self, first_entry_id: int, last_entry_id: int, done: PayloadsDone, *, bytes_max: int | None = None
    ) -> None:
        """See ``Ledger``; within the call if it is in memory."""
        if not 0 <= first_entry_id <= last_entry_id <= self.last_add_confirmed:
            last = self.last_add_confirmed
            done(NoSuchEntryError(f"{self._file.where}: entries {first_entry_id} to {last_entry_id} of 0 to {last}"))
            return
        file = self._file
        group = file.group_of(first_entry_id)
        kept = file.kept(group)
        if kept is not None and self._fallback is None:
            start = file.entries_of(group).start
            payloads = _within(kept[first_entry_id - start : last_entry_id + 1 - start], bytes_max)
            if bytes_max is not None or len(payloads) == last_entry_id + 1 - first_entry_id:
                done(payloads)
                return
        spawn(self._read(first_entry_id, last_entry_id, done, bytes_max), name=f"read-lake-{self.ledger_id}")

    async def _read(self, first: int, last: int, done: PayloadsDone, bytes_max: int | None) -> None:
        payloads: list[bytes] = []
        try:
            if self._fallback is None:
                await self._read_file(first, last, bytes_max, payloads)
        except StorageError as error:
            if not payloads or bytes_max is None:
                try:
                    self._fallback = await _instead(self._name, self.ledger_id, self._bookies, error)
                except StorageError as failure:
                    done(again(failure))  # this frame has who is told, and the error has this frame
                    return
        if self._fallback is not None:
            self._fallback.read(first, last, done, bytes_max=bytes_max)
        else:
            done(payloads)

    async def _read_file(self, first: int, last: int, bytes_max: int | None, payloads: list[bytes]) -> None:
        entry_id, size = first, 0
        while entry_id <= last:
            group = self._file.group_of(entry_id)
            start = self._file.entries_of(group).start
            entries = await self._file.group(group)
            left = None if bytes_max is None else bytes_max - size
            found = _within(entries[entry_id - start : last + 1 - start], left, at_least_one=not payloads)
            payloads += found
            entry_id += len(found)
            size += sum(map(len, found))
            if bytes_max is not None and (size >= bytes_max or entry_id <= min(last, start + len(entries) - 1)):
                return

    async def read_entries(self, first_entry_id: int, last_entry_id: int) -> Sequence[bytes]:
        """As :meth:`read`; raises its error."""
        return await answer_of(partial(self.read, first_entry_id, last_entry_id))

    async def close(self) -> None:
        """Nothing is open."""


def _within(entries: Sequence[bytes], bytes_max: int | None, *, at_least_one: bool = True) -> Sequence[bytes]:
    """The first entries that have no more bytes together."""
    if bytes_max is None:
        return entries
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry)
        if size > bytes_max and (count or not at_least_one):
            return entries[:count]
    return entries
