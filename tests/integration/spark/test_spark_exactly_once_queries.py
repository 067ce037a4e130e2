"""The failure matrix of the exactly-once sink with Spark itself: a fault, a query that fails, a start again, each row
once.

The faults happen in Spark's own Python processes (``support/connector/faulty_sink.py``): a worker with a task, the
process that commits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from geminga.spark import inheriting, read_topic
from geminga.spark.sink import crash_points
from support.connector.faulty_sink import FAULT, FaultyPulsar, has_happened, plan
from support.connector.sink_cases import all_stored, publish_rows, stored
from support.house.waiting import until

ROWS = 60
#: Of the stream: a batch holds so many rows at most, in two tasks.
BATCH_ROWS = 40
TASKS = 2


@pytest.fixture(scope="module")
def faulty(spark_session: SparkSession) -> SparkSession:
    """The session, which knows ``pulsar-faulty`` too."""
    spark_session.dataSource.register(FaultyPulsar)
    return spark_session


@pytest.fixture
def options(standalone, fresh_topic) -> dict[str, str]:
    return {"service.url": standalone.service_url, "topic": fresh_topic}


@pytest.fixture
def source(faulty, official, fresh_topic, standalone) -> DataFrame:
    """A stream of rows, from a topic of its own with 2 partitions."""
    topic = f"{fresh_topic}-source"
    publish_rows(standalone, official, topic, ROWS, partitions=TASKS)
    reading = {"service.url": standalone.service_url, "topic": topic, "startingOffsets": "earliest"}
    stream = faulty.readStream.format("pulsar").options(**reading, maxMessagesPerTrigger=str(BATCH_ROWS)).load()
    return stream.selectExpr("value", "cast(__key as string) as __key")


def run(stream: DataFrame, options: dict[str, str], checkpoint: Path, sink: Callable | None = None) -> None:
    """All there is, batch by batch, to the end; with the faulty source if the options plan a fault."""
    writing = stream.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if sink is None:
        writing = writing.format("pulsar-faulty" if FAULT in options else "pulsar").options(**options)
    else:
        writing = writing.foreachBatch(sink)
    query = writing.start()
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()


def fails_then_goes_on(
    stream: DataFrame, options: dict[str, str], tmp_path: Path, label: str, what: str, hits: int = 1
) -> str:
    """A query that ends by the fault, and its next start, which does not; what the first one said."""
    path = tmp_path / "fault"
    with pytest.raises(StreamingQueryException) as caught:
        run(stream, {**options, FAULT: plan(path, label, what, hits)}, tmp_path / "checkpoint")
    assert has_happened(path), f"{label} was not hit: {caught.value}"
    run(stream, options, tmp_path / "checkpoint")
    return str(caught.value)


def forget_last_commit(checkpoint: Path) -> None:
    """What is left of a driver that was killed after the sink's commit and before Spark's own."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def values(official, topic: str, count: int = ROWS) -> list[int]:
    return sorted(int(message.data()) for message in stored(official, topic, count))


EACH_ONCE = list(range(ROWS))


def test_task_that_dies_after_it_sent_its_rows(source, official, options, tmp_path) -> None:
    fails_then_goes_on(source, options, tmp_path, crash_points.TXN_WRITTEN, "kill")
    assert values(official, options["topic"]) == EACH_ONCE


def test_stage_that_is_cancelled_when_one_task_is_done(source, official, options, tmp_path) -> None:
    said = fails_then_goes_on(source, options, tmp_path, crash_points.TXN_DETACHED, "raise")
    assert "planted" in said
    assert values(official, options["topic"]) == EACH_ONCE


def test_driver_that_dies_before_it_decides(source, official, options, tmp_path) -> None:
    fails_then_goes_on(source, options, tmp_path, crash_points.CLAIMED, "kill")
    assert values(official, options["topic"]) == EACH_ONCE


