"""Reads of a consumer that asked for what was compacted: first the newest messages of keys, then the log.

Each read begins at the cursor's read position and goes to whichever has the entry: what was compacted up to the
horizon of now, the log behind it. A reader may begin before the first entry that the log still has: where it asked to
begin counts then. Loaded by the first such consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.compacted.read_ahead import ReadAhead
from geminga.model import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry, ManagedCursor, ManagedLedger
    from geminga.model.errors import StorageError

Done = Callable[["Sequence[Entry] | StorageError"], None]


#: Saved with the position of a subscription that begins at the end of a topic whose log is empty, for all of it was
#: compacted and trimmed: the position says nothing.
BEHIND_COMPACTED: Final = "geminga.behind-compacted"
#: The same of one that begins in what was compacted and is trimmed from the log: where.
COMPACTED_FROM_LEDGER: Final = "geminga.compacted-from-ledger"
COMPACTED_FROM_ENTRY: Final = "geminga.compacted-from-entry"


class CompactedMessages(Protocol):
    """The newest messages of a topic's keys, up to where it was compacted."""

    @property
    def is_snapshot(self) -> bool:
        """Whether it stays as it is: who begins to read by it goes on by it, whatever takes its place."""
        ...

    @property
    def horizon(self) -> Position:
        """Up to here: what lies behind is read from the log."""
        ...

    def read(self, first: Position, entries_max: int, bytes_max: int, done: Done) -> None:
        """Entries at or behind ``first``, as they lie in the topic but for what was left out; none: there are none."""
        ...

    async def check(self) -> None:
        """Raise StorageError if it can not be read."""
        ...

    async def last(self) -> Entry | None:
        """The newest entry; None: nothing was kept. Raises StorageError."""
        ...


def noted_start(topic: CompactedTopic, position: Position) -> dict[str, int]:
    """What is to be saved with the position of a subscription that begins there, for the log does not tell it."""
    ledgers = topic.ledger.ledgers
    if topic.compacted is None or position == EARLIEST:
        return {}
    if position == LATEST:
        return {} if ledgers.entry_count else {BEHIND_COMPACTED: 1}
    if ledgers.entry_count and position > ledgers.first_position:
        return {}
    return {COMPACTED_FROM_LEDGER: position.ledger_id, COMPACTED_FROM_ENTRY: position.entry_id}


def _noted(properties: Mapping[str, int]) -> Position:
    """The reverse, of one that acknowledged nothing of the log."""
    if BEHIND_COMPACTED in properties:
        return LATEST
    ledger_id, entry_id = properties.get(COMPACTED_FROM_LEDGER), properties.get(COMPACTED_FROM_ENTRY)
    return EARLIEST if ledger_id is None or entry_id is None else Position(ledger_id, entry_id)


class LatestOfLake(Protocol):
    """What a topic that was not compacted has of the newest messages of its keys."""

    async def ready(self) -> None:
        """Before somebody subscribes who reads it: the topic has it then. Raises GemingaError."""
        ...


class CompactedTopic(Protocol):
    """A topic that may be compacted."""

    @property
    def compacted(self) -> CompactedMessages | None:
        """What was compacted of it; None: it never was."""
        ...

    @property
    def ledger(self) -> ManagedLedger:
        """Its log."""
        ...


class LatestTopic(CompactedTopic, Protocol):
    """One that somebody subscribes to who reads compacted messages."""

    @property
    def lake_latest(self) -> LatestOfLake | None:
        """What is served in place of what was compacted; None: nothing."""
        ...


async def ready(topic: LatestTopic) -> None:
    """Before somebody subscribes who reads compacted messages. Raises GemingaError: they can not be read."""
    compacted, latest = topic.compacted, topic.lake_latest
    if latest is not None and (compacted is None or compacted.is_snapshot):
        await latest.ready()
    elif compacted is not None:
        await compacted.check()


