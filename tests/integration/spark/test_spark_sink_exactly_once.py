"""Exactly once without a JVM (:mod:`geminga.spark.sink.exactly_once`): writers called as Spark calls them, killed
anywhere.

Rows of the failure matrix (docs/spark-sink.md) are here with real processes and a real broker; with Spark itself they
are in ``test_spark_exactly_once_queries.py``.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink import crash_points, decision_log, exactly_once
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink.writer import BatchWriter, StreamWriter
from geminga.spark.sink_rules.commit_steps import Decided, End, commit_steps
from geminga.spark.sink_rules.errors import (
    DecisionLostError,
    LogLostError,
    NoTransactionsError,
    SecondWriteError,
    ShutOutError,
    SinkError,
    SupersededError,
)
from support.connector.sink_cases import arrow_batches, run_task, schema_of, stored
from support.house.waiting import until
from support.house.weekly_sample import sampled
from support.processes.killing import Killer, Raiser, child, hooked, killed

VALUE = "value string"
TASKS = 2
#: Half of it is the oldest that a commit takes; a test that lets it pass waits so long.
SHORT_MS = 5000
_queries = count(1)


def new_query() -> str:
    """A streaming query's id that nobody used."""
    return f"exact{os.getpid()}-{next(_queries)}"


@pytest.fixture
def query() -> str:
    return new_query()


def stream_writer(standalone, topic: str, **more: str) -> StreamWriter:
    options = {"service.url": standalone.service_url, "topic": topic, **more}
    return StreamWriter(options, schema_of(VALUE), overwrite=False)


def rows(batch: int, task: int, number: int = 30) -> list[tuple[str]]:
    return [(f"{batch}-{task}-{n}",) for n in range(number)]


def written(writer: StreamWriter, query: str, batch: int, attempt: int = 0, run: str | None = None) -> list[TaskCommit]:
    """The tasks of a batch."""
    return [
        run_task(
            writer, arrow_batches(VALUE, rows(batch, task)), task, query=query, batch=batch, attempt=attempt, run=run
        )
        for task in range(TASKS)
    ]


def replayed(writer: StreamWriter, query: str, batch: int) -> None:
    writer.commit(written(writer, query, batch, attempt=1), batch)


def expected(*batches: int) -> list[str]:
    return sorted(value for batch in batches for task in range(TASKS) for (value,) in rows(batch, task))


def assert_holds(official, topic: str, *batches: int) -> None:
    """The rows of these batches, each once, and nothing that holds readers back."""
    wanted = expected(*batches)
    assert sorted(message.data().decode() for message in stored(official, topic, len(wanted))) == wanted


def test_batches_are_seen_when_they_are_committed_and_replays_are_not(standalone, official, fresh_topic, query) -> None:
    writer = stream_writer(standalone, fresh_topic)
    for batch in range(3):
        for attempt in range(2):
            messages = written(writer, query, batch, attempt)
            assert_holds(official, fresh_topic, *range(batch + attempt))
            writer.commit(messages, batch)
    assert_holds(official, fresh_topic, 0, 1, 2)


def test_rows_that_name_a_topic_that_is_not_stored_are_refused(standalone, query) -> None:
    columns = "value string, __topic string"
    writer = StreamWriter({"service.url": standalone.service_url}, schema_of(columns), overwrite=False)
    with pytest.raises(SinkError, match="exactly-once can not be kept on non-persistent://public/default/n"):
        run_task(writer, arrow_batches(columns, [("v", "non-persistent://public/default/n")]), query=query, batch=0)


TASK_OF_TXN = [getattr(crash_points, name) for name in ("TXN_BEGUN", "TXN_REGISTERED", "TXN_WRITTEN", "TXN_DETACHED")]


@pytest.mark.parametrize("label", TASK_OF_TXN)
def test_task_killed_at_any_point_leaves_nothing_that_counts(standalone, official, fresh_topic, query, label) -> None:
    writer = stream_writer(standalone, fresh_topic, txnTimeoutMs="600000")
    killed(lambda: run_task(writer, arrow_batches(VALUE, rows(0, 0)), query=query, batch=0), label)
    replayed(writer, query, 0)
    if label == crash_points.TXN_BEGUN:
        return  # nobody knows of it, and it holds nothing: its time-out ends it
    # A stray that lives holds readers back.
    assert_holds(official, fresh_topic, 0)


POINTS = [*((label, 1) for label in crash_points.COMMIT), (crash_points.TXN_ENDED, 2)]


