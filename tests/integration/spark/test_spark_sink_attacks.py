"""What a user can do to an exactly-once sink: odd names and numbers, many topics, two queries under one name, copies.

Each ends with every row once, or with an error that says what to do. Without a JVM: writers are called as Spark calls
them.
"""

from __future__ import annotations

import os
from itertools import count

import pytest

from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink import decision_log, producers
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink.writer import BatchWriter, StreamWriter
from geminga.spark.sink_rules.errors import LogLostError, SecondWriteError, ShutOutError, SinkError
from support.connector.sink_cases import arrow_batches, run_task, schema_of, stored

VALUE = "value string"
TASKS = 2
_names = count(1)


@pytest.fixture
def query() -> str:
    """A streaming query's id that nobody used."""
    return f"attack{os.getpid()}-{next(_names)}"


def writer_of(standalone, topic: str, columns: str = VALUE, **more: str) -> StreamWriter:
    return StreamWriter({"service.url": standalone.service_url, "topic": topic, **more}, schema_of(columns), False)


def versioned(standalone, topic: str, app: str, version: int | str) -> BatchWriter:
    given = {"service.url": standalone.service_url, "topic": topic, "txnAppId": app, "txnVersion": str(version)}
    return BatchWriter(given, schema_of(VALUE), False)


def rows(batch: int, task: int) -> list[tuple[str]]:
    return [(f"{batch}-{task}-{n}",) for n in range(5)]


def written(
    writer: StreamWriter | BatchWriter, query: str | None, batch: int, run: str | None = None, said: int | None = None
) -> list[TaskCommit]:
    """The tasks of a batch; its rows tell ``said``, the batch itself without."""
    given = {"query": query, "batch": batch, "run": run}
    number = batch if said is None else said
    return [run_task(writer, arrow_batches(VALUE, rows(number, task)), task, **given) for task in range(TASKS)]


def assert_each_once(official, topic: str, *batches: int) -> None:
    expected = sorted(value for batch in batches for task in range(TASKS) for (value,) in rows(batch, task))
    assert sorted(message.data().decode() for message in stored(official, topic, len(expected))) == expected


# ---- two under one name


def test_two_queries_with_one_application_id(standalone, official, fresh_topic, query) -> None:
    """The second one's batch is no repetition of the first one's, though it has its number."""
    writer = writer_of(standalone, fresh_topic, txnAppId=f"app-{query}")
    writer.commit(written(writer, query, 0, "run1"), 0)
    second = written(writer, f"{query}-other", 0, "run2", said=7)
    with pytest.raises(SecondWriteError, match=r"by another query.*give it a txnAppId of its own"):
        writer.commit(second, 0)
    writer.abort(second, 0)
    writer.commit(written(writer, query, 1, "run1"), 1)
    own = writer_of(standalone, fresh_topic, txnAppId=f"own-{query}")
    own.commit(written(own, f"{query}-other", 0, "run3", said=7), 0)
    assert_each_once(official, fresh_topic, 0, 1, 7)


def test_new_checkpoint_under_the_same_application_id_after_one_batch(standalone, official, fresh_topic, query) -> None:
    writer = writer_of(standalone, fresh_topic, txnAppId=f"app-{query}")
    writer.commit(written(writer, query, 0, "run1"), 0)
    with pytest.raises(SecondWriteError, match="a new checkpoint, which counts from 0"):
        writer.commit(written(writer, f"{query}-new", 0, "run2", said=1), 0)
    assert_each_once(official, fresh_topic, 0)


def test_checkpoint_that_was_copied_does_not_take_turns_with_its_original(
    standalone, official, fresh_topic, query
) -> None:
    """Both have the query's id; whoever commits last shuts the other one out until it is started again."""
    writer = writer_of(standalone, fresh_topic)
    writer.commit(written(writer, query, 0, "original"), 0)
    writer.commit(written(writer, query, 1, "copy"), 1)
    late = written(writer, query, 1, "original", said=9)
    with pytest.raises(ShutOutError, match="the checkpoint was copied, or two run on one"):
        writer.commit(late, 1)
    writer.abort(late, 1)
    writer.commit(written(writer, query, 2, "copy"), 2)
    decision_log._logs.clear()
    with pytest.raises(ShutOutError, match="Let one of them run"):
        writer.commit(written(writer, query, 3, "original"), 3)
    # Started again it has a run of its own.
    writer.commit(written(writer, query, 3, "original again"), 3)
    assert_each_once(official, fresh_topic, 0, 1, 2, 3)


