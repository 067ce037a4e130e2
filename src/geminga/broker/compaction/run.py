"""One compaction: read what is there twice, write what is kept to a new ledger, have the cursor name it.

The first reading finds out which messages are the newest of their keys (``core.compaction.newest``), the second writes
them. What is read is what was compacted before and the log behind it, up to where readers could read when it began;
what comes later stays in the log. Nothing changes for readers, or for the next run, before the cursor's write is
durable. Loaded by the first compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from geminga.broker.compaction.ledger import CompactedLedger
from geminga.broker.compaction.paced import PacedWork
from geminga.broker.core.compaction.newest import RUNS, NewestMessages, Spill
from geminga.broker.core.compaction.second_reading import PlacedEntry, SecondReading
from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
from geminga.managed_ledger.shared.entry import Entry
from geminga.managed_ledger.shared.ports import OpenLedger
from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.runtime import again, crash_point
from geminga.runtime.ports import Clock
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compacted import COMPACTED_LEDGER
from geminga.wire.pulsar.metadata import peek_metadata

if TYPE_CHECKING:
    from geminga.broker.compaction.record import CompactionRecord
    from geminga.broker.topic.parts import PartTopic
    from geminga.managed_ledger import ManagedCursor

#: One read.
READ_ENTRIES: Final = 1000
READ_BYTES: Final = 1 << 20
#: One read while somebody publishes: it is checked in one go, and what it comes to is written at once, and is synced
#: before what they wait for.
PACED_READ_ENTRIES: Final = 100
PACED_READ_BYTES: Final = 256 << 10
#: Written and not confirmed: more waits.
WINDOW_BYTES: Final = 1 << 20
#: The same while somebody publishes.
PACED_WINDOW_BYTES: Final = 256 << 10

BEGUN: Final = "compaction.ledger_begun"
WRITTEN: Final = "compaction.ledger_written"
NAMED: Final = "compaction.cursor_names_it"


class CompactionRun:
    """See the module."""

    __slots__ = (
        "_before",
        "_bytes_max",
        "_hides",
        "_keeps_null_keys",
        "_new_spill",
        "_read_s",
        "_record",
        "_tombstones_from_ms",
        "_topic",
        "_work",
        "through",
    )

    def __init__(
        self,
        topic: PartTopic,
        before: CompactedLedger | None,
        *,
        keeps_null_keys: bool,
        bytes_max: int,
        read_s: float,
        new_spill: Callable[[], Spill],
        record: CompactionRecord,
        tombstones_s: int = 0,
    ) -> None:
        """``before``: what is served now. ``bytes_max``: of the table of keys; ``new_spill``: where the rest goes.
        ``read_s``: no read may take longer. ``tombstones_s``: how old a message that deletes its key is at least when
        it goes."""
        self._topic = topic
        self._before = before
        self._keeps_null_keys = keeps_null_keys
        self._bytes_max = bytes_max
        self._read_s = read_s
        self._new_spill = new_spill
        self._record = record
        self._work = PacedWork(topic.ledger.reader.catch_up, topic.services.runtime.clock, topic)
        self._tombstones_from_ms = (
            topic.services.runtime.clock.wall_ms() - tombstones_s * 1000 if tombstones_s else None
        )
        self._hides = topic.parts.hides
        #: The last entry that is looked at.
        self.through = topic.ledger.extent.readable_position

    @property
    def has_news(self) -> bool:
        """Whether there is anything behind what was compacted."""
        return self._first_new() <= self.through and self.through.entry_id >= 0

    async def write(self) -> tuple[OpenLedger, int, int, int]:
        """The new ledger, written and closed, entries and bytes of it, and messages removed. Raises StorageError: what
        was begun is named by the log, to be deleted."""
        newest = await self._find_newest()
        topic = self._topic
        ledger = await topic.ledger.attached().create(topic.ledger.persistence, self._metadata())
        crash_point(BEGUN)
        writer = _Writer(ledger, topic.services.runtime.clock, self._record, topic.ledger.reader.catch_up)
        second = SecondReading(newest)
        async for entries in self._read():
            await writer.write(await self._work.do(second.kept_of(entries, self._is_hidden)))
        await writer.drain()
        await ledger.close()
        crash_point(WRITTEN)
        return ledger, writer.entries, writer.size_bytes, newest.count - len(newest.kept)

    async def _find_newest(self) -> NewestMessages:
        newest = NewestMessages(
            keeps_null_keys=self._keeps_null_keys,
            bytes_max=self._bytes_max,
            new_spill=self._new_spill,
            tombstones_from_ms=self._tombstones_from_ms,
        )
        try:
            async for entries in self._read():
                await self._work.do(newest.take(None if self._is_hidden(entry) else entry.data for entry in entries))
            await self._work.do(newest.settle())
        finally:
            newest.close()
        return newest

    async def _read(self) -> AsyncIterator[Sequence[Entry]]:
        """All entries in order: those that were kept before, and those of the log behind them."""
        index = entry_bytes = 0
        while self._before is not None:
            entries = await self._timely(self._before.at(index, *self._at_once(entry_bytes)))
            if not entries:
                break
            index += len(entries)
            entry_bytes = _average_bytes(entries)
            yield entries
        ledger = self._topic.ledger
        position = self._first_new()
        while position <= self.through:
            found = await self._timely(ledger.reader.read_range(position, *self._at_once(entry_bytes)))
            entries = [entry for entry in found if entry.position <= self.through]
            if not entries:
                raise StorageError(f"{self._topic.name}: nothing can be read at {position}, up to {self.through}")
            entry_bytes = _average_bytes(entries)
            yield entries
            position = ledger.ledgers.next_position(entries[-1].position)

    def _at_once(self, entry_bytes: int) -> tuple[int, int]:
        """Entries and bytes of the next read, of entries about as large as that: a bookie looks each of them up."""
        count, size_bytes = READ_ENTRIES, READ_BYTES
        if self._topic.ledger.reader.catch_up.is_limited:
            count, size_bytes = min(count, PACED_READ_ENTRIES), PACED_READ_BYTES
        if not entry_bytes:
            return min(count, PACED_READ_ENTRIES), size_bytes
        return min(count, 1 + size_bytes // entry_bytes), size_bytes

    async def _timely(self, read: Coroutine[Any, Any, list[Entry]]) -> list[Entry]:
        try:
            # ``wait_for`` may lose that the run is called off (Python 3.11), and then it would go on to its end.
            async with asyncio.timeout(self._read_s):
                entries = await read
        except TimeoutError:
            raise StorageError(
                f"{self._topic.name}: a read took longer than {self._read_s:g} s "
                "(brokerServiceCompactionPhaseOneLoopTimeInSeconds)"
            ) from None
        self._record.read_bytes += sum(len(entry.data) for entry in entries)
        return entries

    def _first_new(self) -> Position:
        ledgers = self._topic.ledger.ledgers
        return ledgers.first_position if self._before is None else ledgers.next_position(self._before.horizon)

    def _is_hidden(self, entry: PlacedEntry) -> bool:
        if not self._hides:
            return False
        metadata = peek_metadata(entry.data)
        return metadata is not None and any(hide(entry.position, metadata) for hide in self._hides)

    def _metadata(self) -> dict[str, bytes]:
        """What Pulsar's brokers say of such a ledger."""
        ledger_id, entry_id = self.through
        return {
            "application": b"pulsar",
            "component": b"compacted-topic",
            "pulsar/compacted-topic": str(self._topic.name).encode(),
            "pulsar/compacted-to": pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id).SerializeToString(),
        }


