"""A world for the steps of the exactly-once sink: transactions, the log of decisions, and drivers that die anywhere.

What happens is chosen: by :class:`Every`, which goes through all choices with a bounded number of faults, or by
:class:`Drawn` from a seed. A story is a function of its chooser alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from geminga.model.txn_id import TxnId
from geminga.spark.sink_rules.commit_steps import (
    Append,
    CommitRequest,
    Decided,
    End,
    Steps,
    TaskTransaction,
    TxnOutcome,
    abort_steps,
    commit_steps,
    until_ms,
)
from geminga.spark.sink_rules.decisions import CommitLog, Prepared, SinkState, TaskBegun, encode
from geminga.spark.sink_rules.errors import DecisionLostError, ShutOutError, SinkError
from geminga.spark.sink_rules.log_survey import LogSurvey

SINK = "sink"
TASKS = 2
TIMEOUT_MS = 1000
#: Places that readers of a cleaned log begin at, and at which others had stopped.
READERS = 5


class Chooser(Protocol):
    def among(self, count: int) -> int:
        """One of ``count``; 0 is what usually happens."""
        ...


class Every:
    """All sequences of choices in which at most ``faults`` are not 0: use :meth:`stories`."""

    def __init__(self, faults: int) -> None:
        self.faults = faults
        self._path: list[int] = []
        self._counts: list[int] = []
        self._at = 0

    def among(self, count: int) -> int:
        if self._at == len(self._path):
            self._path.append(0)
            self._counts.append(count if self._spent() < self.faults else 1)
        self._at += 1
        return self._path[self._at - 1]

    def _spent(self) -> int:
        return sum(one > 0 for one in self._path)

    def stories(self) -> Iterator[list[int]]:
        """Once for each sequence; gives what was chosen, which is known when the story is over."""
        while True:
            self._at = 0
            yield self._path
            del self._path[self._at :], self._counts[self._at :]
            while self._path and self._path[-1] + 1 >= self._counts[-1]:
                self._path.pop()
                self._counts.pop()
            if not self._path:
                return
            self._path[-1] += 1


class Drawn:
    """Choices from a seed; ``percent`` of them are not 0."""

    def __init__(self, seed: int, percent: int) -> None:
        self._random = random.Random(seed)
        self._percent = percent

    def among(self, count: int) -> int:
        return self._random.randrange(1, count) if self._random.randrange(100) < self._percent and count > 1 else 0


class Fate(Enum):
    """What happens to a command."""

    DONE = 0
    DIES_BEFORE = 1
    DIES_AFTER = 2
    #: The driver lives, and hears an error.
    FAILS_BEFORE = 3
    FAILS_AFTER = 4
    #: It hears an error, and the record is on its way and arrives some time later; an end: as FAILS_AFTER.
    FAILS_AND_ARRIVES = 5


class Died(Exception):
    """The driver's process is gone."""


class Failed(Exception):
    """A command failed, as far as its caller knows."""