@pytest.mark.parametrize(("label", "hits"), sampled("points of a commit", POINTS, 4, are_rows=True))
def test_driver_killed_anywhere_in_a_commit(standalone, official, fresh_topic, query, label: str, hits: int) -> None:
    writer = stream_writer(standalone, fresh_topic)
    writer.commit(written(writer, query, 0), 0)
    messages = written(writer, query, 1)
    killed(lambda: writer.commit(messages, 1), label, hits)
    replayed(writer, query, 1)
    replayed(writer, query, 2)
    assert_holds(official, fresh_topic, 0, 1, 2)


@pytest.mark.parametrize(("label", "hits"), sampled("points of a commit", POINTS, 4, are_rows=True))
def test_commit_that_fails_anywhere_and_the_abort_after_it(
    standalone, official, fresh_topic, query, label: str, hits: int
) -> None:
    # Spark calls abort() with the messages of the commit that failed.
    writer = stream_writer(standalone, fresh_topic)
    messages = written(writer, query, 0)
    with hooked(Raiser(label, hits)), pytest.raises(ConnectionError, match="planted"):
        writer.commit(messages, 0)
    writer.abort([*messages, None], 0)
    replayed(writer, query, 0)
    assert_holds(official, fresh_topic, 0)


def test_abort_of_a_cancelled_stage_shows_nothing_and_holds_nobody_back(
    standalone, official, fresh_topic, query
) -> None:
    writer = stream_writer(standalone, fresh_topic)
    lost, told = written(writer, query, 0)
    writer.abort([None, told], 0)
    writer.abort([None, None], 0)
    assert lost.transaction is not None
    replayed(writer, query, 0)  # which aborts the one whose message was lost
    assert_holds(official, fresh_topic, 0)


@pytest.mark.parametrize("label", [crash_points.CLAIMED, crash_points.DECIDED])
def test_driver_that_was_paused_in_a_commit_changes_nothing_when_it_goes_on(
    standalone, official, fresh_topic, query, label
) -> None:
    writer = stream_writer(standalone, fresh_topic)
    messages = written(writer, query, 0)

    def late() -> None:
        if label == crash_points.CLAIMED:
            with pytest.raises(ShutOutError):
                writer.commit(messages, 0)
        else:
            writer.commit(messages, 0)

    zombie = child(late, Killer(label, 1, signal.SIGSTOP))
    assert os.WIFSTOPPED(os.waitpid(zombie, os.WUNTRACED)[1])
    replayed(writer, query, 0)
    os.kill(zombie, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(zombie, 0)[1]) == 0
    replayed(writer, query, 1)
    assert_holds(official, fresh_topic, 0, 1)


def test_driver_of_a_batch_that_is_over_is_refused(standalone, official, fresh_topic, query) -> None:
    writer = stream_writer(standalone, fresh_topic)
    for batch in range(2):
        writer.commit(written(writer, query, batch), batch)
    with pytest.raises(SupersededError, match="batch 1 is committed already"):
        replayed(writer, query, 0)
    assert_holds(official, fresh_topic, 0, 1)


def test_missing_messages_and_those_of_other_batches_are_errors(standalone, official, fresh_topic, query) -> None:
    writer = stream_writer(standalone, fresh_topic)
    messages = written(writer, query, 0)
    for given in ([None, None], [messages[0], None], [messages[0], TaskCommit(1, 0)]):
        with pytest.raises(SinkError):
            writer.commit(given, 0)
    with pytest.raises(SinkError, match="are not those of one batch"):
        writer.commit(messages, 1)
    writer.abort(messages, 0)
    assert_holds(official, fresh_topic)


class Outage(NamedTuple):
    """A driver that died after it decided; its transactions have timed out."""

    topic: str
    query: str
    writer: StreamWriter
    messages: list[TaskCommit]


#: Where each driver dies; None: it is late, and decides nothing.
OUTAGES = {"late": None, "none": crash_points.DECIDED, "redo": crash_points.TXN_ENDED, "skip": crash_points.TXN_ENDED}


@pytest.fixture(scope="module")
def outages(standalone) -> dict[str, Outage]:
    """By name: all time-outs are waited for at once."""
    begun = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision_log, "ENDING_AT_ONCE", 1)  # so that one is committed when the driver dies
        for name, label in OUTAGES.items():
            query = new_query()
            topic = f"persistent://public/default/{query}-{name}"
            writer = stream_writer(standalone, topic, txnTimeoutMs=str(SHORT_MS))
            messages = written(writer, query, 0)
            if label is not None:
                killed(partial(writer.commit, messages, 0), label)
            begun[name] = Outage(topic, query, writer, messages)
    youngest_ms = max(one.transaction.opened_ms for each in begun.values() for one in each.messages if one.transaction)
    until(lambda: time.time() * 1000 - youngest_ms > SHORT_MS + 500, "the transactions have timed out")
    return begun


