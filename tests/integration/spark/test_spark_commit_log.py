"""The log of decisions with a real broker: what nobody needs goes, and what the broker does not know any more.

Without a JVM: writers are called as Spark calls them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

import geminga
import geminga.client
from geminga.client import MessageId
from geminga.client.blocking import Client
from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.sink import crash_points, decision_log
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink.decision_log import append_record
from geminga.spark.sink.log_cleaning import clean_log
from geminga.spark.sink.plans import PLAN_SUBSCRIPTION
from geminga.spark.sink.writer import BatchWriter, StreamWriter
from geminga.spark.sink_rules.decisions import Claim, decode
from geminga.spark.sink_rules.errors import DecisionLostError, SinkError, SupersededError
from geminga.transaction.core import coordinator
from support.connector.sink_cases import arrow_batches, run_task, schema_of
from support.house.waiting import until
from support.processes.killing import Raiser, hooked
from support.worlds.rest import Rest

VALUE = "value string"
TASKS = 2
LEDGER_ENTRIES = 40
#: Records after which a log is cleaned, here.
CLEAN_AFTER = 30
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    """One that tells the outcome of no transaction that is over, as if many others had ended since; Apache's does not
    either."""
    config = {"managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
    with pytest.MonkeyPatch.context() as patch, geminga.Standalone(config=config) as one:
        patch.setattr(coordinator, "OUTCOMES_MAX", 0)
        yield one


@pytest.fixture
def topic(client) -> str:
    """An output topic that keeps its messages, with a log of its own."""
    name = f"persistent://public/default/log-{next(_numbers)}"
    client.subscribe(name, "keep").close()
    return name


@pytest.fixture
def query() -> str:
    return f"log{os.getpid()}-{next(_numbers)}"


def log_of(topic: str) -> str:
    return f"{topic}-commits"


def stream_writer(broker, topic: str, **more: str) -> StreamWriter:
    options = {"service.url": broker.service_url, "topic": topic, "commitStateTopic": log_of(topic), **more}
    return StreamWriter(options, schema_of(VALUE), overwrite=False)


def rows(batch: int, task: int) -> list[tuple[str]]:
    return [(f"{batch}-{task}-{n}",) for n in range(3)]


def written(writer: StreamWriter | BatchWriter, query: str, batch: int) -> list[TaskCommit]:
    return [
        run_task(writer, arrow_batches(VALUE, rows(batch, task)), task, query=query, batch=batch) for task in (0, 1)
    ]


def assert_each_once(client: Client, topic: str, *batches: int) -> None:
    expected = sorted(value for batch in batches for task in range(TASKS) for (value,) in rows(batch, task))
    assert sorted(found(client, topic)) == expected


def found(client: Client, topic: str) -> list[str]:
    reader = client.create_reader(topic, MessageId.earliest)
    try:
        values = []
        while reader.has_message_available():
            values.append(reader.read_next().data().decode())
        return values
    finally:
        reader.close()


def fails_at(writer: StreamWriter, messages: list[TaskCommit], batch: int, label: str, hits: int = 1) -> None:
    """A commit that ends there; what this process knew of the log is forgotten, as by a new driver."""
    with hooked(Raiser(label, hits)), pytest.raises(ConnectionError, match="planted"):
        writer.commit(messages, batch)


# ---- cleaning


def log_records(client: Client, topic: str) -> list[object]:
    return [decode(value.encode()) for value in found(client, log_of(topic))]


def trimmed(broker: geminga.Standalone, topic: str) -> None:
    broker._call(broker._broker().topics[log_of(topic)].ledger.trimmer.trim())


def backlog(broker: geminga.Standalone, topic: str) -> int:
    path = f"persistent/{log_of(topic).removeprefix('persistent://')}/stats"
    return int(Rest(broker.web_service_url).get(path).json["subscriptions"][PLAN_SUBSCRIPTION]["msgBacklog"])


def test_log_goes_as_it_grows_and_every_new_driver_comes_to_the_same(broker, client, topic, query, monkeypatch) -> None:
    monkeypatch.setattr(decision_log, "CLEAN_AFTER_RECORDS", CLEAN_AFTER)
    monkeypatch.setattr("geminga.spark.sink_rules.log_survey.RECENT_RECORDS", 5)
    session = session_for(ClientConfiguration(broker.service_url))
    over = [f"over{number}" for number in range(3)]
    for name in over:  # queries that are over, one of them in the middle of a commit
        append_record(session, log_of(topic), Claim(name, "a"), 10_000)
    writer = stream_writer(broker, topic, txnTimeoutMs="20000")
    told = []
    for batch in range(40):
        # A registered transaction holds its record for the time-out: two batches here, however fast they are written.
        with_clock(monkeypatch, broker, 10_000)
        if batch % 7 == 3:
            fails_at(writer, written(writer, query, batch), batch, crash_points.DECIDED)
        writer.commit(written(writer, query, batch), batch)
        trimmed(broker, topic)
        told.append(len(log_records(client, topic)))
    assert_each_once(client, topic, *range(40))
    # Some 6 records a batch were written; what is left are the last ledger or two.
    assert max(told) < 40 * 6 - LEDGER_ENTRIES, told
    assert told[-1] < max(told) + CLEAN_AFTER
    assert 0 < backlog(broker, topic) < 200
    # A driver that knows nothing but what is left.
    decision_log._logs.clear()
    with pytest.raises(SupersededError, match="batch 39 is committed already"):
        writer.commit(written(writer, query, 5), 5)
    writer.commit(written(writer, query, 39), 39)
    assert_each_once(client, topic, *range(40))
    assert {record.sink for record in log_records(client, topic)} >= set(over)  # type: ignore[union-attr]


def test_cleaner_that_dies_before_it_lets_go_leaves_everything(broker, client, topic, query, monkeypatch) -> None:
    monkeypatch.setattr(decision_log, "CLEAN_AFTER_RECORDS", CLEAN_AFTER)
    writer = stream_writer(broker, topic)
    for batch in range(5):
        writer.commit(written(writer, query, batch), batch)
    before = backlog(broker, topic)
    messages = written(writer, query, 5)
    with hooked(Raiser(crash_points.KEPT_STORED, 1)), pytest.raises(ConnectionError, match="planted"):
        writer.commit(messages, 5)
    assert backlog(broker, topic) > before
    decision_log._logs.clear()
    writer.commit(written(writer, query, 5), 5)
    assert_each_once(client, topic, *range(6))


@pytest.mark.parametrize("timeout_ms", [0, 10_000])
def test_log_is_written_and_cleaned_within_the_time_and_without_a_limit_where_it_is_0(
    broker, topic, monkeypatch, timeout_ms: int
) -> None:
    monkeypatch.setattr("geminga.spark.sink_rules.log_survey.RECENT_RECORDS", 2)
    session = session_for(ClientConfiguration(broker.service_url))
    for name in ("over", *("busy" for _ in range(5))):
        last = append_record(session, log_of(topic), Claim(name, "a"), timeout_ms)
    place = (last.ledger_id(), last.entry_id())
    # "over" is said again, behind all: what lies before the newest claim of "busy" goes.
    needless = clean_log(session, log_of(topic), place, timeout_ms)
    assert needless is not None
    assert needless < place
    assert backlog(broker, topic) == 2


def test_sinks_of_a_log_do_not_push_each_other_out(broker, client, topic, query, monkeypatch) -> None:
    """A version of a batch write is known however many other sinks there are."""
    session = session_for(ClientConfiguration(broker.service_url))
    options = {"service.url": broker.service_url, "topic": topic, "commitStateTopic": log_of(topic)}
    writer = BatchWriter({**options, "txnAppId": query, "txnVersion": "1"}, schema_of(VALUE), overwrite=False)

    def write() -> None:
        writer.commit([run_task(writer, arrow_batches(VALUE, rows(1, task)), task) for task in range(TASKS)])

    write()
    for number in range(50):
        append_record(session, log_of(topic), Claim(f"other{number}", "a"), 10_000)
    decision_log._logs.clear()
    write()
    assert_each_once(client, topic, 1)


def test_a_process_keeps_so_many_logs_and_no_more(broker, client, query, monkeypatch) -> None:
    monkeypatch.setattr(decision_log, "_logs", {})
    monkeypatch.setattr(decision_log, "LOGS_MAX", 2)
    first, second, third = (f"persistent://public/default/log-{next(_numbers)}" for _ in range(3))
    for topic, batch, kept in (
        (first, 0, [first]),
        (second, 0, [first, second]),
        (third, 0, [second, third]),
        (first, 1, [third, first]),
    ):
        client.subscribe(topic, "keep").close()
        writer = stream_writer(broker, topic)
        writer.commit(written(writer, query, batch), batch)
        assert [log for log, *_ in decision_log._logs] == [log_of(topic) for topic in kept]
    assert_each_once(client, first, 0, 1)


def test_record_of_a_newer_version_stops_its_own_sink_alone(broker, client, topic, query) -> None:
    with client.create_producer(log_of(topic)) as producer:
        producer.send(b'{"v":2,"kind":"claim","sink":"newer"}', partition_key="newer")
    writer = stream_writer(broker, topic)
    writer.commit(written(writer, query, 0), 0)
    newer = stream_writer(broker, topic, txnAppId="newer")
    with pytest.raises(SinkError, match="a record that this version can not read"):
        newer.commit(written(newer, query, 0), 0)
    assert_each_once(client, topic, 0)


# ---- outcomes that are gone


@pytest.mark.parametrize(("label", "hits"), [(crash_points.TXN_ENDED, 1), (crash_points.TXN_ENDED, 2)])
def test_outcome_that_is_gone_within_the_time_is_a_commit(
    broker, client, topic, query, monkeypatch, label: str, hits: int
) -> None:
    monkeypatch.setattr(decision_log, "ENDING_AT_ONCE", 1)
    writer = stream_writer(broker, topic)
    fails_at(writer, written(writer, query, 0), 0, label, hits)
    writer.commit(written(writer, query, 0), 0)
    writer.commit(written(writer, query, 1), 1)
    assert_each_once(client, topic, 0, 1)


SHORT_MS = 3000


@pytest.mark.parametrize("choice", ["redo", "skip"])
def test_outcome_that_is_gone_after_the_time_is_asked_for(broker, client, topic, query, choice: str) -> None:
    short = {"txnTimeoutMs": str(SHORT_MS)}
    writer = stream_writer(broker, topic, **short)
    messages = written(writer, query, 0)
    fails_at(writer, messages, 0, crash_points.TXN_ENDED, 2)
    opened = max(one.transaction.opened_ms for one in messages if one.transaction is not None)
    until(lambda: time.time() * 1000 > opened + SHORT_MS, "the time-out is over")
    with pytest.raises(DecisionLostError, match=r"2 unknown.*lostBatch=redo:0 .*lostBatch=skip:0"):
        writer.commit(written(writer, query, 0), 0)
    chosen = stream_writer(broker, topic, lostBatch=f"{choice}:0", **short)
    chosen.commit(written(chosen, query, 0), 0)
    assert_each_once(client, topic, *([0, 0] if choice == "redo" else [0]))


class _Clock:
    """A wall clock that was set."""

    def __init__(self, real: object, offset_ms: int) -> None:
        self._real = real
        self._offset_ms = offset_ms

    def wall_ms(self) -> int:
        return self._real.wall_ms() + self._offset_ms  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def with_clock(monkeypatch, broker, offset_ms: int) -> None:
    client = session_for(ClientConfiguration(broker.service_url)).client
    runtime = client.runtime
    monkeypatch.setattr(client, "runtime", replace(runtime, clock=_Clock(runtime.clock, offset_ms)))


def test_clock_that_was_set_back_is_not_believed_when_an_outcome_is_gone(
    broker, client, topic, query, monkeypatch
) -> None:
    """The transactions timed out, nobody knows them, and the clock says that they can not have."""
    short = {"txnTimeoutMs": str(SHORT_MS)}
    writer = stream_writer(broker, topic, **short)
    messages = written(writer, query, 0)
    fails_at(writer, messages, 0, crash_points.DECIDED)
    opened = max(one.transaction.opened_ms for one in messages if one.transaction is not None)
    until(lambda: time.time() * 1000 > opened + SHORT_MS + 500, "the transactions have timed out")
    with monkeypatch.context() as patch:
        with_clock(patch, broker, -3_600_000)
        with pytest.raises(DecisionLostError, match=r"2 unknown"):
            writer.commit(written(writer, query, 0), 0)
    chosen = stream_writer(broker, topic, lostBatch="redo:0", **short)
    chosen.commit(written(chosen, query, 0), 0)
    assert_each_once(client, topic, 0)


@pytest.mark.parametrize(
    ("offset_ms", "said"), [(3_600_000, "is 3[56].* ms ahead of this driver's"), (-3_600_000, "more than half of its")]
)
def test_worker_whose_clock_is_wrong_writes_nothing_that_counts(
    broker, client, topic, query, monkeypatch, offset_ms: int, said: str
) -> None:
    writer = stream_writer(broker, topic)
    with monkeypatch.context() as patch:
        with_clock(patch, broker, offset_ms)
        messages = written(writer, query, 0)
    with pytest.raises(SinkError, match=said):
        writer.commit(messages, 0)
    writer.commit(written(writer, query, 0), 0)
    assert_each_once(client, topic, 0)


def test_choice_for_a_lost_batch_is_not_taken_for_what_is_written_anew(
    broker, client, topic, query, monkeypatch
) -> None:
    """lostBatch speaks of what an earlier commit left; the transactions of this one may be lost, too."""
    monkeypatch.setattr(decision_log, "ENDING_AT_ONCE", 1)
    monkeypatch.setattr(coordinator, "OUTCOMES_MAX", 1000)
    writer = stream_writer(broker, topic, lostBatch="redo:0")
    messages = written(writer, query, 0)
    end = client.end_transaction

    class Hook(Raiser):
        def crash_point(self, label: str) -> None:
            if label == self.label:
                lost = messages[1].transaction
                assert lost is not None
                end(lost.txn_id, commit=False)  # as by its time-out

    with hooked(Hook(crash_points.DECIDED, 1)), pytest.raises(DecisionLostError, match="1 committed, 1 aborted"):
        writer.commit(messages, 0)


def test_log_is_json_that_others_can_read(broker, client, topic, query) -> None:
    writer = stream_writer(broker, topic)
    writer.commit(written(writer, query, 0), 0)
    records = [json.loads(value) for value in found(client, log_of(topic))]
    assert [record["kind"] for record in records] == ["task", "task", "claim", "prepared", "committed"]
    assert abs(records[3]["decided"] - time.time() * 1000) < 60_000
