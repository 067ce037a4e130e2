"""Effectively once (:mod:`geminga.spark.sink.effectively_once`): replays, attempts that live on, plans that differ, and
brokers that do not deduplicate."""

from __future__ import annotations

import os
import random
import signal
import threading
from itertools import count

import pytest
from pyspark.sql.datasource import WriterCommitMessage
from tools.standalone_process import StandaloneProcess

from geminga.client import Timeout
from geminga.client.producer_rules.encoded_batch import EncodedBatch
from geminga.runtime.points import set_point_hook
from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink import committing, crash_points, named_producers
from geminga.spark.sink.named_producers import NamedProducers
from geminga.spark.sink.plans import PLAN_TOPIC, PLAN_TOPIC_DEFAULT, plan_topic
from geminga.spark.sink.producers import open_producer
from geminga.spark.sink.writer import BatchWriter, StreamWriter
from geminga.spark.sink_rules.errors import DeduplicationOffError, ReplayDiffersError, SinkError, SupersededError
from geminga.spark.sink_rules.numbering import TaskIdentity, row_sequence_id
from geminga.spark.sink_rules.sink_options import ProducerSettings, sink_options
from support.connector.sink_cases import arrow_batches, run_task, schema_of, stored
from support.house.forks import forked
from support.house.weekly_sample import sampled
from support.processes.killing import Killer
from support.processes.official import quiet_client

COLUMNS = "value string, __key string"
_queries = count(1)


@pytest.fixture
def topic(dedup_namespace, fresh_topic) -> str:
    """A fresh topic there."""
    return fresh_topic.replace("public/default", dedup_namespace)


@pytest.fixture
def query() -> str:
    """A streaming query's id that nobody used."""
    return f"query{next(_queries)}"


def options_of(standalone, topic: str, **more: str) -> dict[str, str]:
    given = {"service.url": standalone.service_url, "topic": topic, "guarantee": "effectively-once"}
    return {**given, **{name.replace("__", "."): value for name, value in more.items()}}


def stream_writer(standalone, topic: str, columns: str = COLUMNS, **more: str) -> StreamWriter:
    return StreamWriter(options_of(standalone, topic, **more), schema_of(columns), overwrite=False)


def some_rows(number: int, seed: int = 0) -> list[tuple[str, str | None]]:
    draw = random.Random(seed)
    return [(f"{seed}-{n}-{'x' * draw.randrange(300)}", draw.choice(["a", "b", None])) for n in range(number)]


def shuffled(rows: list, seed: int) -> list:
    rows = list(rows)
    random.Random(seed).shuffle(rows)
    return rows


def values_of(messages) -> list[tuple[str, str]]:
    return sorted((message.data().decode(), message.partition_key()) for message in messages)


def expected(rows) -> list[tuple[str, str]]:
    return sorted((value, key or "") for value, key in rows)


def test_batch_replayed_in_another_order_and_other_arrow_batches_is_written_once(
    standalone, official, topic, query
) -> None:
    writer = stream_writer(standalone, topic)
    rows = some_rows(3000)
    for attempt in range(3):
        batches = arrow_batches(COLUMNS, shuffled(rows, attempt), size=100 + 900 * attempt)
        message = run_task(writer, batches, query=query, batch=0, attempt=attempt)
        assert (message.rows, message.sink_id, message.batch_id) == ({topic: 3000}, query, 0)
        writer.commit([message], 0)
    messages = stored(official, topic, 3000)
    assert values_of(messages) == expected(rows)
    assert {message.producer_name() for message in messages} == {f"{query}-0"}


def worker(label: str, hits: int, writer, rows, query: str, batch: int, signal_number: int = signal.SIGKILL) -> int:
    """A process of its own that writes the rows and gets the signal on the way; its id."""

    def write() -> None:
        set_point_hook(Killer(label, hits, signal_number))
        run_task(writer, arrow_batches(COLUMNS, rows), query=query, batch=batch)

    return forked(write)


def killed_at(label: str, hits: int, writer, rows, query: str, batch: int) -> None:
    """A worker that dies there; what it sent is stored, or on its way, or not."""
    _, status = os.waitpid(worker(label, hits, writer, rows, query, batch), 0)
    assert os.WIFSIGNALED(status), f"{label} was not hit {hits} times: {status}"


AT_FIRST = [label for label in crash_points.ALL if label != crash_points.PLAN_SENT]
LATER = [one for one in crash_points.ALL if one not in (crash_points.FIRST_SENT, crash_points.FIRST_ENTRY_STORED)]