def test_transaction_older_than_half_its_time_out_is_not_decided(outages, official) -> None:
    topic, query, writer, messages = outages["late"]
    with pytest.raises(SinkError, match="more than half of its"):
        writer.commit(messages, 0)
    replayed(writer, query, 0)
    assert_holds(official, topic, 0)


def test_outage_of_which_nothing_was_committed_is_mended_by_the_replay(outages, official) -> None:
    topic, query, writer, _ = outages["none"]
    replayed(writer, query, 0)
    assert_holds(official, topic, 0)


@pytest.mark.parametrize("choice", ["redo", "skip"])
def test_outage_of_which_a_part_was_committed_asks_what_to_do(
    standalone, official, outages, choice, monkeypatch
) -> None:
    monkeypatch.setattr(decision_log, "ENDING_AT_ONCE", 1)
    topic, query, writer, _ = outages[choice]
    replay = written(writer, query, 0, attempt=1)
    with pytest.raises(DecisionLostError, match=r"1 committed, 1 aborted.*lostBatch=redo:0 .*lostBatch=skip:0"):
        writer.commit(replay, 0)
    writer.abort(replay, 0)
    chosen = {"txnTimeoutMs": str(SHORT_MS), "lostBatch": f"{choice}:0"}
    replayed(stream_writer(standalone, topic, **chosen), query, 0)
    found = sorted(message.data().decode() for message in stored(official, topic, 90 if choice == "redo" else 30))
    assert set(found) == (set(expected(0)) if choice == "redo" else {value for (value,) in rows(0, 0)})


def test_log_that_is_lost_is_an_error_and_not_a_second_write(standalone, official, fresh_topic, query) -> None:
    writer = stream_writer(standalone, fresh_topic)
    writer.commit(written(writer, query, 0), 0)
    other = stream_writer(standalone, fresh_topic, commitStateTopic=f"{fresh_topic}-log")
    with pytest.raises(LogLostError, match=r"knows none of its batches .*resumeWithoutPlan=1 goes on"):
        replayed(other, query, 1)
    more = {"commitStateTopic": f"{fresh_topic}-log", "resumeWithoutPlan": "1"}
    replayed(stream_writer(standalone, fresh_topic, **more), query, 1)
    assert_holds(official, fresh_topic, 0, 1)


# ---- foreachBatch, and writes of their own


def batch_writer(standalone, topic: str, **more: str) -> BatchWriter:
    options = {"service.url": standalone.service_url, "topic": topic, **more}
    return BatchWriter(options, schema_of(VALUE), overwrite=False)


def test_second_write_of_a_foreach_batch_under_one_name_is_an_error_and_no_loss(
    standalone, official, fresh_topic, query
) -> None:
    writer = batch_writer(standalone, fresh_topic)
    given = {"query": query, "batch": 0, "run": "run1"}
    writer.commit([run_task(writer, arrow_batches(VALUE, rows(0, 0)), **given)])
    for other in (writer, batch_writer(standalone, f"{fresh_topic}-2")):
        with pytest.raises(SecondWriteError, match="a sinkName of its own"):
            other.commit([run_task(other, arrow_batches(VALUE, rows(0, 1)), **given)])
    # The next run repeats the first one, and the second one gets a name.
    given["run"] = "run2"
    writer.commit([run_task(writer, arrow_batches(VALUE, rows(0, 0)), **given)])
    named = batch_writer(standalone, fresh_topic, sinkName="second")
    named.commit([run_task(named, arrow_batches(VALUE, rows(0, 1)), **given)])
    assert_holds(official, fresh_topic, 0)


def test_write_with_a_version_is_repeated_without_a_second_row(standalone, official, fresh_topic, query) -> None:
    for version, is_new in (("20260101", True), ("20260101", False), ("20260201", True)):
        writer = batch_writer(standalone, fresh_topic, txnAppId=query, txnVersion=version)
        for task in range(TASKS):
            given = rows(int(is_new) * 7, task)
            messages = [run_task(writer, arrow_batches(VALUE, given), task)]
            assert messages[0].batch_id == int(version)
        writer.abort(messages)
    assert_holds(official, fresh_topic)
    for version in ("20260301", "20260301"):
        writer = batch_writer(standalone, fresh_topic, txnAppId=query, txnVersion=version)
        writer.commit([run_task(writer, arrow_batches(VALUE, rows(0, task)), task) for task in range(TASKS)])
    old = batch_writer(standalone, fresh_topic, txnAppId=query, txnVersion="20260101")
    with pytest.raises(SupersededError):
        old.commit([run_task(old, arrow_batches(VALUE, rows(0, 0)))])
    assert_holds(official, fresh_topic, 0)


