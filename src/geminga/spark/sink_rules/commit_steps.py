"""How a batch is committed, aborted, or found committed: the steps, without the world.

A step is a command that the caller carries out before it goes on: :class:`Append` (store a record in the log, and read
the log up to it, which brings the :class:`SinkState` up to date) or :class:`End` (commit or abort transactions, and
tell what is known of each). Whoever carries them out may die before or after any of them, and may carry out a command
without ever knowing: the next one that goes through the same steps finds out from the log.

What holds, whatever happens: no transaction is committed before a stored decision names it; a transaction that a
decision names is aborted by nobody but its time-out; of two decisions for one batch one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeVar

from geminga.model.txn_id import TxnId
from geminga.spark.sink_rules.decisions import TXNS_MAX, Claim, Ended, Prepared, Record, SinkState
from geminga.spark.sink_rules.errors import (
    DecisionLostError,
    LogLostError,
    SecondWriteError,
    ShutOutError,
    SinkError,
    SupersededError,
)

R = TypeVar("R")
#: Clocks of driver and workers may differ by this part of a transaction's time-out.
CLOCKS_PART: Final = 10
#: ... and two drivers' by this part of what a decision has left.
_SLACK_PART: Final = 4


def until_ms(opened_ms: int, timeout_ms: int) -> int:
    """Until when no coordinator aborts a transaction by itself, by anybody's clock; milliseconds since 1970."""
    return opened_ms + timeout_ms - timeout_ms // CLOCKS_PART


class TxnOutcome(Enum):
    """What is known of a transaction that was to end."""

    COMMITTED = auto()
    #: For certain: its coordinator said no to the commit, and yes to the abort.
    ABORTED = auto()
    #: Its coordinator does not know it, or not any more.
    UNKNOWN = auto()


class Decided(Enum):
    """How a commit ended."""

    NOW = auto()
    #: An earlier attempt had decided; what this one wrote is aborted.
    BEFORE = auto()


class LostBatch(Enum):
    """What a person said of a batch whose decision can not come true as a whole."""

    #: Write all rows again, also those that are committed.
    REDO = auto()
    #: Leave what is committed as it is.
    SKIP = auto()


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """What a task that had rows tells: all of them are in this transaction."""

    txn_id: TxnId
    #: Milliseconds since 1970, before it was begun.
    opened_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit."""

    sink: str
    batch: int
    #: Drawn for this commit.
    claim: str
    tasks: tuple[TaskTransaction, ...]
    #: The run of the query, as Spark tells it; empty: none.
    run: str = ""
    topic: str = ""
    #: The query's id; empty: none.
    query: str = ""
    #: Batches come one after the other, without a gap.
    is_consecutive: bool = False
    #: The batch to go on with though the log does not know the one before.
    resume_batch: int | None = None
    #: What a person said of which batch.
    lost: tuple[LostBatch, int] | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Store a record, and read the log up to it."""

    record: Record


@dataclass(frozen=True, slots=True)
class End:
    """Commit or abort; answered with what is known of each."""

    txn_ids: tuple[TxnId, ...]
    commit: bool


Steps = Generator[Append | End, "Mapping[TxnId, TxnOutcome] | None", R]