def test_checkpoint_that_was_deleted_is_a_new_query(standalone, official, fresh_topic, query) -> None:
    writer = writer_of(standalone, fresh_topic)
    writer.commit(written(writer, query, 0), 0)
    writer.commit(written(writer, f"{query}-new", 0), 0)
    assert_each_once(official, fresh_topic, 0, 0)


def test_log_that_is_deleted_under_a_running_query(standalone, official, fresh_topic, query) -> None:
    log = f"{fresh_topic}-log"
    writer = writer_of(standalone, fresh_topic, commitStateTopic=log)
    for batch in range(2):
        writer.commit(written(writer, query, batch), batch)
    standalone.request("DELETE", f"/admin/v2/{log.replace('://', '/')}?force=true")
    decision_log._logs.clear()
    with pytest.raises(LogLostError, match="resumeWithoutPlan=2"):
        writer.commit(written(writer, query, 2), 2)
    assert_each_once(official, fresh_topic, 0, 1)


def test_job_group_of_a_batch_write_is_no_run_of_a_query(standalone, official, fresh_topic, query) -> None:
    """Schedulers name their jobs as they like: the same for each, or in turns."""
    for group, version in (("nightly", 1), ("nightly", 1), ("weekly", 2), ("nightly", 3), ("weekly", 3)):
        writer = versioned(standalone, fresh_topic, query, version)
        writer.commit(
            [run_task(writer, arrow_batches(VALUE, rows(version, task)), task, run=group) for task in range(TASKS)]
        )
    assert_each_once(official, fresh_topic, 1, 2, 3)


# ---- names and numbers


@pytest.mark.parametrize("name", ["ä ö-ü", "日本語", '"quoted" {json}', "a/b\\c%20d", "🚀" * 20, "x" * 256, "-", "0"])
def test_odd_names_are_names(standalone, official, fresh_topic, query, name: str) -> None:
    app = f"{query}{name}"[:256]
    for _ in range(2):
        writer = versioned(standalone, fresh_topic, app, 1)
        writer.commit(written(writer, None, 1))
        decision_log._logs.clear()
    assert_each_once(official, fresh_topic, 1)


