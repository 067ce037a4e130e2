"""The newest messages of a topic's keys as they lie in the lake: a bit for each message, and the files.

Nothing is written. What a view says holds as long as its files are those of the topic: a ledger that was trimmed is
passed over, as in the log; once one lies elsewhere the view has no horizon any more, and readers go on in the log from
where they are. A file that is missing or damaged is an error that names it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from geminga.broker.compaction.paced import PacedWork
from geminga.broker.core.compaction.lake_messages import kept_of, packed, take_rows
from geminga.broker.core.compaction.newest import KeptMessages, NewestMessages
from geminga.managed_ledger.shared.entry import Entry
from geminga.model.errors import LakeUnreadableError, LedgerClosedError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import again, spawn
from geminga.wire.managed_ledger.offload_context import decode_offload_context
from geminga.wire.pulsar.compacted import CompactedEntry, compacted_parts, decode_compacted, encode_compacted

if TYPE_CHECKING:
    from geminga.lake.parquet import LedgerFileReader
    from geminga.lake.service import LakeFile
    from geminga.managed_ledger import ManagedLedger
    from geminga.managed_ledger.rules.positions import LedgerInfo


class _Group(NamedTuple):
    """A row group."""

    file: int
    group: int


class LakeView:
    """See the module; ``CompactedMessages``."""

    __slots__ = ("_begins", "_files", "_groups", "_horizon", "_infos", "_kept", "_log", "_numbers", "_tag", "_uids")

    #: Who reads by it goes on with it: another one would not tell him what was deleted meanwhile.
    is_snapshot: ClassVar[bool] = True

    def __init__(self, log: ManagedLedger, tag: str) -> None:
        """Empty. ``tag``: differs between views that keep other messages of the same files."""
        self._log = log
        self._tag = tag
        self._infos: list[LedgerInfo] = []
        self._files: list[LakeFile] = []
        self._uids: dict[int, str] = {}
        self._groups: list[_Group] = []
        self._begins: list[Position] = []
        #: The number of each row group's first message, and behind the last one that of the next.
        self._numbers = array("Q", (0,))
        self._kept = KeptMessages()
        self._horizon = EARLIEST

    @property
    def horizon(self) -> Position:
        """See ``CompactedMessages``."""
        return self._horizon

    @property
    def is_current(self) -> bool:
        """Whether all its ledgers are where they were, or gone; if not, it has no horizon from now on."""
        try:
            for info in self._infos:
                self._is_there(info)
        except LedgerClosedError:
            return False
        return True

    @property
    def entries(self) -> int:
        """Of the ledgers that it was made of."""
        return sum(info.entries for info in self._infos)

    @property
    def counts(self) -> tuple[int, int]:
        """Messages, and how many of them are kept."""
        return self._numbers[-1], len(self._kept)

    async def fill(
        self,
        infos: Sequence[LedgerInfo],
        newest: NewestMessages,
        work: PacedWork,
        *,
        tombstones_from_ms: int | None = None,
    ) -> None:
        """Look through the files of these ledgers, which follow each other. Raises StorageError."""
        from geminga.lake.key_rows import read_keys

        for number, info in enumerate(infos):
            file = await self._log.reader.open_lake_file(info)
            self._infos.append(info)
            self._uids[info.ledger_id] = file.facts.uid
            self._files.append(file)
            for group in range(file.group_count):
                rows = await file.ask(partial(read_keys, group=group, with_times=tombstones_from_ms is not None))
                await work.do(take_rows(newest, rows, tombstones_from_ms=tombstones_from_ms))
                self._groups.append(_Group(number, group))
                self._begins.append(Position(info.ledger_id, file.entries_of(group).start))
                self._numbers.append(newest.count)
        await work.do(newest.settle())
        self._kept = newest.kept
        self._horizon = Position(infos[-1].ledger_id, infos[-1].entries - 1)

    # ---- reading

    def read(
        self, first: Position, entries_max: int, bytes_max: int, done: Callable[[Sequence[Entry] | StorageError], None]
    ) -> None:
        """See ``CompactedMessages``."""

        async def run() -> None:
            result: Sequence[Entry] | StorageError
            try:
                result = await self._read(first, entries_max, bytes_max)
            except StorageError as error:
                result = again(error)  # this frame has it, and the error has this frame
            done(result)

        spawn(run(), name=f"read from the lake {self._log.name}", part=self._log.tenure.part)

    async def check(self) -> None:
        """See ``CompactedMessages``: whether all its files are there. Raises LakeUnreadableError."""
        await check_files(self._log, [info for info in self._infos if self._is_there(info)])

    async def last(self) -> Entry | None:
        """See ``CompactedMessages``."""
        for number in reversed(range(len(self._groups))):
            records = await self._records(number)
            if records:
                return _entry_of(records[-1])
        return None

    async def _read(self, first: Position, entries_max: int, bytes_max: int) -> list[Entry]:
        found: list[Entry] = []
        size = 0
        for number in range(max(0, bisect_right(self._begins, first) - 1), len(self._groups)):
            records = await self._records(number)
            # Of a group of thousands some are wanted at a time: no more are looked at than it takes to find them.
            for at in range(bisect_left(records, first, key=_position_of), len(records)):
                entry = _entry_of(records[at])
                size += len(entry.data)
                if found and size > bytes_max:
                    return found
                found.append(entry)
                if len(found) >= entries_max:
                    return found
            if found:
                break
        return found

    async def _records(self, number: int) -> Sequence[bytes]:
        """What is kept of a row group, as a compacted ledger would have it. Raises StorageError."""
        first, behind = self._numbers[number], self._numbers[number + 1]
        bits = self._kept.bits(first, behind - first)
        place = self._groups[number]
        info, file = self._infos[place.file], self._files[place.file]
        if not bits or not self._is_there(info):
            return []
        read = partial(_read_kept, group=place.group, ledger_id=info.ledger_id, bits=bits)
        try:
            return await file.made(self._tag, place.group, read)
        except StorageError:
            if self._is_there(info):
                raise
            return []  # it was trimmed meanwhile

    def _is_there(self, info: LedgerInfo) -> bool:
        """Whether the topic has the ledger still. Raises LedgerClosedError where it lies elsewhere now."""
        found = self._log.extent.ledgers.find(info.ledger_id)
        if found is None:
            return False
        if not found.is_offloaded or decode_offload_context(found.offload_context).uid != self._uids[info.ledger_id]:
            self._horizon = EARLIEST
            raise LedgerClosedError(f"{self._log.name}: ledger {info.ledger_id} is not in the lake any more")
        return True


def _entry_of(record: bytes) -> Entry:
    return Entry(*compacted_parts(record))


def _position_of(record: bytes) -> Position:
    return decode_compacted(record).position


async def check_files(log: ManagedLedger, infos: Sequence[LedgerInfo]) -> None:
    """Whether the files of ledgers are there. Raises LakeUnreadableError, which names one that is not."""
    try:
        missing = await log.reader.missing_lake_files(infos)
    except StorageError as error:
        raise LakeUnreadableError(f"the lake of {log.name} can not be read: {error}") from error
    if missing:
        raise LakeUnreadableError(f"{missing[0]} is not there, one of {len(missing)} files of {log.name}")


def _read_kept(reader: LedgerFileReader, *, group: int, ledger_id: int, bits: int) -> list[bytes]:
    """What is kept of a row group, as a compacted ledger would have it. Blocks; raises StorageError."""
    from geminga.lake.key_rows import read_entries, read_runs

    kept = {one.entry_id: one for one in kept_of(*read_runs(reader, group), bits)}
    return [
        encode_compacted(CompactedEntry(Position(ledger_id, entry_id), packed(entry, kept[entry_id])))
        for entry_id, entry in read_entries(reader, group, kept)
    ]