def commit_steps(state: SinkState, request: CommitRequest, wall_ms: Callable[[], int]) -> Steps[Decided]:
    """Commit a batch. Raises SinkError and its kinds, each of which leaves things so that a replay is right."""
    own = [task.txn_id for task in request.tasks]
    yield Append(Claim(request.sink, request.claim, request.run, request.query))
    if request.run and request.run in state.past_runs:
        yield from _abort(state, own)
        raise ShutOutError(
            f"batch {request.batch} of sink {request.sink}: another start of this query commits for the sink since "
            "this one did (the checkpoint was copied, or two run on one); nothing of this attempt counts. Let one of "
            "them run"
        )
    was_prepared = state.prepared is not None
    if state.prepared is not None:
        yield from _end_prepared(state, state.prepared, request, wall_ms)
    if request.batch <= state.committed:
        yield from _abort(state, [*own, *state.strays])
        _check_same(state, request, was_prepared=was_prepared)
        return Decided.BEFORE
    refusal = _refusal(state, request, wall_ms())
    if refusal is not None:
        yield from _abort(state, own)
        try:
            raise refusal
        finally:
            del refusal  # see runtime's value_of
    decision = Prepared(
        request.sink,
        request.batch,
        request.claim,
        tuple(own),
        min((until_ms(task.opened_ms, task.timeout_ms) for task in request.tasks), default=0),
        request.run,
        request.topic,
        wall_ms(),
        request.query,
    )
    yield Append(decision)
    counts = state.last if not own else state.prepared
    if counts != decision:
        yield from _abort(state, own)
        raise ShutOutError(
            f"batch {request.batch} of sink {request.sink}: another driver commits for this sink now (two on one "
            "checkpoint, or one that was thought dead); nothing of this attempt counts"
        )
    if own:
        yield from _end_prepared(state, decision, request, wall_ms, is_own=True)
    yield from _abort(state, state.strays)
    return Decided.NOW


def abort_steps(state: SinkState, sink: str, claim: str, txn_ids: Sequence[TxnId]) -> Steps[int]:
    """Abort what no decision names; how many that were.

    Spark aborts with the messages of a commit that failed. The claim first: a decision of that commit that is under way
    still does not count any more, and what counts is known.
    """
    if not txn_ids:
        return 0
    yield Append(Claim(sink, claim))
    return (yield from _abort(state, txn_ids))


def _abort(state: SinkState, txn_ids: Iterable[TxnId]) -> Steps[int]:
    to_abort = tuple(dict.fromkeys(txn_id for txn_id in txn_ids if not state.is_decided(txn_id)))
    if to_abort:
        yield End(to_abort, commit=False)
    return len(to_abort)


def _check_same(state: SinkState, request: CommitRequest, *, was_prepared: bool) -> None:
    """What is committed already must be what was to be committed, as far as that can be known."""
    if request.batch < state.committed:
        raise SupersededError(
            f"batch {request.batch} of sink {request.sink}: batch {state.committed} is committed already. This is an "
            "old driver, a checkpoint from a backup, or a txnVersion that does not grow; nothing was written"
        )
    last = state.last
    if last is None:
        return
    if last.query and request.query and last.query != request.query:
        raise SecondWriteError(
            f"batch {request.batch} of sink {request.sink} is committed already, by another query ({last.query}; this "
            f"one is {request.query}): two queries have one txnAppId, or this is a new checkpoint, which counts from 0 "
            "again. Nothing was written by this one; give it a txnAppId of its own"
        )
    if last.topic != request.topic or (last.run and last.run == request.run and not was_prepared):
        raise SecondWriteError(
            f"batch {request.batch} of sink {request.sink} is committed already, by another write to "
            f"{last.topic or 'the topics of __topic'}: give each write of a foreachBatch a sinkName of its own (one "
            "that was written as planned and is repeated needs the same topic). Nothing was written by this one"
        )


