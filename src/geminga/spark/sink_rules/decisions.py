"""Which transactions of which batch count: the records of the sinks' common log, and what a log says.

The order in the log decides, so everybody who reads it comes to the same (format and rules:
``docs/formats/spark-commits.md``). A decision counts only under the newest claim of its sink: who claims, and reads up
to the claim, knows that no decision of an older driver comes behind it, however late that one's record arrives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from geminga.model.txn_id import TxnId
from geminga.spark.sink_rules.errors import SinkError

VERSION: Final = 1
#: Transactions of one decision: what its record, of about 20 bytes each, may take of a message.
TXNS_MAX: Final = 200_000
#: Transactions of one sink that are not decided: more are left to their time-outs.
TASKS_MAX: Final = 200_000
#: Runs of a query that another one took the place of, and that are known again.
PAST_RUNS_MAX: Final = 16
#: Where a record lies: ledger and entry.
Position: TypeAlias = tuple[int, int]
#: Before every record.
NOWHERE: Final[Position] = (-1, -1)


@dataclass(frozen=True, slots=True)
class TaskBegun:
    """An attempt of a task has a transaction, and sends nothing before this is stored."""

    sink: str
    batch: int
    txn_id: TxnId
    partition: int
    attempt: int
    #: Milliseconds since 1970 until which its coordinator does not abort it by itself.
    until_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Whoever commits; older ones are shut out."""

    sink: str
    claim: str
    #: The run of the query, and its id; empty: none, or not known.
    run: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The decision: these transactions count, and no others of the batch."""

    sink: str
    batch: int
    claim: str
    txn_ids: tuple[TxnId, ...]
    #: The earliest of its transactions.
    until_ms: int
    run: str = ""
    topic: str = ""
    #: When it was written, milliseconds since 1970; 0: not known.
    decided_ms: int = 0
    #: The query's id; empty: none, or not known.
    query: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a decision: all of it is committed, or none of it counts."""

    sink: str
    batch: int
    claim: str
    is_void: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What the log said of a sink up to a place, again: so that what lies before may go."""

    sink: str
    #: Where the record lies up to which it is so.
    at: Position
    claim: str
    #: The last committed batch; -1: none.
    batch: int
    run: str = ""
    topic: str = ""
    prepared: Prepared | None = None
    query: str = ""


@dataclass(slots=True)
class SinkState:
    """What a log says of one sink."""

    claim: str = ""
    #: The run of the last claim that told one, and those whose place was taken, oldest first.
    run: str = ""
    past_runs: tuple[str, ...] = ()
    #: Where the newest claim lies, and the last record of a decision that counted.
    claim_at: Position = NOWHERE
    decided_at: Position = NOWHERE
    #: The last batch that is committed; -1: none.
    committed: int = -1
    #: Its decision; None: none.
    last: Prepared | None = None
    #: What is decided and not known to have ended.
    prepared: Prepared | None = None
    #: Registered and in no decision yet.
    tasks: dict[TxnId, TaskBegun] = field(default_factory=dict)
    #: ... when the last batch was committed, of it and of those before: to be aborted.
    strays: dict[TxnId, TaskBegun] = field(default_factory=dict)

    def take(self, record: Record, position: Position) -> bool:
        """The next record of the sink, and where it lies; whether it counts: if not, nothing changes."""
        match record:
            case TaskBegun():
                if len(self.tasks) < TASKS_MAX:
                    self.tasks[record.txn_id] = record
                return True
            case Claim():
                self.claim, self.claim_at = record.claim, position
                self._is_run_of(record)
                return True
            case Prepared():
                # Whoever claimed has ended what was prepared under an older claim: if something seems to be, this
                # reader missed that.
                pending = self.prepared.claim if self.prepared is not None else ""
                if record.claim != self.claim or record.claim == pending or record.batch <= self.committed:
                    return False
                self.prepared = record
                if not record.txn_ids:
                    self._is_committed(record)
            case Ended():
                decision = self.prepared
                if decision is None or (decision.batch, decision.claim) != (record.batch, record.claim):
                    return False
                if record.is_void:
                    self.prepared = None
                else:
                    self._is_committed(decision)
            case Kept():
                # Of what came since its place it knows nothing. Another claim up to there is one that this reader
                # missed, with all that was decided under it.
                if self.claim_at > record.at or (self.claim == record.claim and self.decided_at > record.at):
                    return False
                self._is_as_kept(record)
                return True
        self.decided_at = position
        return True

    def _is_run_of(self, claim: Claim) -> None:
        # Another query under the same name is going to be refused: it takes nobody's place.
        is_other = not claim.query or (self.last is not None and self.last.query != claim.query)
        if claim.run and claim.run != self.run and claim.run not in self.past_runs and not is_other:
            self.past_runs = (*self.past_runs, *filter(None, [self.run]))[-PAST_RUNS_MAX:]
            self.run = claim.run

    def _is_as_kept(self, kept: Kept) -> None:
        """Nothing new for whoever read all that is before; for others the sink's state."""
        self.claim, self.claim_at, self.decided_at = kept.claim, kept.at, kept.at
        if kept.batch > self.committed:
            self.committed = kept.batch
            self.last = Prepared(kept.sink, kept.batch, "", (), 0, kept.run, kept.topic, 0, kept.query)
        self.prepared = kept.prepared

    def kept(self, sink: str, at: Position) -> Kept:
        """The record that says it again, of one that has read up to there."""
        last = self.last
        run, topic, query = (last.run, last.topic, last.query) if last is not None else ("", "", "")
        return Kept(sink, at, self.claim, self.committed, run, topic, self.prepared, query)

    def _is_committed(self, decision: Prepared) -> None:
        self.committed, self.last, self.prepared = decision.batch, decision, None
        listed = set(decision.txn_ids)
        left = {txn_id: task for txn_id, task in self.tasks.items() if txn_id not in listed}
        self.strays = {txn_id: task for txn_id, task in left.items() if task.batch <= decision.batch}
        self.tasks = {txn_id: task for txn_id, task in left.items() if task.batch > decision.batch}

    def is_decided(self, txn_id: TxnId) -> bool:
        """Whether a decision names it: nobody aborts it then."""
        return any(one is not None and txn_id in one.txn_ids for one in (self.prepared, self.last))