@pytest.mark.parametrize("what", [pytest.param("kill", marks=pytest.mark.long), "raise"])
def test_driver_that_ends_after_it_decided_and_aborts_as_spark_says(source, official, options, tmp_path, what) -> None:
    fails_then_goes_on(source, options, tmp_path, crash_points.DECIDED, what)
    assert values(official, options["topic"]) == EACH_ONCE


@pytest.mark.parametrize("hits", [1, pytest.param(2, marks=pytest.mark.long)])
def test_driver_that_dies_when_some_or_all_are_committed(source, official, options, tmp_path, hits: int) -> None:
    fails_then_goes_on(source.repartition(TASKS), options, tmp_path, crash_points.TXN_ENDED, "kill", hits)
    assert values(official, options["topic"]) == EACH_ONCE


@pytest.mark.long
def test_driver_that_dies_when_the_commit_is_stored(source, official, options, tmp_path) -> None:
    fails_then_goes_on(source, options, tmp_path, crash_points.COMMIT_STORED, "kill")
    assert values(official, options["topic"]) == EACH_ONCE


def test_driver_that_dies_before_sparks_own_log_has_the_batch(source, official, options, tmp_path) -> None:
    for _ in range(3):
        # The number of tasks may be another one each time.
        run(source.repartition(1 + _), options, tmp_path)
        forget_last_commit(tmp_path)
    assert values(official, options["topic"]) == EACH_ONCE


def test_driver_whose_place_another_one_took(source, official, options, tmp_path) -> None:
    named = {**options, "txnAppId": f"app{tmp_path.name}"}
    said = fails_then_goes_on(source, named, tmp_path, crash_points.CLAIMED, "claim")
    assert "another driver commits for this sink now" in said
    assert values(official, options["topic"]) == EACH_ONCE


@pytest.mark.long
def test_transactions_that_grow_too_old_before_the_decision(source, official, options, tmp_path) -> None:
    short = {**options, "txnTimeoutMs": "6000"}
    path = tmp_path / "fault"
    with pytest.raises(StreamingQueryException, match="more than half of its 6000 ms"):
        run(source, {**short, FAULT: plan(path, crash_points.TXN_DETACHED, "sleep")}, tmp_path / "checkpoint")
    run(source, options, tmp_path / "checkpoint")
    assert values(official, options["topic"]) == EACH_ONCE


@pytest.mark.long
def test_query_that_is_stopped_in_the_middle(source, official, options, tmp_path) -> None:
    path = tmp_path / "fault"
    given = {**options, FAULT: plan(path, crash_points.TXN_REGISTERED, "sleep")}
    writing = source.writeStream.format("pulsar-faulty").options(**given).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    until(lambda: has_happened(path), "a task sleeps", limit_s=100)
    query.stop()
    run(source, options, tmp_path / "checkpoint")
    assert values(official, options["topic"]) == EACH_ONCE


@pytest.mark.long
def test_new_checkpoint_writes_again_and_an_application_of_ones_own_says_no(
    source, official, options, tmp_path
) -> None:
    for number in range(2):
        run(source, options, tmp_path / str(number))
    assert values(official, options["topic"], 2 * ROWS) == sorted(2 * EACH_ONCE)
    named = {**options, "txnAppId": f"app{tmp_path.name}"}
    run(source, named, tmp_path / "named")
    with pytest.raises(StreamingQueryException, match="a checkpoint from a backup"):
        run(source, named, tmp_path / "named again")
    assert values(official, options["topic"], 3 * ROWS) == sorted(3 * EACH_ONCE)