def _refusal(state: SinkState, request: CommitRequest, now_ms: int) -> SinkError | None:
    what = f"batch {request.batch} of sink {request.sink}"
    if request.is_consecutive and request.batch > state.committed + 1 and request.resume_batch != request.batch:
        known = f"batch {state.committed}" if state.committed >= 0 else "none of its batches"
        return LogLostError(
            f"{what}: the log of decisions knows {known} as the last one that is committed, so that nobody knows "
            "whether this batch was written before. The log was deleted or expired, or the query wrote with another "
            f"guarantee until now. If none of the rows of batch {request.batch} are in the topics, resumeWithoutPlan="
            f"{request.batch} goes on with it"
        )
    if len(request.tasks) > TXNS_MAX:
        return SinkError(f"{what} has {len(request.tasks)} tasks with rows: {TXNS_MAX} at most")
    for task in request.tasks:
        age_ms = now_ms - task.opened_ms
        if CLOCKS_PART * -age_ms > task.timeout_ms:
            return SinkError(
                f"{what}: the clock of the worker that opened transaction {task.txn_id} is {-age_ms} ms ahead of this "
                f"driver's, more than a tenth of txnTimeoutMs={task.timeout_ms}, so that nobody can say how long the "
                "transaction lives. Nothing was written; set the clocks"
            )
        if 2 * age_ms > task.timeout_ms:
            return SinkError(
                f"{what}: transaction {task.txn_id} is {age_ms} ms old, more than half of its {task.timeout_ms} ms: it "
                "could time out while it is committed (or the clocks of worker and driver differ so much). Nothing was "
                "written; make batches smaller or txnTimeoutMs larger"
            )
    return None


def _end_prepared(
    state: SinkState,
    decision: Prepared,
    request: CommitRequest,
    wall_ms: Callable[[], int],
    *,
    is_own: bool = False,
) -> Steps[None]:
    """Let a decision come true; afterwards the batch is committed, or free to be decided again."""
    outcomes = (yield End(decision.txn_ids, commit=True)) or {}
    is_in_time = _is_in_time(decision, wall_ms())
    found: dict[TxnOutcome, list[TxnId]] = {outcome: [] for outcome in TxnOutcome}
    for txn_id in decision.txn_ids:
        outcome = outcomes.get(txn_id, TxnOutcome.UNKNOWN)
        # Nobody aborts what a decision names, and no time-out did yet: one that is not known any more is committed.
        found[TxnOutcome.COMMITTED if outcome is TxnOutcome.UNKNOWN and is_in_time else outcome].append(txn_id)
    is_void = False
    if len(found[TxnOutcome.COMMITTED]) < len(decision.txn_ids):
        # What a person said, was said of what an earlier commit left.
        is_said = request.lost is not None and request.lost[1] == decision.batch and not is_own
        said = request.lost[0] if request.lost is not None and is_said else None
        is_none = len(found[TxnOutcome.ABORTED]) == len(decision.txn_ids)
        if said is None and (is_own or not is_none):
            raise _decision_lost(decision, found, is_none=is_none)
        is_void = is_none if said is None else said is LostBatch.REDO
    yield Append(Ended(decision.sink, decision.batch, decision.claim, is_void=is_void))


def _is_in_time(decision: Prepared, now_ms: int) -> bool:
    """Whether none of its transactions can have timed out. A clock that shows a time before the decision was set back,
    or is another machine's that differs by too much: it says nothing."""
    slack_ms = (decision.until_ms - decision.decided_ms) // _SLACK_PART
    return decision.decided_ms - slack_ms <= now_ms < decision.until_ms


def _decision_lost(
    decision: Prepared, found: Mapping[TxnOutcome, Sequence[TxnId]], *, is_none: bool
) -> DecisionLostError:
    text = (
        f"batch {decision.batch} of sink {decision.sink} was decided, and its transactions could not all be committed "
        "in their time (an outage longer than txnTimeoutMs): "
        + ", ".join(f"{len(txn_ids)} {outcome.name.lower()}" for outcome, txn_ids in found.items() if txn_ids)
    )
    if is_none:
        return DecisionLostError(f"{text}. None of its rows is in a topic: start the query again, which writes them")
    left = [*found[TxnOutcome.ABORTED], *found[TxnOutcome.UNKNOWN]]
    named = ", ".join(map(str, left[:10])) + (", ..." if len(left) > 10 else "")
    return DecisionLostError(
        f"{text} (not known to be committed: {named}). Some of its rows are, or may be, missing. Look which, and "
        f"start the query with lostBatch=redo:{decision.batch} (all rows of the batch are written again; those of "
        f"committed transactions are there twice then) or lostBatch=skip:{decision.batch} (what is there stays; write "
        "what is missing with guarantee=at-least-once)"
    )