class CompactedReads:
    """Of the active consumer of one subscription, from one rewind to the next."""

    __slots__ = ("_ahead", "_at", "_cursor", "_has_begun", "_is_behind", "_snapshot", "_start", "_topic")

    def __init__(self, topic: CompactedTopic, cursor: ManagedCursor, start: Position | None) -> None:
        """``start``: where a reader asked to begin; None: at the end, or where its cursor stands."""
        self._topic = topic
        self._cursor = cursor
        self._start = start
        reader = topic.ledger.reader
        self._ahead = ReadAhead(reader.cache, reader.catch_up, cursor.part)
        #: The next entry; None: the cursor says it.
        self._at: Position | None = None
        self._has_begun = False
        #: What it began to read by, if that stays as it is, and whether it came to the end of that.
        self._snapshot: CompactedMessages | None = None
        self._is_behind = False

    @property
    def _compacted(self) -> CompactedMessages | None:
        """What is read before the log."""
        current = self._topic.compacted
        if current is None or not current.is_snapshot:
            return current
        if self._snapshot is None:
            if self._is_behind:
                # Another one leaves out what was deleted since: the log has it.
                return None
            self._snapshot = current
        return self._snapshot

    @property
    def has_more(self) -> bool:
        """Whether the next read is of what was compacted."""
        compacted = self._compacted
        return compacted is not None and self._next() <= compacted.horizon

    def read(self, entries_max: int, bytes_max: int, done: Done) -> None:
        """Read on; ``done`` as of the cursor's reads."""
        compacted = self._compacted
        if compacted is None or (position := self._next()) > compacted.horizon:
            if compacted is not None and compacted.is_snapshot:
                self._snapshot, self._is_behind = None, True
            self._read_log(entries_max, bytes_max, done)
            return

        def got(result: Sequence[Entry] | StorageError) -> None:
            if not isinstance(result, Sequence):
                done(result)
            elif result:
                ledger_id, entry_id = result[-1].position
                self._at = Position(ledger_id, entry_id + 1)

                def give() -> None:
                    entries = self._unacknowledged(result)
                    if entries:
                        done(entries)
                    else:
                        self.read(entries_max, bytes_max, done)

                self._cursor.when_loaded({entry.ledger_id for entry in result}, give, done)
            else:
                self._at = Position(compacted.horizon.ledger_id, compacted.horizon.entry_id + 1)
                self.read(entries_max, bytes_max, done)

        self._ahead.read(compacted, position, entries_max, bytes_max, got)

    def go_back_to(self, position: Position) -> None:
        """What was read from ``position`` on was not used."""
        self._at = position

    def close(self) -> None:
        """Nobody reads on by it; a read under way comes to its end."""
        self._ahead.close()

    def _read_log(self, entries_max: int, bytes_max: int, done: Done) -> None:
        at, self._at = self._at, None
        reading = self._cursor.reading
        if at is not None:
            reading.skip_to(at)
        reading.read_entries(entries_max, bytes_max, done)

    def _next(self) -> Position:
        """Where the next read begins."""
        if not self._has_begun:
            self._has_begun = True
            self._at = self._begin()
        return self._cursor.read_position if self._at is None else self._at

    def _begin(self) -> Position | None:
        """Where the first read begins, where the cursor does not say it: before, or behind, all that the log has."""
        cursor, compacted, ledgers = self._cursor, self._compacted, self._topic.ledger.ledgers
        wanted = self._start
        if cursor.is_durable:
            # It never acknowledged anything of the log.
            is_new = cursor.mark_delete_position.entry_id < 0
            wanted = _noted(cursor.properties) if is_new else None
        elif wanted is None:
            wanted = LATEST
        if wanted == LATEST:
            if compacted is None or ledgers.entry_count:
                return None
            return Position(compacted.horizon.ledger_id, compacted.horizon.entry_id + 1)
        return wanted if wanted is not None and self._are_neighbours(wanted, cursor.read_position) else None

    def _are_neighbours(self, one: Position, other: Position) -> bool:
        """Whether the log has no entry between: what was there was trimmed."""
        ledgers = self._topic.ledger.ledgers
        return not ledgers.entry_count or ledgers.at_or_after(min(one, other)) >= max(one, other)

    def _unacknowledged(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Without those that were acknowledged one by one."""
        state, marked = self._cursor.state, self._cursor.mark_delete_position
        if not state.acked.count:
            return entries
        return [entry for entry in entries if entry.position <= marked or not state.is_acknowledged(entry.position)]
