"""The log of decisions as a topic: appended to by tasks and drivers, read by drivers; and transactions, ended by id.

A driver's process keeps what the log says of its sink, as far as it has read it, for the batches that follow; after any
error it is read anew. Once in many records a driver lets go of what nobody needs (``log_cleaning.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from geminga.client import (
    InvalidTxnStatusError,
    MessageId,
    PulsarException,
    Reader,
    Timeout,
    TransactionNotFound,
    TxnId,
)
from geminga.client.rules.backoff import Backoff
from geminga.runtime import all_ended, crash_point, get_logger, wait_ms
from geminga.spark.process.clients import ClientSession
from geminga.spark.sink import crash_points
from geminga.spark.sink.log_cleaning import clean_log
from geminga.spark.sink.plans import PLAN_PRODUCER
from geminga.spark.sink.producers import forget_producers, kept_producer
from geminga.spark.sink_rules.commit_steps import Append, End, Steps, TxnOutcome
from geminga.spark.sink_rules.decisions import Claim, CommitLog, Ended, Prepared, Record, SinkState, encode
from geminga.spark.sink_rules.errors import SinkError
from geminga.spark.sink_rules.log_survey import CLEAN_AFTER_RECORDS

R = TypeVar("R")
_log = get_logger(__name__)

#: Transactions that are ended at the same time.
ENDING_AT_ONCE: Final = 64
#: Logs that a process keeps.
LOGS_MAX: Final = 32
_FIRST_RETRY_MS: Final = 20
_RETRY_MS_MAX: Final = 2_000
#: How often a transaction may be said to be ending both ways, which another driver's end at the same time does.
_CONTRADICTIONS_MAX: Final = 20
_AFTER: Final = {
    Claim: crash_points.CLAIMED,
    Prepared: crash_points.DECIDED,
    Ended: crash_points.COMMIT_STORED,
}


def append_record(session: ClientSession, topic: str, record: Record, timeout_ms: int) -> MessageId:
    """Store one record; raises Timeout after ``timeout_ms`` (0: never), or what the broker says."""
    kept = kept_producer(session, topic, PLAN_PRODUCER, None)

    async def send() -> MessageId:
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                return await kept.producer.send(encode(record), partition_key=record.sink)
        except TimeoutError:
            raise Timeout(f"{topic}: no receipt within {timeout_ms} ms (pulsar.producer.sendTimeoutMs)") from None

    try:
        return session.run(send)
    except BaseException:
        forget_producers([kept])
        raise


class DecisionLog:
    """One topic, for one sink in one process."""

    __slots__ = ("_clean_at", "_read", "_reader", "_session", "_timeout_ms", "_topic", "log")

    def __init__(self, session: ClientSession, topic: str, sink: str, timeout_ms: int) -> None:
        """``timeout_ms``: how long a receipt, a record or the end of a transaction is waited for; 0: for ever."""
        self._session = session
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._reader: Reader[bytes] | None = None
        #: The last that was read; a reader that reconnects may give some again.
        self._read = (-1, -1)
        #: Records that are to be read before it is looked through for what may go.
        self._clean_at = 0
        self.log = CommitLog(sink)

    def carry_out(self, steps: Steps[R]) -> R:
        """Do what the steps say; raises what they and the broker raise."""
        answer = None
        try:
            command = next(steps)
            while True:
                if isinstance(command, Append):
                    self._append(command.record)
                    answer = None
                else:
                    answer = self._end(command)
                command = steps.send(answer)
        except StopIteration as stop:
            result: R = stop.value
            return result

    def clean_if_due(self) -> None:
        """Let go of what nobody needs, if there may be much of it; what goes wrong is logged, and nothing is lost."""
        if self.log.since_kept < CLEAN_AFTER_RECORDS or self.log.records < self._clean_at or self._reader is None:
            return
        self._clean_at = self.log.records + CLEAN_AFTER_RECORDS
        try:
            clean_log(self._session, self._topic, self._read, self._timeout_ms)
        except (PulsarException, SinkError) as error:
            _log.warning("%s: what nobody needs stays for now: %s", self._topic, error)

    def close(self) -> None:
        """Leave the topic."""
        reader, self._reader = self._reader, None
        if reader is not None and self._session.thread.is_alive:
            self._session.run(reader.close)

    def _append(self, record: Record) -> None:
        message_id = append_record(self._session, self._topic, record, self._timeout_ms)
        crash_point(_AFTER.get(type(record), ""))
        self._session.run(lambda: self._read_to(message_id))

    async def _read_to(self, target: MessageId) -> None:
        if self._reader is None:
            name = kept_producer(self._session, self._topic, PLAN_PRODUCER, None).producer.topic()
            self._reader = await self._session.client.create_reader(name, MessageId.earliest)
        place = (target.ledger_id(), target.entry_id())
        while True:
            message = await self._reader.read_next(self._timeout_ms or None)
            found = (message.message_id().ledger_id(), message.message_id().entry_id())
            if found > self._read:
                self.log.take(message.partition_key(), message.data(), found)
                self._read = found
            if found >= place:
                return

    # ---- transactions

    def _end(self, command: End) -> dict[TxnId, TxnOutcome]:
        return self._session.run(lambda: self._end_all(command.txn_ids, commit=command.commit))

    async def _end_all(self, txn_ids: Sequence[TxnId], *, commit: bool) -> dict[TxnId, TxnOutcome]:
        at_once = asyncio.Semaphore(ENDING_AT_ONCE)

        async def end(txn_id: TxnId) -> TxnOutcome:
            async with at_once:
                outcome = await (self._commit(txn_id) if commit else self._abort(txn_id))
            crash_point(crash_points.TXN_ENDED)
            return outcome

        return dict(zip(txn_ids, await all_ended(end(txn_id) for txn_id in txn_ids), strict=True))

    async def _commit(self, txn_id: TxnId) -> TxnOutcome:
        client, runtime = self._session.client, self._session.client.runtime
        backoff = Backoff(_FIRST_RETRY_MS, _RETRY_MS_MAX)
        deadline_ms = runtime.clock.monotonic() * 1000 + self._timeout_ms
        contradictions = 0
        while True:
            try:
                await client.end_transaction(txn_id, commit=True)
                return TxnOutcome.COMMITTED
            except TransactionNotFound:
                return TxnOutcome.UNKNOWN
            except InvalidTxnStatusError as error:
                # It is aborted, or another driver commits it in this moment: only a coordinator that aborts it says so.
                if await self._abort(txn_id) is TxnOutcome.ABORTED:
                    return TxnOutcome.ABORTED
                contradictions += 1
                if contradictions > _CONTRADICTIONS_MAX:
                    _log.warning("transaction %s can be neither committed nor aborted: %s", txn_id, error)
                    return TxnOutcome.UNKNOWN
            except PulsarException as error:
                now_ms = runtime.clock.monotonic() * 1000
                if not error.retriable or (self._timeout_ms and now_ms >= deadline_ms):
                    raise
                _log.warning("commit of transaction %s, trying again: %s", txn_id, error)
            await wait_ms(backoff.next_ms(runtime.clock.monotonic() * 1000, runtime.rng.random()))

    async def _abort(self, txn_id: TxnId) -> TxnOutcome:
        """Once: one that can not be reached now is aborted by its time-out."""
        try:
            await self._session.client.end_transaction(txn_id, commit=False)
        except TransactionNotFound:
            return TxnOutcome.UNKNOWN
        except InvalidTxnStatusError:
            return TxnOutcome.COMMITTED
        except PulsarException as error:
            _log.warning("transaction %s is left to its time-out: %s", txn_id, error)
            return TxnOutcome.UNKNOWN
        return TxnOutcome.ABORTED


_logs: dict[tuple[str, str, int], DecisionLog] = {}


def carry_out(
    session: ClientSession, topic: str, sink: str, timeout_ms: int, make: Callable[[SinkState], Steps[R]]
) -> R:
    """Carry out the steps that ``make`` gives for the sink's state, on the process's copy of the log."""
    key = (topic, sink, id(session.client))
    log = _logs.pop(key, None)
    if log is None:
        while len(_logs) >= LOGS_MAX:
            _logs.pop(next(iter(_logs))).close()
        log = DecisionLog(session, topic, sink, timeout_ms)
    try:
        result = log.carry_out(make(log.log.state))
    except BaseException:
        log.close()
        raise
    log.clean_if_due()
    if log.log.state.prepared is None:
        _logs[key] = log
    else:
        log.close()  # what ends it may be gone from the log when this one reads on
    return result
