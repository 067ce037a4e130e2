"""The part of a topic that is compacted: what was compacted of it is served from here, and compacted anew.

Its cursor has Pulsar's name and properties: it stands at the last entry that was compacted, names the ledger, and keeps
what lies behind from being trimmed. It is no subscription: nobody expires, seeks, skips or deletes it. A run changes
nothing before the cursor's write is durable; whoever reads while that write is under way, or nobody knows what came of
it, waits for its end. What a run that was cut off left behind is deleted by the next load or run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from geminga.broker.compaction.ledger import CompactedLedger
from geminga.broker.policies.core.storage_rows import COMPACTION_THRESHOLD
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.managed_ledger.rules.attached import COMPACTED_PROPERTY
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.model.errors import (
    CompactedUnreadableError,
    ConflictError,
    CorruptionError,
    GemingaError,
    LedgerClosedError,
    LedgerFencedError,
    NotAllowedError,
    StorageError,
)
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import COMPACTION_CURSOR
from geminga.runtime import again, get_logger, spawn
from geminga.runtime.waiting import delay
from geminga.wire.pulsar.compacted import COMPACTED_LEDGER

if TYPE_CHECKING:
    from geminga.broker.compaction.record import CompactionRecord
    from geminga.broker.policies.config import PolicyConfig
    from geminga.managed_ledger import Entry, ManagedCursor
    from geminga.managed_ledger.shared.ports import OpenLedger

#: Between two tries to find out what came of the cursor's write.
DOUBT_RETRY_MS: Final = 1000
NOT_RUN: Final = "NOT_RUN"
RUNNING: Final = "RUNNING"
SUCCESS: Final = "SUCCESS"
ERROR: Final = "ERROR"

_log = get_logger(__name__)

T = TypeVar("T")


class TopicCompaction(TopicPart):
    """See the module."""

    __slots__ = (
        "_is_forgetting",
        "_ledger",
        "_switch",
        "_task",
        "_through",
        "_topic",
        "last_error",
        "record",
        "status",
    )

    name: ClassVar[str] = "compaction"
    #: Another ledger takes the place of this one below who reads.
    is_snapshot: ClassVar[bool] = False

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        #: What is served; None: the topic was never compacted.
        self._ledger: CompactedLedger | None = None
        #: Set when the cursor's write has come to its end; None while there is none.
        self._switch: asyncio.Event | None = None
        #: Up to where it goes that is being written.
        self._through = EARLIEST
        self._task: asyncio.Task[None] | None = None
        #: What was compacted is being given up: a run would name it again.
        self._is_forgetting = False
        #: Of the last run since the topic was loaded, in Pulsar's words.
        self.status = NOT_RUN
        self.last_error = ""
        #: Of the runs since then; None: there was none.
        self.record: CompactionRecord | None = None

    # ---- life

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where it is to be compacted by itself, somebody asked for it, or it was."""
        return _is_asked(topic) or _threshold(topic) > 0 or COMPACTION_CURSOR in topic.ledger.cursors

    @classmethod
    async def prepare(cls, topic: PartTopic, *, is_wanted: bool) -> None:
        """From now on nothing is trimmed that was not compacted, unless that is of no use any more."""
        if _is_unused(topic):
            await _let_go(topic)
        elif is_wanted:
            await topic.ledger.open_cursor(COMPACTION_CURSOR, initial=EARLIEST)

    async def load(self) -> None:
        """Serve what the cursor names, and delete what it does not."""
        await self._settle()

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        """``brokerServiceCompactionMonitorIntervalInSeconds``."""
        return config.compaction_monitor_interval_s

    def upkeep(self) -> None:
        """Compact if the threshold is passed, whether anybody subscribed or not."""
        threshold = _threshold(self._topic)
        if threshold <= 0 or self.is_running or self._topic.is_closing:
            return
        cursor = self._cursor
        if _bytes_behind(self._topic, cursor.mark_delete_position if cursor is not None else EARLIEST) > threshold:
            self.start()

    async def close(self) -> None:
        """A run ends; the next load deletes what it left."""
        task = self._task
        self.drop()
        if task is not None:
            await asyncio.wait((task,))

    def drop(self) -> None:
        """As :meth:`close`, at once."""
        self._topic.compacted = None
        # A task that is called off before it began does not get as far as its own end.
        self._topic.services.compactions.asked.discard(self._topic.name)
        if self._task is not None:
            self._task.cancel()

    async def delete(self) -> None:
        """The ledgers go with the log."""
        await self.close()

    def stats(self) -> Stats:
        """How it stands."""
        ledger, cursor = self._ledger, self._cursor
        return {
            "status": self.status,
            "lastError": self.last_error,
            "horizon": f"{ledger.horizon}" if ledger is not None else "",
            "ledgerId": ledger.ledger_id if ledger is not None else -1,
            "entriesBehind": cursor.backlog_count if cursor is not None else 0,
        }

    # ---- what was compacted

    @property
    def horizon(self) -> Position:
        """Up to here the topic was compacted, or will turn out to be: the log up to there may go at any time."""
        horizon = self._ledger.horizon if self._ledger is not None else EARLIEST
        return horizon if self._switch is None else max(horizon, self._through)

    @property
    def served(self) -> CompactedLedger | None:
        """The ledger that is read; None: none was written yet."""
        return self._ledger

    def read(
        self, first: Position, entries_max: int, bytes_max: int, done: Callable[[Sequence[Entry] | StorageError], None]
    ) -> None:
        """As :meth:`CompactedMessages.read`."""
        work = self._read(partial(CompactedLedger.read, first=first, entries_max=entries_max, bytes_max=bytes_max))

        async def run() -> None:
            result: Sequence[Entry] | StorageError
            try:
                result = await work
            except StorageError as error:
                result = again(error)  # this frame has it, and the error has this frame
            done(result)

        spawn(run(), name=f"read what was compacted of {self._topic.name}", part=self._topic)

    async def check(self) -> None:
        """As :meth:`CompactedMessages.check`."""
        try:
            await self._read(CompactedLedger.open)
        except LedgerClosedError:
            raise
        except StorageError as error:
            ledger_id = self._ledger.ledger_id if self._ledger is not None else -1
            raise CompactedUnreadableError(
                f"what was compacted of {self._topic.name} can not be read: ledger {ledger_id}: {error}"
            ) from error

    async def last(self) -> Entry | None:
        """As :meth:`CompactedMessages.last`."""
        return await self._read(CompactedLedger.last)

    async def _read(self, how: Callable[[CompactedLedger], Awaitable[T]]) -> T:
        while True:
            while self._switch is not None:
                await self._switch.wait()
            ledger = self._ledger
            if ledger is None or self._topic.compacted is not self:
                raise LedgerClosedError(f"{self._topic.name} is closed")
            try:
                return await how(ledger)
            except StorageError:
                # It was read while another took its place: that one has the answer.
                if self._ledger is ledger and self._switch is None:
                    raise

    # ---- a run

    @property
    def is_running(self) -> bool:
        """Whether a run is under way, or waits for its turn, or none can be."""
        return self._task is not None or self._is_forgetting

    def start(self) -> None:
        """Compact what there is by now. Raises ConflictError where that is under way."""
        if self.is_running:
            raise ConflictError(f"Compaction of {self._topic.name} is under way already")
        self.status, self.last_error = RUNNING, ""
        if self.record is None:
            from geminga.broker.compaction.record import CompactionRecord

            self.record = CompactionRecord()
        self._task = spawn(self._run(self.record), name=f"compact {self._topic.name}", part=self._topic)

    async def forget(self) -> None:
        """Give up what was compacted, and what is being compacted: readers have the log, as far as it is there.

        With a threshold, or when somebody asks for it, the topic is compacted anew from what the log has. Raises
        StorageError; a later call goes on. ConflictError where that is under way.
        """
        if self._is_forgetting:
            raise ConflictError(f"What was compacted of {self._topic.name} is being given up already")
        self._is_forgetting = True
        try:
            await self._forget()
        finally:
            self._is_forgetting = False
            # Who asked meanwhile was refused.
            self._topic.services.compactions.asked.discard(self._topic.name)

    async def _forget(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None
        topic = self._topic
        attached = topic.ledger.attached()
        # Cut off before the cursor is gone, all is as it was; later, the ledger goes with the next run or the topic.
        await attached.note(attached.ids, {COMPACTED_PROPERTY: ""})
        await topic.ledger.delete_cursor(COMPACTION_CURSOR)
        self._ledger = topic.compacted = None
        await attached.note(())
        self.status, self.last_error = NOT_RUN, ""
        if _threshold(topic):
            await topic.ledger.open_cursor(COMPACTION_CURSOR, initial=EARLIEST)

    async def _run(self, record: CompactionRecord) -> None:
        clock = self._topic.services.runtime.clock
        try:
            async with self._topic.services.compactions.turns:
                began_s = clock.monotonic()
                await self._compact(record)
            record.succeeded(clock.wall_ms(), clock.monotonic() - began_s)
            self.status = SUCCESS
        except GemingaError as error:
            record.failed(clock.wall_ms())
            self.status, self.last_error = ERROR, f"{error}"
            _log.warning("%s: compaction failed: %s", self._topic.name, error)
        finally:
            self._task = None
            self._topic.services.compactions.asked.discard(self._topic.name)
            if self.status == RUNNING:
                self.status = NOT_RUN

    async def _compact(self, record: CompactionRecord) -> None:
        from geminga.broker.compaction.run import CompactionRun, new_spill

        config = self._topic.services.config
        # It is there, unless an order that deleted it did not get to its end.
        await self._topic.ledger.open_cursor(COMPACTION_CURSOR, initial=EARLIEST)
        await self._settle()
        run = CompactionRun(
            self._topic,
            self._ledger,
            keeps_null_keys=config.compaction_retains_null_keys,
            bytes_max=config.compaction_keys_mb << 20,
            read_s=config.compaction_read_s,
            new_spill=partial(new_spill, config.compaction_directory),
            record=record,
            tombstones_s=config.compaction_tombstones_s,
        )
        if not run.has_news:
            return
        ledger, entries, size_bytes, removed = await run.write()
        await self._serve(ledger, run.through, LedgerInfo(ledger.ledger_id, entries, size_bytes, closed_ms=1))
        record.left_out(removed)
        _log.info(
            "%s: compacted up to %s: %d entries and %d bytes in ledger %d, %d messages left out",
            self._topic.name,
            run.through,
            entries,
            size_bytes,
            ledger.ledger_id,
            removed,
        )
        await self._settle()

    async def _serve(self, ledger: OpenLedger, through: Position, info: LedgerInfo) -> None:
        """Have the cursor name the new ledger; who reads waits until it is known whether it does."""
        from geminga.broker.compaction.run import name_it

        cursor = self._cursor
        if cursor is None:
            raise StorageError(f"{self._topic.name}: the cursor of compaction is gone")
        switch = self._switch = asyncio.Event()
        self._through, self._topic.compacted = through, self
        try:
            try:
                await name_it(cursor, through, ledger.ledger_id)
            except (LedgerFencedError, LedgerClosedError):
                raise
            except StorageError as error:
                await self._resolve(cursor, error)
            self._ledger = CompactedLedger(self._topic.ledger, ledger.ledger_id, through, info)
        finally:
            self._switch = None
            if self._ledger is None:
                self._topic.compacted = None
            switch.set()

    async def _resolve(self, cursor: ManagedCursor, error: StorageError) -> None:
        """A write failed: what the cursor says in memory is written with its next one, which trimming may ask for."""
        _log.warning("%s: nobody knows yet what came of a compaction: %s", self._topic.name, error)
        while True:
            await delay(DOUBT_RETRY_MS)
            try:
                await cursor.flush()
            except (LedgerFencedError, LedgerClosedError):
                raise
            except StorageError as again:
                self.last_error = f"{again}"
                continue
            self.last_error = ""
            return

    async def _settle(self) -> None:
        """Serve what was compacted last, and delete what others left.

        Cursor and log both say what that is, the cursor first. Where they differ the one that reaches further is right:
        a cursor may have been brought back at an older state, or without its properties.
        """
        topic, cursor = self._topic, self._cursor
        if cursor is None:
            return
        named, noted = cursor.properties.get(COMPACTED_LEDGER), _noted(topic.ledger.stored.properties)
        found = noted
        if named is not None and (noted is None or noted[0] == named or noted[1] <= cursor.mark_delete_position):
            found = named, (noted[1] if noted is not None and noted[0] == named else cursor.mark_delete_position)
        if found is not None:
            if self._ledger is None or self._ledger.ledger_id != found[0]:
                self._ledger = CompactedLedger(topic.ledger, *found)
            topic.compacted = self
        try:
            if found is not None and named != found[0]:
                _log.warning("%s: the cursor of compaction is set to what was compacted: %s", topic.name, found)
                await cursor.set_properties({COMPACTED_LEDGER: found[0]})
            ids = () if found is None else (found[0],)
            await topic.ledger.attached().note(ids, {} if found is None else {COMPACTED_PROPERTY: _noted_text(*found)})
        except StorageError as error:
            _log.warning("%s: what compaction left behind is not deleted yet: %s", topic.name, error)

    @property
    def _cursor(self) -> ManagedCursor | None:
        return self._topic.ledger.cursors.get(COMPACTION_CURSOR)


def _is_unused(topic: PartTopic) -> bool:
    """Whether the cursor was made for a threshold that is gone, and never used: it would hold all the log."""
    cursor, part = topic.ledger.cursors.get(COMPACTION_CURSOR), topic.parts.find(TopicCompaction)
    return (
        cursor is not None
        and not topic.name.is_system
        and not _threshold(topic)
        and not _is_asked(topic)
        and not (part is not None and part.is_running)
        and COMPACTED_LEDGER not in cursor.properties
        and not topic.ledger.stored.properties.get(COMPACTED_PROPERTY)
    )


async def _let_go(topic: PartTopic) -> None:
    """While the topic follows its policies, one after the other: whoever wants it next finds it gone, not going."""
    try:
        await topic.ledger.delete_cursor(COMPACTION_CURSOR)
    except StorageError as error:
        _log.warning("%s: the cursor of compaction is not deleted: %s", topic.name, error)


def _bytes_behind(topic: PartTopic, marked: Position) -> int:
    """Of the log behind ``marked``, by the mean entry of the ledger that it lies in."""
    size_bytes = 0
    for info in reversed(topic.ledger.extent.readable.infos):
        if info.ledger_id < marked.ledger_id:
            break
        if not info.entries:
            continue
        left = info.entries - marked.entry_id - 1 if info.ledger_id == marked.ledger_id else info.entries
        size_bytes += info.size_bytes * max(0, left) // info.entries
    return size_bytes


async def compact(topic: PartTopic) -> None:
    """Begin to compact a topic because somebody asks for it. Raises NotAllowedError, ConflictError, StorageError."""
    asked = topic.services.compactions.asked
    if topic.ledger.is_shadow:
        raise NotAllowedError("A shadow topic shows the whole log of another one, which alone is compacted")
    part = topic.parts.find(TopicCompaction)
    if part is not None and part.is_running:
        part.start()  # which says so
    asked.add(topic.name)
    try:
        await topic.parts.follow()
        part = topic.parts.find(TopicCompaction)
        if part is None:
            raise LedgerClosedError(f"{topic.name} is closed")
        part.start()
    except BaseException:
        if part is None or not part.is_running:
            asked.discard(topic.name)
        raise


def _is_asked(topic: PartTopic) -> bool:
    return topic.name in topic.services.compactions.asked


def _noted(properties: Mapping[str, str]) -> tuple[int, Position] | None:
    """The ledger that the log says was compacted last, and up to where. Raises CorruptionError."""
    text = properties.get(COMPACTED_PROPERTY, "")
    if not text:
        return None
    try:
        ledger_id, horizon_ledger, horizon_entry = (int(part) for part in text.split(":"))
    except ValueError:
        raise CorruptionError(f"{COMPACTED_PROPERTY} is {text!r}: LEDGER:HORIZON LEDGER:ENTRY was expected") from None
    return ledger_id, Position(horizon_ledger, horizon_entry)


def _noted_text(ledger_id: int, horizon: Position) -> str:
    return f"{ledger_id}:{horizon.ledger_id}:{horizon.entry_id}"


def _threshold(topic: PartTopic) -> int:
    """Topics of the broker's own are rewritten by who keeps a table in them."""
    return 0 if topic.name.is_system else topic.rules[COMPACTION_THRESHOLD]