@pytest.mark.parametrize(
    "given",
    [
        {"txnAppId": "a:b"},
        {"sinkName": "a\nb"},
        {"txnAppId": "\ud800"},
        {"sinkName": "x" * 257},
        {"txnTimeoutMs": "999"},
        {"txnTimeoutMs": "-5"},
        {"txnTimeoutMs": "1e99"},
        {"txnTimeoutMs": "9" * 30},
        {"txnTimeoutMs": "soon"},
        {"lostBatch": "redo:-1"},
        {"lostBatch": "redo"},
        {"lostBatch": "undo:1"},
        {"resumeWithoutPlan": "9999999999"},
        {"commitStateTopic": " "},
        {"commitStateTopic": "non-persistent://public/default/x"},
        {"txnVersion": "1", "txnAppId": "a"},
    ],
    ids=str,
)
def test_numbers_and_names_that_can_not_be_are_refused_by_name(standalone, fresh_topic, given: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        writer_of(standalone, fresh_topic, **given)
    assert any(name in str(caught.value) or "persistent" in str(caught.value) for name in given)


@pytest.mark.parametrize("version", ["0", "2147483647"])
def test_first_and_last_version(standalone, official, fresh_topic, query, version: str) -> None:
    for _ in range(2):
        writer = versioned(standalone, fresh_topic, query, version)
        writer.commit(written(writer, None, 1))
    assert_each_once(official, fresh_topic, 1)
    with pytest.raises(OptionError, match="2147483647"):
        versioned(standalone, fresh_topic, query, "2147483648")


# ---- rows


def test_topic_of_a_row_that_is_null_counts_for_nothing(standalone, official, fresh_topic, query) -> None:
    columns = "__topic string, value string"
    options = {"service.url": standalone.service_url, "commitStateTopic": f"{fresh_topic}-log"}
    writer = StreamWriter(options, schema_of(columns), False)
    bad = arrow_batches(columns, [(fresh_topic, "1"), (None, "2")])
    with pytest.raises(OptionError, match="__topic is null"):
        run_task(writer, bad, query=query, batch=0)
    good = run_task(writer, arrow_batches(columns, [(fresh_topic, "1")]), query=query, batch=0, attempt=1)
    writer.commit([good], 0)
    assert [message.data() for message in stored(official, fresh_topic, 1)] == [b"1"]


def test_more_topics_than_a_process_keeps_producers(standalone, official, fresh_topic, query, monkeypatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_KEPT_MAX", 8)
    columns = "__topic string, value string"
    options = {"service.url": standalone.service_url, "commitStateTopic": f"{fresh_topic}-log"}
    writer = StreamWriter(options, schema_of(columns), False)
    topics = [f"{fresh_topic}-{n}" for n in range(30)]
    given = [(topic, f"{n}") for n in range(4) for topic in topics]
    message = run_task(writer, arrow_batches(columns, given, size=50), query=query, batch=0)
    writer.commit([message], 0)
    for topic in topics:
        assert [one.data() for one in stored(official, topic, 4)] == [b"0", b"1", b"2", b"3"]


def test_columns_that_change_between_two_starts(standalone, official, fresh_topic, query) -> None:
    """A field more is a new version of the schema; one of another type is refused, and nothing of the batch counts."""
    first = writer_of(standalone, fresh_topic, "a bigint, b string")
    first.commit([run_task(first, arrow_batches("a bigint, b string", [(1, "x")]), query=query, batch=0)], 0)
    other = "a string, b string"
    changed = writer_of(standalone, fresh_topic, other)
    with pytest.raises(SinkError, match=f"{fresh_topic}: the columns of the rows do not fit"):
        run_task(changed, arrow_batches(other, [("y", "x")]), query=query, batch=1)
    wider = "a bigint, b string, c double"
    grown = writer_of(standalone, fresh_topic, wider)
    grown.commit([run_task(grown, arrow_batches(wider, [(2, "x", 0.5)]), query=query, batch=1)], 1)
    assert len(stored(official, fresh_topic, 2)) == 2


def test_batches_of_empty_tasks_and_one_with_all_rows(standalone, official, fresh_topic, query) -> None:
    writer = writer_of(standalone, fresh_topic)
    tasks = [[], arrow_batches(VALUE, []), arrow_batches(VALUE, [(str(n),) for n in range(50_000)]), []]
    messages = [run_task(writer, given, task, query=query, batch=0) for task, given in enumerate(tasks)]
    writer.commit(messages, 0)
    assert [message.transaction is None for message in messages] == [True, True, False, True]
    assert len(stored(official, fresh_topic, 50_000)) == 50_000


def test_value_larger_than_the_broker_takes_counts_for_nothing_and_says_its_size(
    standalone, official, fresh_topic, query
) -> None:
    writer = writer_of(standalone, fresh_topic)
    with pytest.raises(SinkError, match=f"{fresh_topic}: a row can not be sent: .*chunkingEnabled"):
        run_task(writer, arrow_batches(VALUE, [("x" * 6_000_000,)]), query=query, batch=0)
    writer.commit(written(writer, query, 0), 0)
    assert_each_once(official, fresh_topic, 0)


@pytest.mark.parametrize("part", ["__key", "__properties"])
@pytest.mark.parametrize("is_chunking", ["true", "false"])
def test_key_or_properties_larger_than_the_broker_takes_say_that_chunks_do_not_help(
    standalone, official, fresh_topic, query, part, is_chunking
) -> None:
    columns = "value string, __key string, __properties map"
    large = "x" * 6_000_000
    row = ("v", large, {}) if part == "__key" else ("v", "k", {"name": large})
    writer = writer_of(standalone, fresh_topic, columns, **{"pulsar.producer.chunkingEnabled": is_chunking})
    with pytest.raises(SinkError, match="key and properties of a row must fit into one"):
        run_task(writer, arrow_batches(columns, [("before", "k", {}), row]), query=query, batch=0)
    good = run_task(writer, arrow_batches(columns, [("after", "k", {})]), query=query, batch=0, attempt=1)
    writer.commit([good], 0)
    assert [message.data() for message in stored(official, fresh_topic, 1)] == [b"after"]
