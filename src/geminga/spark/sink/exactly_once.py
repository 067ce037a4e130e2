"""Exactly once: each attempt of a task writes in a transaction of its own, and the driver decides which of them count.

The reasoning is in ``docs/spark-sink.md``, what is stored in ``docs/formats/spark-commits.md``. In the task:

1. Before the first row is sent, begin a transaction, and register it in the log of decisions: if nobody ever hears of
   this attempt again, whoever commits the batch aborts it, so that it does not hold readers back until its time-out.
2. Send the rows, as at least once does.
3. When every one has its receipt, leave the transaction's end to the driver, and tell its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from geminga.client import NotAllowedError, PulsarException, Transaction, TxnId
from geminga.runtime import crash_point, get_logger
from geminga.spark.process.clients import ClientSession, session_for
from geminga.spark.sink import crash_points
from geminga.spark.sink.arrow_rows import RowReader
from geminga.spark.sink.at_least_once import AtLeastOnceWriter
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink.decision_log import append_record, carry_out
from geminga.spark.sink.plans import plan_topic
from geminga.spark.sink.records import EncodedPayload
from geminga.spark.sink_rules.commit_steps import (
    CommitRequest,
    Decided,
    Steps,
    TaskTransaction,
    abort_steps,
    commit_steps,
    until_ms,
)
from geminga.spark.sink_rules.decisions import SinkState, TaskBegun
from geminga.spark.sink_rules.errors import NoTransactionsError, SinkError
from geminga.spark.sink_rules.numbering import TaskIdentity
from geminga.spark.sink_rules.routing import KEYLESS_RUN_ROWS
from geminga.spark.sink_rules.sink_options import SinkOptions

_log = get_logger(__name__)

#: Random bytes of a claim.
_CLAIM_BYTES = 8


class ExactlyOnceWriter:
    """Writes the rows of one attempt of a task."""

    __slots__ = ("_identity", "_opened_ms", "_options", "_schema", "_session", "_txn")

    def __init__(
        self, session: ClientSession, options: SinkOptions, schema: EncodedPayload | None, identity: TaskIdentity
    ) -> None:
        self._session = session
        self._options = options
        self._schema = schema
        self._identity = identity
        self._txn: Transaction | None = None
        self._opened_ms = 0

    def write(
        self, reader: RowReader, batches: Iterable[pa.RecordBatch]
    ) -> tuple[dict[str, int], TaskTransaction | None]:
        """Send all rows and wait until they are stored; topic -> rows, and what they are in. Raises what went wrong."""
        spread = self._identity.partition * KEYLESS_RUN_ROWS
        writer = AtLeastOnceWriter(self._session, self._options, self._schema, spread, self._begin)
        try:
            counts = writer.write(reader, batches)
            if self._txn is None:
                return counts, None
            crash_point(crash_points.TXN_WRITTEN)
            self._check_sure(writer.unsure_topics)
            self._session.run(self._txn.detach)
            crash_point(crash_points.TXN_DETACHED)
        except BaseException:
            self._abort()
            raise
        return counts, TaskTransaction(self._txn.id, self._opened_ms, self._options.transaction_timeout_ms)

    def _begin(self) -> Transaction:
        session, identity, timeout_ms = self._session, self._identity, self._options.transaction_timeout_ms
        self._opened_ms = session.client.runtime.clock.wall_ms()

        async def begin() -> Transaction:
            return await session.client.transaction(timeout_ms / 1000)

        try:
            txn = self._txn = session.run(begin)
        except NotAllowedError as error:
            raise NoTransactionsError(
                f"guarantee=exactly-once, the default of a query, needs transactions, and there are none: {error}. "
                "Switch them on (transactionCoordinatorEnabled=true), or choose guarantee=effectively-once "
                "(deduplication) or guarantee=at-least-once (a replay is written again)"
            ) from error
        crash_point(crash_points.TXN_BEGUN)
        record = TaskBegun(
            identity.sink_id,
            identity.batch_id,
            txn.id,
            identity.partition,
            identity.attempt,
            until_ms(self._opened_ms, timeout_ms),
        )
        append_record(session, plan_topic(self._options), record, self._options.producer.send_timeout_ms)
        crash_point(crash_points.TXN_REGISTERED)
        return txn

    def _check_sure(self, unsure: Sequence[str]) -> None:
        if unsure:
            raise SinkError(
                f"the connection to {', '.join(unsure[:3])} was lost while rows were on their way, and the broker does "
                "not deduplicate: what is sent again could be there twice, so this attempt is given up. Spark repeats "
                "it. With brokerDeduplicationEnabled (or the namespace's policy) it would have gone on"
            )

    def _abort(self) -> None:
        txn, session = self._txn, self._session
        if txn is None or not session.thread.is_alive:
            return
        try:
            session.run(txn.close)
        except PulsarException as error:
            _log.warning("transaction %s is left to its time-out: %s", txn.id, error)


def commit_batch(
    options: SinkOptions, commits: Sequence[TaskCommit], batch_id: int | None, what: str, *, is_stream: bool
) -> None:
    """In the driver: decide that what the tasks wrote counts, and let it. Raises SinkError, PulsarException."""
    identities = {(commit.sink_id, commit.batch_id) for commit in commits}
    if len(identities) != 1 or (batch_id is not None and {batch for _, batch in identities} != {batch_id}):
        raise SinkError(f"{what}: messages of tasks of {sorted(identities)} are not those of one batch")
    sink, batch = identities.pop()
    session = session_for(options.client)
    request = CommitRequest(
        sink,
        batch,
        session.client.runtime.rng.token(_CLAIM_BYTES),
        tuple(commit.transaction for commit in commits if commit.transaction is not None),
        commits[0].run,
        options.topic,
        commits[0].query,
        is_consecutive=is_stream,
        resume_batch=options.resume_without_plan,
        lost=options.lost_batch,
    )
    clock = session.client.runtime.clock

    def steps(state: SinkState) -> Steps[Decided]:
        return commit_steps(state, request, clock.wall_ms)

    decided = carry_out(session, plan_topic(options), sink, options.producer.send_timeout_ms, steps)
    if decided is Decided.BEFORE:
        _log.warning("%s of sink %s was committed before: what this attempt wrote is aborted", what, sink)


def abort_batch(options: SinkOptions, commits: Sequence[TaskCommit], what: str) -> None:
    """In the driver: abort what tasks wrote, unless a decision names it. Raises PulsarException."""
    session = session_for(options.client)
    claim = session.client.runtime.rng.token(_CLAIM_BYTES)
    for sink in sorted({commit.sink_id for commit in commits}):
        txn_ids = [one.transaction.txn_id for one in commits if one.sink_id == sink and one.transaction is not None]

        def steps(state: SinkState, sink: str = sink, txn_ids: Sequence[TxnId] = txn_ids) -> Steps[int]:
            return abort_steps(state, sink, claim, txn_ids)

        aborted = carry_out(session, plan_topic(options), sink, options.producer.send_timeout_ms, steps)
        if aborted:
            _log.warning("%s of sink %s failed: %d transactions are aborted", what, sink, aborted)