class Status(Enum):
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class World:
    """Coordinator, topic and log."""

    chooser: Chooser
    #: Whether the coordinator tells how transactions ended that are over.
    keeps_outcomes: bool = True
    now_ms: int = 1_000_000
    log: list[bytes] = field(default_factory=list)
    in_flight: list[bytes] = field(default_factory=list)
    status: dict[TxnId, Status] = field(default_factory=dict)
    rows: dict[TxnId, list[tuple[int, int]]] = field(default_factory=dict)
    deadline_ms: dict[TxnId, int] = field(default_factory=dict)
    claims: int = 0
    #: Records that are gone from the beginning of the log, and those that nobody is to need.
    gone: int = 0
    needless: int = 0

    def begin(self) -> TxnId:
        txn_id = TxnId(0, len(self.status))
        self.status[txn_id], self.rows[txn_id] = Status.OPEN, []
        self.deadline_ms[txn_id] = self.now_ms + TIMEOUT_MS
        return txn_id

    def pass_ms(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for txn_id, status in self.status.items():
            if status is Status.OPEN and self.now_ms >= self.deadline_ms[txn_id]:
                self.status[txn_id] = Status.ABORTED

    def append(self, data: bytes) -> None:
        for late in list(self.in_flight):
            if self.chooser.among(2):
                self.in_flight.remove(late)
                self.log.append(late)
        self.log.append(data)

    def end(self, txn_id: TxnId, *, commit: bool) -> TxnOutcome:
        wanted = Status.COMMITTED if commit else Status.ABORTED
        if self.status[txn_id] is Status.OPEN:
            self.status[txn_id] = wanted
        elif not self.keeps_outcomes:
            return TxnOutcome.UNKNOWN
        return TxnOutcome.COMMITTED if self.status[txn_id] is Status.COMMITTED else TxnOutcome.ABORTED

    def clean(self, recent_records: int = 0) -> Iterator[None]:
        """Somebody lets go of what nobody needs, record by record; may die on the way."""
        # Registered transactions hold nothing here: what they are in the log for is not that rows are right.
        survey = LogSurvey(self.now_ms + TIMEOUT_MS, recent_records)
        self._read_to(survey, len(self.log))
        for kept in survey.to_keep():
            yield
            fate = self.chooser.among(3)
            if fate:
                if fate == 2:
                    self.in_flight.append(encode(kept))
                return
            self.append(encode(kept))
        self._read_to(survey, len(self.log))
        yield
        needless = survey.needless()
        if needless is not None:
            self.needless = max(self.needless, needless[1] + 1)
            # Ledgers go as a whole.
            self.gone = max(self.gone, self.needless - self.chooser.among(3))

    def _read_to(self, survey: LogSurvey, end: int) -> None:
        for place in range(max(self.gone, survey.last[1] + 1), end):
            survey.take(self.log[place], (0, place))

    def state_from(self, first: int, after: int = 0) -> SinkState:
        """What a reader knows that read ``after`` records, and then those from ``first`` on."""
        log = CommitLog(SINK)
        for place in [*range(after), *range(max(first, after), len(self.log))]:
            log.take(SINK, self.log[place], (0, place))
        return log.state

    def check_what_is_left(self) -> None:
        """Any rest of the log that the broker may leave says the same, also to one that read its beginning."""
        whole = self.state_from(0)
        at_rest = [0]
        log = CommitLog(SINK)
        for place, data in enumerate(self.log[: self.needless]):
            log.take(SINK, data, (0, place))
            if log.state.prepared is None:  # a reader that stops in the middle of a decision is closed
                at_rest.append(place + 1)
        for first in range(max(0, self.needless - READERS), self.needless + 1):
            for after in at_rest[:1] + at_rest[-READERS:]:
                found = self.state_from(first, after)
                assert _told(found) == _told(whole), f"from {first}, after {after} of {len(self.log)} records"

    def visible(self) -> Counter[tuple[int, int]]:
        """(batch, task) -> how often readers see its rows."""
        return Counter(
            row for txn_id, rows in self.rows.items() if self.status[txn_id] is Status.COMMITTED for row in rows
        )

    def check_decisions(self) -> None:
        """No transaction that a decision names was aborted but by its time-out."""
        log = CommitLog(SINK)
        for place, data in enumerate(self.log):
            log.take(SINK, data, (0, place))
            state = log.state
            for decision in (state.prepared, state.last):
                for txn_id in decision.txn_ids if isinstance(decision, Prepared) else ():
                    if self.now_ms < self.deadline_ms[txn_id]:
                        assert self.status[txn_id] is not Status.ABORTED, f"{txn_id} was decided, and aborted"


def with_decisions(state, request: CommitRequest, wall_ms: Callable[[], int]) -> Steps[Decided]:
    return commit_steps(state, request, wall_ms)


@dataclass
class Rules:
    """What the sink does; tests plant faults here."""

    commit: Callable[..., Steps[Decided]] = with_decisions
    abort: Callable[..., Steps[int]] = abort_steps
    #: Attempts of a task write in one transaction.
    is_shared: bool = False


class Driver:
    """One driver's process, with what it has read of the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = CommitLog(SINK)
        self.read = 0

    def steps_of(self, make: Callable[..., Steps]) -> Iterator[None]:
        """Carry out steps one by one; a generator, so that drivers can take turns. Raises Died, Failed, SinkError."""
        steps = make(self.log.state)
        answer = None
        try:
            command = next(steps)
            while True:
                yield
                fate = Fate(self.world.chooser.among(len(Fate)))
                if fate in (Fate.DONE, Fate.DIES_AFTER, Fate.FAILS_AFTER):
                    answer = self._do(command)
                elif fate is Fate.FAILS_AND_ARRIVES:
                    if isinstance(command, Append):
                        self.world.in_flight.append(encode(command.record))
                    else:
                        self._do(command)
                if fate in (Fate.DIES_BEFORE, Fate.DIES_AFTER):
                    raise Died
                if fate is not Fate.DONE:
                    raise Failed
                command = steps.send(answer)
        except StopIteration:
            return

    def _do(self, command: Append | End) -> dict[TxnId, TxnOutcome] | None:
        if isinstance(command, End):
            return {txn_id: self.world.end(txn_id, commit=command.commit) for txn_id in command.txn_ids}
        self.world.append(encode(command.record))
        for place in range(max(self.read, self.world.gone), len(self.world.log)):
            self.log.take(SINK, self.world.log[place], (0, place))
        self.read = len(self.world.log)
        return None


class Query:
    """Spark with the sink: tasks with attempts, commit, abort after a failed commit, replays."""

    def __init__(self, world: World, rules: Rules) -> None:
        self.world = world
        self.rules = rules

    def written(self, batch: int) -> list[TaskTransaction]:
        """Tasks of a batch; an attempt may die with its rows sent."""
        done = []
        for task in range(TASKS):
            txn_id = None
            while True:
                if txn_id is None or not self.rules.is_shared:
                    txn_id = self.world.begin()
                    until = until_ms(self.world.now_ms, TIMEOUT_MS)
                    self.world.append(encode(TaskBegun(SINK, batch, txn_id, task, 0, until)))
                self.world.rows[txn_id].append((batch, task))
                if not self.world.chooser.among(2):
                    break
            done.append(TaskTransaction(txn_id, self.world.now_ms, TIMEOUT_MS))
        return done

    def attempt(self, driver: Driver, batch: int) -> Iterator[None]:
        """One run of a batch; raises Died or SinkError, or Failed after Spark's abort."""
        tasks = self.written(batch)
        self.world.claims += 1
        claim = str(self.world.claims)
        request = CommitRequest(SINK, batch, claim, tuple(tasks), is_consecutive=True)
        try:
            yield from driver.steps_of(lambda state: self.rules.commit(state, request, lambda: self.world.now_ms))
        except (Failed, SinkError):
            txn_ids = [task.txn_id for task in tasks]
            yield from driver.steps_of(lambda state: self.rules.abort(state, SINK, f"{claim}a", txn_ids))
            raise

    def run(self, batches: int, between: Callable[[], None] = lambda: None, attempts_max: int = 50) -> None:
        """All batches, each until it is in Spark's own log; ``between`` runs and their replays."""
        driver = Driver(self.world)
        for batch in range(batches):
            for _ in range(attempts_max):
                try:
                    for _ in self.attempt(driver, batch):
                        pass
                except (Died, Failed, ShutOutError):  # an old claim of its own may arrive late
                    driver = Driver(self.world)
                    between()
                    continue
                if not self.world.chooser.among(2):
                    break
                driver = Driver(self.world)  # dead before Spark's own log had the batch
                between()
            else:
                raise AssertionError(f"batch {batch} never ends")

    def check(self, batches: int) -> None:
        """Every row is seen once; nobody's decision was undone."""
        found = self.world.visible()
        expected = Counter({(batch, task): 1 for batch in range(batches) for task in range(TASKS)})
        lost, twice = expected - found, found - expected
        assert (dict(lost), dict(twice)) == ({}, {}), f"lost {dict(lost)}, too often {dict(twice)}"
        self.world.check_decisions()


def _told(state: SinkState) -> tuple[object, ...]:
    last = state.last
    return state.claim, state.committed, state.prepared, (last.run, last.topic) if last is not None else None


def is_told(error: SinkError) -> bool:
    """Whether it says that rows may be missing and what may be done."""
    text = str(error)
    return isinstance(error, DecisionLostError) and ("lostBatch=" in text or "start the query again" in text)