@pytest.mark.parametrize(
    ("label", "hits", "batch"),
    sampled(
        "points of a worker",
        [
            *((label, 1, 0) for label in AT_FIRST),
            *((label, 1, 1) for label in LATER),
            (crash_points.FIRST_SENT, 2, 0),
            (crash_points.ENTRY_SENT, 3, 0),
            (crash_points.ENTRY_SENT, 4, 1),
        ],
        9,
        are_rows=True,
    ),
)
def test_worker_killed_at_any_point_is_replayed_without_loss_or_duplicate(
    standalone, official, topic, query, label: str, hits: int, batch: int
) -> None:
    writer = stream_writer(standalone, topic)
    everything = []
    for before in range(batch):
        everything += some_rows(100, before)
        run_task(writer, arrow_batches(COLUMNS, everything), query=query, batch=before)
    rows = some_rows(5000, 7)
    killed_at(label, hits, writer, rows, query, batch)
    run_task(writer, arrow_batches(COLUMNS, shuffled(rows, 1), size=700), query=query, batch=batch, attempt=1)
    assert values_of(stored(official, topic, len(everything) + 5000)) == expected(everything + rows)


def test_worker_that_hangs_and_wakes_up_again_changes_nothing(tmp_path, query) -> None:
    # A zombie holds the name. The broker finds that it does not answer, and the newer attempt goes on; when the zombie
    # wakes up it sends what it had left, under numbers that are used up.
    settings = {"connectionLivenessCheckTimeoutMillis": 200, "brokerDeduplicationEnabled": "true"}
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "log", settings=settings) as broker:
        topic = "persistent://public/default/t"
        writer = stream_writer(broker, topic)
        rows = some_rows(5000)
        zombie = worker(crash_points.ENTRY_SENT, 3, writer, rows, query, 0, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(zombie, os.WUNTRACED)[1])
        run_task(writer, arrow_batches(COLUMNS, shuffled(rows, 1)), query=query, batch=0, attempt=1)
        run_task(writer, arrow_batches(COLUMNS, some_rows(10, 1)), query=query, batch=1)
        os.kill(zombie, signal.SIGCONT)
        os.waitpid(zombie, 0)
        client = quiet_client(broker.service_url, tmp_path)
        assert values_of(stored(client, topic, 5010)) == expected(rows + some_rows(10, 1))
        client.close()
        session_for(ClientConfiguration(broker.service_url)).blocking.close()


def test_broker_that_hangs_ends_the_task_as_a_whole_and_leaves_no_hole(tmp_path, query) -> None:
    # An entry that is given up alone, before those behind it, would count as stored for a replay.
    settings = {"brokerDeduplicationEnabled": "true"}
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "log", settings=settings) as broker:
        topic = "persistent://public/default/t"
        client = {"pulsar__client__operationTimeoutMs": "300", "pulsar__client__memoryLimitBytes": "300000"}
        writer = stream_writer(broker, topic, pulsar__producer__sendTimeoutMs="400", **client)
        run_task(writer, arrow_batches(COLUMNS, some_rows(10, 1)), query=query, batch=0)
        rows = some_rows(20_000)

        def write() -> int:
            set_point_hook(Killer(crash_points.ENTRY_SENT, 3, signal.SIGSTOP, broker.pid))
            with pytest.raises(Timeout):
                run_task(writer, arrow_batches(COLUMNS, rows), query=query, batch=1)
            return 7

        child = forked(write)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        os.kill(broker.pid, signal.SIGCONT)
        patient = stream_writer(broker, topic)
        run_task(patient, arrow_batches(COLUMNS, shuffled(rows, 1)), query=query, batch=1, attempt=1)
        official = quiet_client(broker.service_url, tmp_path)
        assert values_of(stored(official, topic, 20_010)) == expected(rows + some_rows(10, 1))
        official.close()
        for settings_of in (writer.plan.options.client, patient.plan.options.client):
            session_for(settings_of).blocking.close()


def test_batches_of_a_query_follow_each_other(standalone, official, topic, query) -> None:
    writer = stream_writer(standalone, topic)
    everything = []
    for batch in range(4):
        for partition in range(2):
            rows = some_rows(300, seed=batch * 2 + partition)
            everything += rows
            run_task(writer, arrow_batches(COLUMNS, rows), partition, query=query, batch=batch)
    assert values_of(stored(official, topic, 2400)) == expected(everything)