def test_exactly_once_without_a_version_is_an_error_and_without_a_guarantee_at_least_once(
    standalone, official, fresh_topic
) -> None:
    explicit = batch_writer(standalone, fresh_topic, guarantee="exactly-once")
    with pytest.raises(OptionError, match="guarantee=exactly-once needs txnAppId and txnVersion"):
        run_task(explicit, arrow_batches(VALUE, rows(0, 0)))
    plain = batch_writer(standalone, fresh_topic)
    plain.commit([run_task(plain, arrow_batches(VALUE, rows(0, task)), task) for task in range(TASKS)])
    assert_holds(official, fresh_topic, 0)


def test_batches_without_rows_are_decided_too(standalone, official, fresh_topic, query) -> None:
    writer = stream_writer(standalone, fresh_topic)
    for batch in range(3):
        empty = [run_task(writer, [], task, query=query, batch=batch) for task in range(TASKS)]
        assert [message.transaction for message in empty] == [None, None]
        writer.commit(empty if batch != 1 else written(writer, query, 1), batch)
    assert_holds(official, fresh_topic, 1)


# ---- brokers


def with_broker(tmp_path, settings: dict[str, str], story: Callable[[StandaloneProcess], None]) -> None:
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "log", settings=settings) as broker:
        story(broker)
        session_for(ClientConfiguration(broker.service_url)).blocking.close()


def test_broker_without_transactions_is_an_error_that_says_what_else_there_is(tmp_path, query) -> None:
    def story(broker: StandaloneProcess) -> None:
        writer = stream_writer(broker, "t")
        with pytest.raises(NoTransactionsError, match=r"transactionCoordinatorEnabled=true.*guarantee=at-least-once"):
            run_task(writer, arrow_batches(VALUE, rows(0, 0)), query=query, batch=0)
        chosen = stream_writer(broker, "t", guarantee="at-least-once")
        chosen.commit([run_task(chosen, arrow_batches(VALUE, rows(0, 0)), query=query, batch=0)], 0)

    with_broker(tmp_path, {"transactionCoordinatorEnabled": "false"}, story)


# ---- sinks that must fail


def undecided(state, request, wall_ms):
    yield End(tuple(task.txn_id for task in request.tasks), commit=True)
    return Decided.NOW


def test_without_decisions_a_replay_is_there_twice(standalone, official, fresh_topic, query, monkeypatch) -> None:
    assert exactly_once.commit_steps is commit_steps
    monkeypatch.setattr(exactly_once, "commit_steps", undecided)
    writer = stream_writer(standalone, fresh_topic)
    for attempt in range(2):
        writer.commit(written(writer, query, 0, attempt), 0)
    with pytest.raises(AssertionError, match="more than"):
        assert_holds(official, fresh_topic, 0)


def test_with_an_abort_that_does_not_look_rows_are_missing(
    standalone, official, fresh_topic, query, monkeypatch
) -> None:
    def blind(state, sink, claim, txn_ids):
        yield End(tuple(txn_ids), commit=False)
        return len(txn_ids)

    writer = stream_writer(standalone, fresh_topic)
    messages = written(writer, query, 0)
    monkeypatch.setattr(decision_log, "ENDING_AT_ONCE", 1)
    killed(lambda: writer.commit(messages, 0), crash_points.TXN_ENDED)
    monkeypatch.setattr(exactly_once, "abort_steps", blind)
    writer.abort(messages, 0)
    with pytest.raises(DecisionLostError, match="1 committed, 1 aborted"):
        replayed(writer, query, 0)


def test_one_transaction_for_all_attempts_shows_rows_twice(
    standalone, official, fresh_topic, query, monkeypatch
) -> None:
    begin = exactly_once.ExactlyOnceWriter._begin
    shared = {}

    def begin_once(self):
        key = self._identity.partition
        if key not in shared:
            shared[key] = (begin(self), self._opened_ms)
        self._txn, self._opened_ms = shared[key]
        return self._txn

    monkeypatch.setattr(exactly_once.ExactlyOnceWriter, "_begin", begin_once)
    monkeypatch.setattr("geminga.client.Transaction.detach", lambda self: _nothing(self.id))
    writer = stream_writer(standalone, fresh_topic)
    written(writer, query, 0)
    writer.commit(written(writer, query, 0, attempt=1), 0)
    with pytest.raises(AssertionError, match="more than"):
        assert_holds(official, fresh_topic, 0)


async def _nothing(value):
    return value