Record = TaskBegun | Claim | Prepared | Ended | Kept

#: How the records begin that say again what lies before.
KEPT_START: Final = b'{"v":1,"kind":"kept"'


class CommitLog:
    """A log as far as it is read, for one sink; what it says of others is passed over."""

    __slots__ = ("_sink", "records", "since_kept", "state")

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self.state = SinkState()
        #: How many records were read, of all sinks, and how many since one that said again what lies before.
        self.records = self.since_kept = 0

    def take(self, key: str, data: bytes, position: Position) -> None:
        """The next message: key (its sink), payload, place; raises SinkError for what a newer version wrote."""
        self.records += 1
        self.since_kept = 0 if data.startswith(KEPT_START) else self.since_kept + 1
        if key == self._sink:
            record = decode(data)
            if record is not None and record.sink == self._sink:
                self.state.take(record, position)


# ---- the format


def encode(record: Record) -> bytes:
    """The payload of a record's message."""
    given: dict[str, Any] = {"kind": _KINDS[type(record)], "sink": record.sink, **_fields(record)}
    if isinstance(record, Ended) and record.is_void:
        given["kind"] = "void"
    return json.dumps({"v": VERSION, **given}, separators=(",", ":")).encode()


_KINDS: Final[Mapping[type, str]] = {
    TaskBegun: "task",
    Claim: "claim",
    Prepared: "prepared",
    Ended: "committed",
    Kept: "kept",
}


def _fields(record: Record) -> dict[str, Any]:
    match record:
        case TaskBegun():
            return {
                "batch": record.batch,
                "partition": record.partition,
                "attempt": record.attempt,
                "txn": list(record.txn_id),
                "until": record.until_ms,
            }
        case Claim():
            return {"claim": record.claim, "run": record.run, "query": record.query}
        case Prepared():
            return {
                "batch": record.batch,
                "claim": record.claim,
                "txns": [list(txn_id) for txn_id in record.txn_ids],
                "until": record.until_ms,
                "run": record.run,
                "topic": record.topic,
                "decided": record.decided_ms,
                "query": record.query,
            }
        case Ended():
            return {"batch": record.batch, "claim": record.claim}
        case Kept():
            prepared = record.prepared
            return {
                "at": list(record.at),
                "batch": record.batch,
                "claim": record.claim,
                "run": record.run,
                "topic": record.topic,
                "query": record.query,
                "prepared": None if prepared is None else _fields(prepared),
            }


def decode(data: bytes) -> Record | None:
    """A record; None: the message is something else's. Raises SinkError: a newer version wrote it, or it is damaged."""
    try:
        given = json.loads(data)
    except ValueError:
        return None
    if not isinstance(given, dict) or "kind" not in given or "sink" not in given or "v" not in given:
        return None
    try:
        if given["v"] == VERSION:
            return _record(given["kind"], str(given["sink"]), given)
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise SinkError(
        f"the log of decisions has a record that this version can not read, so that nobody knows what is committed: "
        f"{data[:200]!r}. Use the version of geminga that wrote it"
    )


def _record(kind: object, sink: str, given: Mapping[str, Any]) -> Record:
    match kind:
        case "task":
            return _task(sink, given)
        case "claim":
            return Claim(sink, str(given["claim"]), str(given.get("run", "")), str(given.get("query", "")))
        case "prepared":
            return _prepared(sink, given)
        case "committed" | "void":
            return Ended(sink, int(given["batch"]), str(given["claim"]), is_void=kind == "void")
        case "kept":
            return _kept(sink, given)
    raise ValueError(kind)


def _txn_id(given: tuple[int, int]) -> TxnId:
    coordinator, number = given
    return TxnId(int(coordinator), int(number))


def _task(sink: str, given: Mapping[str, Any]) -> TaskBegun:
    return TaskBegun(
        sink,
        int(given["batch"]),
        _txn_id(given["txn"]),
        int(given["partition"]),
        int(given["attempt"]),
        int(given["until"]),
    )


def _prepared(sink: str, given: Mapping[str, Any]) -> Prepared:
    return Prepared(
        sink,
        int(given["batch"]),
        str(given["claim"]),
        tuple(_txn_id(one) for one in given["txns"]),
        int(given["until"]),
        str(given["run"]),
        str(given["topic"]),
        int(given.get("decided", 0)),
        str(given.get("query", "")),
    )


def _kept(sink: str, given: Mapping[str, Any]) -> Kept:
    ledger_id, entry_id = given["at"]
    prepared = given["prepared"]
    return Kept(
        sink,
        (int(ledger_id), int(entry_id)),
        str(given["claim"]),
        int(given["batch"]),
        str(given["run"]),
        str(given["topic"]),
        None if prepared is None else _prepared(sink, prepared),
        str(given.get("query", "")),
    )