def test_replay_with_other_rows_is_an_error_before_anything_is_written(standalone, official, topic, query) -> None:
    writer = stream_writer(standalone, topic)
    rows = some_rows(100)
    run_task(writer, arrow_batches(COLUMNS, rows), query=query, batch=0)
    for other in (rows[:-1], [*rows, ("more", "a")], [*rows[:-1], ("other", "a")], []):
        with pytest.raises(ReplayDiffersError, match="about to write other rows"):
            run_task(writer, arrow_batches(COLUMNS, other), query=query, batch=0)
    stored(official, topic, 100)


def test_replay_with_another_number_of_tasks_is_an_error_not_a_loss(standalone, official, topic, query) -> None:
    writer = stream_writer(standalone, topic)
    rows = some_rows(90)
    for partition in range(3):
        run_task(writer, arrow_batches(COLUMNS, rows[partition::3]), partition, query=query, batch=0)
    for partition in range(2):
        with pytest.raises(ReplayDiffersError):
            run_task(writer, arrow_batches(COLUMNS, rows[partition::2]), partition, query=query, batch=0)
    stored(official, topic, 90)


def test_rows_of_a_task_that_is_no_more_are_found_at_commit(standalone, topic, query) -> None:
    # Of three tasks only the last one had begun: the two of the replay can not know.
    writer = stream_writer(standalone, topic)
    rows = some_rows(90)
    run_task(writer, arrow_batches(COLUMNS, rows[2::3]), 2, query=query, batch=5)
    messages = [
        run_task(writer, arrow_batches(COLUMNS, rows[partition::2]), partition, query=query, batch=5)
        for partition in range(2)
    ]
    committing._tasks_seen.clear()
    with pytest.raises(ReplayDiffersError, match=r"tasks \[2\] of it began to write"):
        writer.commit(messages, 5)


@pytest.mark.parametrize("is_new_run", [True, False])
def test_rows_of_a_task_that_is_no_more_are_found_though_the_process_committed_as_many_before(
    standalone, topic, query, is_new_run
) -> None:
    """Spark's processes outlive queries: a batch that failed may come again in the one that committed those before."""
    writer = stream_writer(standalone, topic)
    rows = some_rows(90)

    def write(batch: int, run: str) -> list[WriterCommitMessage]:
        return [
            run_task(writer, arrow_batches(COLUMNS, rows[partition::2]), partition, query=query, batch=batch, run=run)
            for partition in range(2)
        ]

    writer.commit(write(4, "first"), 4)
    run_task(writer, arrow_batches(COLUMNS, rows[2::3]), 2, query=query, batch=5, run="first")
    if not is_new_run:  # what a function of foreachBatch tries again by itself
        writer.abort([None, None, None], 5)
    with pytest.raises(ReplayDiffersError, match=r"tasks \[2\] of it began to write"):
        writer.commit(write(5, "second" if is_new_run else "first"), 5)


def test_replay_with_other_entry_limits_is_an_error(standalone, topic, query) -> None:
    # Entries cut otherwise would overlap with those of an attempt that lives on, and dedup goes by whole entries.
    rows = arrow_batches(COLUMNS, some_rows(50))
    run_task(stream_writer(standalone, topic), rows, query=query, batch=0)
    other = stream_writer(standalone, topic, pulsar__producer__batchingMaxMessages="7")
    with pytest.raises(ReplayDiffersError):
        run_task(other, rows, query=query, batch=0)


def test_older_batch_than_the_newest_is_an_error_not_a_silent_skip(standalone, official, topic, query) -> None:
    # An old driver that lives on, or a checkpoint from a backup: its batch numbers are used up.
    writer = stream_writer(standalone, topic)
    for batch in range(2):
        run_task(writer, arrow_batches(COLUMNS, some_rows(10, batch)), query=query, batch=batch)
    with pytest.raises(SupersededError, match="batch 1 was written already"):
        run_task(writer, arrow_batches(COLUMNS, some_rows(10, 9)), query=query, batch=0)
    stored(official, topic, 20)


def test_topic_without_deduplication_is_an_error_at_the_first_entry(standalone, official, fresh_topic, query) -> None:
    with pytest.raises(DeduplicationOffError, match="set-deduplication"):
        run_task(stream_writer(standalone, fresh_topic), arrow_batches(COLUMNS, some_rows(10)), query=query, batch=0)
    stored(official, fresh_topic, 0)  # the plan's topic is in the same namespace, and was asked first