def test_writes_of_a_foreach_batch_have_names_or_are_an_error(source, official, options, tmp_path) -> None:
    def write(names: list[str]) -> Callable[[DataFrame, int], None]:
        def write_batch(frame: DataFrame, batch_id: int) -> None:
            for name in names:
                frame.write.format("pulsar").mode("append").options(**options, sinkName=name).save()

        return write_batch

    with pytest.raises((StreamingQueryException, PySparkException), match="sinkName of its own"):
        run(source, {}, tmp_path, sink=write(["one", "one"]))
    for _ in range(2):
        run(source, {}, tmp_path, sink=write(["one", "two"]))
        forget_last_commit(tmp_path)
    assert values(official, options["topic"], 2 * ROWS) == sorted(2 * EACH_ONCE)


def test_writes_from_other_threads_of_a_foreach_batch_are_of_its_batch(
    source, official, options, tmp_path, spark_session
) -> None:
    """A pool that outlives the query: what is written from it later is of no batch."""

    def save(frame: DataFrame, name: str) -> None:
        frame.write.format("pulsar").mode("append").options(**options, sinkName=name).save()

    with ThreadPoolExecutor(1) as pool:

        def write(frame: DataFrame, batch_id: int) -> None:
            write_one = inheriting(frame.sparkSession, save)
            for done in [pool.submit(write_one, frame, name) for name in ("one", "two")]:
                done.result()

        for _ in range(2):
            run(source, {}, tmp_path, sink=write)
            forget_last_commit(tmp_path)
        assert values(official, options["topic"], 2 * ROWS) == sorted(2 * EACH_ONCE)
        read = pool.submit(read_topic, spark_session, options).result()  # which finds the source in any thread
        assert set(read.columns) >= {"value", "__topic"}
        frame = spark_session.createDataFrame([("7",)], "value string")
        pool.submit(inheriting(spark_session, save), frame, "one").result()
    assert values(official, options["topic"], 2 * ROWS + 1).count(7) == 3


def test_write_from_a_thread_that_knows_no_batch_is_an_error_unless_a_promise_is_chosen(
    source, official, options, tmp_path
) -> None:
    def sink(**chosen: str) -> Callable[[DataFrame, int], None]:
        def save(frame: DataFrame, batch_id: int) -> None:
            given = {**options, **chosen, **({"txnVersion": str(batch_id)} if "txnAppId" in chosen else {})}
            frame.write.format("pulsar").mode("append").options(**given).save()

        def write(frame: DataFrame, batch_id: int) -> None:
            jvm = frame.sparkSession._jvm.org.apache.spark.sql.classic.SparkSession

            def active(*args: object) -> None:
                jvm.setActiveSession(frame.sparkSession._jsparkSession)
                save(*args)

            with ThreadPoolExecutor(1) as pool:
                pool.submit(active, frame, batch_id).result()

        return write

    with pytest.raises((StreamingQueryException, PySparkException), match=r"does not know of which batch.*txnAppId"):
        run(source, {}, tmp_path, sink=sink())
    assert values(official, options["topic"], 0) == []
    for _ in range(2):
        run(source, {}, tmp_path, sink=sink(txnAppId=tmp_path.name))
        forget_last_commit(tmp_path)
    assert values(official, options["topic"]) == EACH_ONCE
    run(source, {}, tmp_path, sink=sink(guarantee="at-least-once"))


@pytest.mark.long
def test_update_mode_through_foreach_batch_writes_each_change_once(source, official, options, tmp_path) -> None:
    counts = source.groupBy("__key").count().selectExpr("__key", "cast(count as string) as value")

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.format("pulsar").mode("append").options(**options).save()

    for _ in range(2):
        writing = counts.writeStream.outputMode("update").foreachBatch(write).trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path)).start()
        assert query.awaitTermination(100)
        forget_last_commit(tmp_path)
    # How many keys are in both batches depends on the publish times of their rows.
    changes: dict[str, list[int]] = {}
    for message in all_stored(official, options["topic"]):
        changes.setdefault(message.partition_key(), []).append(int(message.data()))
    assert {key: counts[-1] for key, counts in changes.items()} == {f"k{number}": ROWS // 10 for number in range(10)}
    assert all(counts == sorted(set(counts)) for counts in changes.values()), changes
