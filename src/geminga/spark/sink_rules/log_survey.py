"""What of a log of decisions must stay: per sink the place from which a reader comes to the same as from the first.

Called a sink's base here. What lies before the bases of all sinks may go; a :class:`Kept` record moves the base of a
sink whose last commit is long ago, or that never commits again. The rules are in ``docs/formats/spark-commits.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from geminga.spark.sink_rules.decisions import (
    NOWHERE,
    Claim,
    Kept,
    Position,
    Prepared,
    Record,
    SinkState,
    TaskBegun,
    decode,
)
from geminga.spark.sink_rules.errors import SinkError

#: A log is looked through for what may go after so many records in which nobody did.
CLEAN_AFTER_RECORDS: Final = 10_000
#: A sink whose base lies within so many of the last records is not written again.
RECENT_RECORDS: Final = 1_000
#: Sinks that are told apart; a log with more is not cleaned.
SINKS_MAX: Final = 100_000
#: A log is cleaned if it has so many records for each sink that is written again.
RECORDS_PER_SINK: Final = 3
#: A registered transaction holds its record while it may be open, but no longer than this, whatever its record says.
HOLD_MAX_MS: Final = 24 * 3_600_000


class _RecordPosition(NamedTuple):
    position: Position
    #: Of the record, from 1.
    number: int
    #: Where the record before it lies.
    before: Position


_NO_RECORD: Final = _RecordPosition(NOWHERE, 0, NOWHERE)


@dataclass(slots=True)
class _Sink:
    state: SinkState = field(default_factory=SinkState)
    #: None: nothing of it is needed.
    base: _RecordPosition | None = None
    #: Of the newest claim, and of the claim of what is prepared.
    claim: _RecordPosition = _NO_RECORD
    decision: _RecordPosition = _NO_RECORD

    def take(self, record: Record, here: _RecordPosition) -> None:
        committed = self.state.committed
        if not self.state.take(record, here.position):
            return
        if isinstance(record, Claim | Kept):
            self.claim = here
        if isinstance(record, Prepared):
            self.decision = self.claim
        if isinstance(record, Kept):
            self.base = self.decision = here
        elif self.state.committed > committed:
            self.base = self.decision
        elif self.base is None or (committed < 0 and self.state.prepared is None):
            self.base = self.claim


class LogSurvey:
    """One reading of a whole log."""

    __slots__ = ("_first_open", "_now_ms", "_recent_records", "_sinks", "is_foreign", "last", "records")

    def __init__(self, now_ms: int, recent_records: int | None = None) -> None:
        self._now_ms = now_ms
        self._recent_records = RECENT_RECORDS if recent_records is None else recent_records
        self._sinks: dict[str, _Sink] = {}
        self._first_open: _RecordPosition | None = None
        #: How many records were read, and where the last one lies.
        self.records = 0
        self.last = NOWHERE
        #: There is a record that this version can not read, or there are too many sinks: nothing may go.
        self.is_foreign = False

    def take(self, data: bytes, position: Position) -> None:
        """The next message's payload, and its place."""
        self.records += 1
        here = _RecordPosition(position, self.records, self.last)
        self.last = position
        try:
            record = decode(data)
        except SinkError:
            self.is_foreign = True
            return
        if record is None or self.is_foreign:
            return
        if isinstance(record, TaskBegun):
            if self._first_open is None and self._now_ms < record.until_ms <= self._now_ms + HOLD_MAX_MS:
                self._first_open = here
            return
        sink = self._sinks.get(record.sink)
        if sink is None:
            if len(self._sinks) >= SINKS_MAX:
                self.is_foreign = True
                return
            sink = self._sinks[record.sink] = _Sink()
        sink.take(record, here)

    def to_keep(self) -> list[Kept]:
        """What is to be written before older records may go; empty: it is not worth it, or can not be."""
        if self.is_foreign:
            return []
        old = [
            sink.state.kept(name, self.last)
            for name, sink in self._sinks.items()
            if sink.base is not None and sink.base.number + self._recent_records < self.records
        ]
        return old if self.records >= RECORDS_PER_SINK * len(old) else []

    def needless(self) -> Position | None:
        """The last record that nobody needs, with all before it; None: there is none."""
        needed = [sink.base for sink in self._sinks.values() if sink.base is not None]
        if self._first_open is not None:
            needed.append(self._first_open)
        if self.is_foreign or not needed:
            return None
        before = min(needed).before
        return before if before > NOWHERE else None