def test_deduplication_off_for_the_output_alone_is_an_error_after_one_entry(
    standalone, official, fresh_topic, dedup_namespace, query
) -> None:
    writer = stream_writer(standalone, fresh_topic, commitStateTopic=f"{dedup_namespace}/plans")
    rows = arrow_batches(COLUMNS, some_rows(5000))
    with pytest.raises(DeduplicationOffError, match=fresh_topic):
        run_task(writer, rows, query=query, batch=0)
    assert {message.message_id().entry_id() for message in drained(official, fresh_topic)} == {0}


def drained(official, topic: str) -> list:
    import pulsar

    reader = official.create_reader(topic, pulsar.MessageId.earliest)
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(5000))
    reader.close()
    return messages


def test_deduplication_switched_off_later_is_an_error(standalone, official, query, fresh_topic) -> None:
    # The broker says -1 of a name that it knew: last_sequence_id does not grow.
    namespace = f"public/off-{query}"
    standalone.request("PUT", f"/admin/v2/namespaces/{namespace}")
    standalone.request("POST", f"/admin/v2/namespaces/{namespace}/deduplication", True)
    topic = fresh_topic.replace("public/default", namespace)
    writer = stream_writer(standalone, topic)
    run_task(writer, arrow_batches(COLUMNS, some_rows(10)), query=query, batch=0)
    standalone.request("POST", f"/admin/v2/namespaces/{namespace}/deduplication", False)
    with pytest.raises(DeduplicationOffError):
        for batch in range(1, 500):  # a policy reaches the topics in its own time
            run_task(writer, arrow_batches(COLUMNS, some_rows(3000, batch)), query=query, batch=batch)
    messages = drained(official, topic)
    assert len(messages) - 10 - 3000 * (batch - 1) <= 1000  # one entry, if the plan's topic heard of it later


def test_older_attempt_that_still_writes_is_waited_for(standalone, official, topic, query) -> None:
    # A speculative copy, or a worker that is being killed: two writers under one name would mix their rows.
    rows = some_rows(2000)
    writer = stream_writer(standalone, topic)
    session = session_for(ClientConfiguration(standalone.service_url, (("description", "older attempt"),)))
    options = sink_options(options_of(standalone, topic))
    older = NamedProducers(session, options, TaskIdentity(query, 0, 0).producer_name)
    held = older.open(plan_topic(options), ProducerSettings(), None)
    results: list[object] = []

    def newer() -> None:
        results.append(run_task(writer, arrow_batches(COLUMNS, rows), query=query, batch=0, attempt=1))

    thread = threading.Thread(target=newer)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    assert held.is_connected()
    assert not results
    older.close()
    thread.join(20)
    assert results
    assert values_of(stored(official, topic, 2000)) == expected(rows)


def test_older_attempt_that_never_leaves_ends_in_an_error(standalone, topic, query) -> None:
    session = session_for(ClientConfiguration(standalone.service_url, (("description", "older attempt"),)))
    options = sink_options(options_of(standalone, topic))
    older = NamedProducers(session, options, TaskIdentity(query, 0, 0).producer_name)
    older.open(plan_topic(options), ProducerSettings(), None)
    writer = stream_writer(standalone, topic, attemptTimeoutMs="200")
    with pytest.raises(SinkError, match="an older attempt of this task still writes"):
        run_task(writer, arrow_batches(COLUMNS, some_rows(5)), query=query, batch=0)
    older.close()


def test_what_was_sent_under_a_name_is_stored_when_the_call_returns(standalone, topic, query) -> None:
    """A plan is: rows follow it, and the next attempt goes by it."""
    session = session_for(ClientConfiguration(standalone.service_url, (("description", "plan"),)))
    producers = NamedProducers(session, sink_options(options_of(standalone, topic)), query)
    producer = producers.open(topic, ProducerSettings(), None)
    for number in range(5):
        producers.send(producer, EncodedBatch(b"\x00\x00\x00\x02\x18\x01x", 1, number))
        assert producer.last_sequence_id() == number
    producers.close()