def _average_bytes(entries: Sequence[Entry]) -> int:
    return sum(len(entry.data) for entry in entries) // len(entries)


async def name_it(cursor: ManagedCursor, horizon: Position, ledger_id: int) -> None:
    """Have the cursor stand at ``horizon`` and name the ledger, durably. Raises StorageError: then nobody knows whether
    it does, but what it does in memory."""
    answer: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()

    def done(error: StorageError | None) -> None:
        if not answer.done():
            answer.set_result(error)

    cursor.acknowledge_cumulative(horizon, done=done, properties={COMPACTED_LEDGER: ledger_id})
    error = await answer
    if error is not None:
        raise again(error)  # the error's frames have the future
    crash_point(NAMED)


class _Writer:
    """Appends with a bounded window."""

    __slots__ = (
        "_catch_up",
        "_clock",
        "_error",
        "_ledger",
        "_moved",
        "_pending_bytes",
        "_record",
        "entries",
        "size_bytes",
    )

    def __init__(self, ledger: OpenLedger, clock: Clock, record: CompactionRecord, catch_up: CatchUpTurns) -> None:
        self._catch_up = catch_up
        self._ledger = ledger
        self._clock = clock
        self._record = record
        self._pending_bytes = 0
        self._error: StorageError | None = None
        self._moved: asyncio.Event = asyncio.Event()
        self.entries = self.size_bytes = 0

    async def write(self, entries: list[bytes]) -> None:
        """Append; returns when there is room for more. Raises StorageError."""
        if entries:
            size_bytes = sum(map(len, entries))
            left = len(entries)
            began_s = self._clock.monotonic()
            self._pending_bytes += size_bytes
            self.entries += len(entries)
            self.size_bytes += size_bytes

            def done(_first: int, count: int, error: StorageError | None) -> None:
                nonlocal left
                left -= count
                if error is not None:
                    self._error = error
                elif not left:
                    self._pending_bytes -= size_bytes
                    self._record.wrote(size_bytes, len(entries), self._clock.monotonic() - began_s)
                self._moved.set()

            self._ledger.append(entries, done)
        await self._wait(PACED_WINDOW_BYTES if self._catch_up.is_limited else WINDOW_BYTES)

    async def drain(self) -> None:
        """Until all is stored. Raises StorageError."""
        await self._wait(0)

    async def _wait(self, limit_bytes: int) -> None:
        while self._error is None and self._pending_bytes > limit_bytes:
            self._moved.clear()
            await self._moved.wait()
        if self._error is not None:
            raise again(self._error)


def new_spill(directory: str) -> Spill:
    """Where keys go that do not fit into memory; ``directory`` empty: the system's for temporary files."""
    from geminga.runtime.scratch import ScratchRuns

    return ScratchRuns(RUNS, directory or None)