def test_entries_of_an_attempt_that_lives_on_are_dropped_after_the_newer_one(
    standalone, official, topic, query
) -> None:
    # A zombie that lost its connection comes back when the newer attempt is done, and sends what it had left.
    rows = some_rows(100)
    run_task(stream_writer(standalone, topic), arrow_batches(COLUMNS, rows), query=query, batch=3)
    session = session_for(ClientConfiguration(standalone.service_url, (("description", "zombie"),)))

    async def resend() -> None:
        name = TaskIdentity(query, 3, 0).producer_name
        producer = await open_producer(session.client, topic, ProducerSettings(), None, name)
        producer.send_encoded(EncodedBatch(b"\x00\x00\x00\x02\x18\x01x", 1, row_sequence_id(3, 40)))
        await producer.flush()
        await producer.close()

    session.run(resend)
    assert values_of(stored(official, topic, 100)) == expected(rows)


def test_partitions_have_numbers_of_their_own_and_rows_find_the_same_one(
    standalone, official, dedup_namespace, topic, query
) -> None:
    name = topic.removeprefix("persistent://")
    standalone.request("PUT", f"/admin/v2/persistent/{name}/partitions", 3)
    rows = some_rows(7000)
    writer = stream_writer(standalone, topic)
    killed_at(crash_points.ENTRY_SENT, 3, writer, rows, query, 0)
    for attempt in range(2):
        run_task(writer, arrow_batches(COLUMNS, shuffled(rows, attempt)), query=query, batch=0, attempt=attempt + 1)
    found = [drained(official, f"{topic}-partition-{partition}") for partition in range(3)]
    assert values_of(message for messages in found for message in messages) == expected(rows)
    assert all(messages for messages in found)


def test_partitions_added_before_a_replay_get_nothing_of_it(standalone, official, topic, query) -> None:
    # By the new number a key has another home: its rows would be there twice, or be taken for stored.
    name = topic.removeprefix("persistent://")
    standalone.request("PUT", f"/admin/v2/persistent/{name}/partitions", 2)
    writer = stream_writer(standalone, topic)
    rows, more = some_rows(5000), some_rows(500, 1)
    killed_at(crash_points.ENTRY_SENT, 3, writer, rows, query, 0)
    standalone.request("POST", f"/admin/v2/persistent/{name}/partitions", 5)
    for attempt in range(2):
        run_task(writer, arrow_batches(COLUMNS, shuffled(rows, attempt)), query=query, batch=0, attempt=attempt)
    found = [drained(official, f"{topic}-partition-{partition}") for partition in range(5)]
    assert values_of(message for messages in found for message in messages) == expected(rows)
    assert not any(found[2:])
    run_task(writer, arrow_batches(COLUMNS, more), query=query, batch=1)
    found = [drained(official, f"{topic}-partition-{partition}") for partition in range(5)]
    assert values_of(message for messages in found for message in messages) == expected(rows + more)
    assert any(found[2:])


def test_rows_for_several_topics_are_numbered_in_each(
    standalone, official, dedup_namespace, topic, query, monkeypatch
) -> None:
    monkeypatch.setattr(named_producers, "_OPENING_MAX", 1)
    columns = "value string, __topic string"
    rows = [(f"v{number}", f"{topic}-{number % 3}") for number in range(600)]
    options = options_of(standalone, topic, commitStateTopic=f"{dedup_namespace}/plans")
    del options["topic"]
    writer = StreamWriter(options, schema_of(columns), overwrite=False)
    for attempt in range(2):
        message = run_task(writer, arrow_batches(columns, shuffled(rows, attempt), 50), query=query, batch=0)
    assert message.rows == {f"{topic}-{number}": 200 for number in range(3)}
    for number in range(3):
        values = [one.data().decode() for one in stored(official, f"{topic}-{number}", 200)]
        assert sorted(values) == sorted(value for value, name in rows if name == f"{topic}-{number}")


def test_ordered_by_says_the_order_of_rows_in_the_topic(standalone, official, topic, query) -> None:
    columns = "value string, __key string, __orderingKey string, __eventTime bigint"
    rows = [(f"v{number * 7919 % 1000}", "k", str(number % 3), number) for number in range(1000)]
    writer = stream_writer(standalone, topic, columns, orderedBy="__eventTime")
    run_task(writer, arrow_batches(columns, shuffled(rows, 3)), query=query, batch=0)
    assert [message.data().decode() for message in stored(official, topic, 1000)] == [row[0] for row in rows]


def test_task_with_more_rows_than_it_may_hold_is_an_error(standalone, topic, query) -> None:
    writer = stream_writer(standalone, topic, maxTaskBytes="100k")
    with pytest.raises(SinkError, match=r"more than 102400 bytes.*raise maxTaskBytes"):
        run_task(writer, arrow_batches(COLUMNS, [("x" * 1000, "k")] * 200), query=query, batch=0)
    run_task(writer, arrow_batches(COLUMNS, [("x" * 1000, "k")] * 50), query=query, batch=0)


def test_batch_write_needs_application_and_version(standalone, topic) -> None:
    writer = BatchWriter(options_of(standalone, topic), schema_of(COLUMNS), overwrite=False)
    with pytest.raises(OptionError, match="needs txnAppId and txnVersion"):
        run_task(writer, arrow_batches(COLUMNS, some_rows(5)))


def test_batch_write_with_the_same_version_is_written_once(standalone, official, topic, query) -> None:
    options = options_of(standalone, topic, txnAppId=query, txnVersion="20240229")
    for attempt in range(2):
        writer = BatchWriter(options, schema_of(COLUMNS), overwrite=False)
        writer.commit([run_task(writer, arrow_batches(COLUMNS, shuffled(some_rows(50), attempt)))])
    stored(official, topic, 50)
    older = BatchWriter({**options, "txnVersion": "20240228"}, schema_of(COLUMNS), overwrite=False)
    with pytest.raises(SupersededError):
        run_task(older, arrow_batches(COLUMNS, some_rows(50)))


def test_two_writes_in_one_foreach_batch_need_two_sink_names(standalone, official, topic, query) -> None:
    one, two = arrow_batches(COLUMNS, some_rows(10)), arrow_batches(COLUMNS, some_rows(10, 1))
    writer = BatchWriter(options_of(standalone, topic), schema_of(COLUMNS), overwrite=False)
    run_task(writer, one, query=query, batch=0)
    with pytest.raises(ReplayDiffersError, match="sinkName of its own for each of several writes in one foreachBatch"):
        run_task(writer, two, query=query, batch=0)
    named = BatchWriter(options_of(standalone, topic, sinkName="two"), schema_of(COLUMNS), overwrite=False)
    for _ in range(2):
        run_task(named, two, query=query, batch=0)
    stored(official, topic, 20)


def test_version_is_not_for_streams(standalone, topic) -> None:
    with pytest.raises(OptionError, match="not for writeStream"):
        stream_writer(standalone, topic, txnAppId="a", txnVersion="1")


def test_messages_of_different_batches_are_no_commit(standalone, topic, query) -> None:
    writer = stream_writer(standalone, topic)
    messages = [run_task(writer, [], partition, query=query, batch=partition) for partition in range(2)]
    with pytest.raises(SinkError, match="not those of one batch"):
        writer.commit(messages, 0)
    with pytest.raises(SinkError, match="not those of one batch"):
        writer.commit([messages[0], messages[0]], 0)
    with pytest.raises(SinkError, match="its tasks wrote batch 0"):
        writer.commit([messages[0]], 1)


def test_output_that_is_not_stored_is_refused(standalone, query) -> None:
    columns = "value string, __topic string"
    options = options_of(standalone, "x", commitStateTopic="public/dedup/plans")
    del options["topic"]
    writer = StreamWriter(options, schema_of(columns), overwrite=False)
    with pytest.raises(SinkError, match="what is not stored is forgotten"):
        run_task(writer, arrow_batches(columns, [("v", "non-persistent://public/dedup/n")]), query=query, batch=0)


def test_plans_may_be_on_a_topic_with_partitions(standalone, official, topic, query) -> None:
    plans = f"{topic}-plans"
    standalone.request("PUT", f"/admin/v2/persistent/{plans.removeprefix('persistent://')}/partitions", 3)
    writer = stream_writer(standalone, topic, commitStateTopic=plans)
    for _ in range(2):
        run_task(writer, arrow_batches(COLUMNS, some_rows(10)), query=query, batch=0)
    with pytest.raises(ReplayDiffersError):
        run_task(writer, arrow_batches(COLUMNS, some_rows(9)), query=query, batch=0)
    stored(official, topic, 10)
    assert len(drained(official, f"{plans}-partition-0")) == 1


def test_plans_are_where_options_alone_say() -> None:
    url = {"service.url": "pulsar://h", "guarantee": "effectively-once"}
    assert plan_topic(sink_options({**url, "topic": "a/b/c"})) == f"persistent://a/b/{PLAN_TOPIC}"
    assert plan_topic(sink_options(url)) == PLAN_TOPIC_DEFAULT
    assert plan_topic(sink_options({**url, "commitStateTopic": "a/b/c"})) == "persistent://a/b/c"
