"""The sink through Spark itself: what the documentation shows, and what Spark does behind a writer's back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame

from support.connector.sink_cases import publish_rows, stored

ROWS = 400


@pytest.fixture
def options(standalone, fresh_topic) -> dict[str, str]:
    return {"service.url": standalone.service_url, "topic": fresh_topic}


@pytest.fixture
def once(standalone, dedup_namespace, fresh_topic) -> dict[str, str]:
    topic = fresh_topic.replace("public/default", dedup_namespace)
    return {"service.url": standalone.service_url, "topic": topic, "guarantee": "effectively-once"}


@pytest.fixture
def source(spark_session, official, fresh_topic, standalone) -> DataFrame:
    """A stream of rows, from a topic of its own with 2 partitions."""
    topic = f"{fresh_topic}-source"
    publish_rows(standalone, official, topic, ROWS, partitions=2)
    reading = {"service.url": standalone.service_url, "topic": topic, "startingOffsets": "earliest"}
    stream = spark_session.readStream.format("pulsar").options(**reading, maxMessagesPerTrigger="250").load()
    return stream.selectExpr("value", "cast(__key as string) as __key", "__eventTime")


def run(stream: DataFrame, options: dict[str, str], checkpoint: Path, sink: Callable | None = None) -> None:
    """All there is, batch by batch, to the end."""
    writing = stream.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writing = writing.format("pulsar").options(**options) if sink is None else writing.foreachBatch(sink)
    query = writing.start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()


def forget_last_commit(checkpoint: Path) -> int:
    """What is left of a driver that was killed after the sink's commit and before Spark's own."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (checkpoint / "commits").iterdir():
        if path.name in (str(last), f".{last}.crc"):
            path.unlink()
    return last


def values(official, topic: str, count: int) -> list[int]:
    return sorted(int(message.data()) for message in stored(official, topic, count))


def test_dataframe_is_appended_to_a_topic(spark_session, official, options) -> None:
    frame = spark_session.range(1000).selectExpr("cast(id as string) as value", "concat('k', id % 7) as __key")
    frame.write.format("pulsar").mode("append").options(**options).save()
    messages = stored(official, options["topic"], 1000)
    assert sorted((int(one.data()), one.partition_key()) for one in messages) == [(n, f"k{n % 7}") for n in range(1000)]


def test_modes_other_than_append_are_refused_before_anything_is_written(spark_session, official, options) -> None:
    frame = spark_session.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match=r'use mode\("append"\)'):
        frame.write.format("pulsar").mode("overwrite").options(**options).save()
    with pytest.raises(AnalysisException, match="Append"):
        frame.write.format("pulsar").options(**options).save()


def test_unknown_option_is_an_error_in_the_driver(spark_session, options) -> None:
    frame = spark_session.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match=r"compressontype: not an option of this sink; did you mean"):
        frame.write.format("pulsar").mode("append").options(
            **options, **{"pulsar.producer.compressonType": "LZ4"}
        ).save()


def test_null_topic_fails_the_job(spark_session, options) -> None:
    frame = spark_session.range(3).selectExpr("'v' as value", "if(id = 2, null, 'x') as __topic")
    del options["topic"]
    with pytest.raises(PythonException, match="__topic is null"):
        frame.write.format("pulsar").mode("append").options(**options).save()


def test_batch_effectively_once_without_version_is_an_error(spark_session, once) -> None:
    frame = spark_session.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(PythonException, match="needs txnAppId and txnVersion"):
        frame.write.format("pulsar").mode("append").options(**once).save()


def test_replayed_batch_is_written_once_and_with_other_tasks_not_at_all(source, official, once, tmp_path) -> None:
    for _ in range(2):
        run(source.repartition(3, "__key"), once, tmp_path)
        forget_last_commit(tmp_path)
    assert values(official, once["topic"], ROWS) == list(range(ROWS))
    with pytest.raises(StreamingQueryException, match="an earlier attempt was about to write other rows"):
        run(source.repartition(2, "__key"), once, tmp_path)
    assert values(official, once["topic"], ROWS) == list(range(ROWS))


def test_foreach_batch_replayed_in_another_order_is_written_once(source, official, once, tmp_path) -> None:
    # Two writes of one batch, which have the query's numbers and names of their own.
    def write(is_ascending: bool) -> Callable[[DataFrame, int], None]:
        def write_batch(frame: DataFrame, batch_id: int) -> None:
            ordered = frame.repartition(3, "__key").sortWithinPartitions("value", ascending=is_ascending)
            for name in ("one", "two"):
                ordered.write.format("pulsar").mode("append").options(**once, sinkName=name).save()

        return write_batch

    for is_ascending in (True, False):
        run(source, {}, tmp_path, sink=write(is_ascending))
        forget_last_commit(tmp_path)
    assert values(official, once["topic"], 2 * ROWS) == sorted(2 * list(range(ROWS)))


def test_continuous_trigger_never_commits_what_was_never_written(spark_session, options, tmp_path) -> None:
    # Spark never calls write() then. It logs what commit raises and goes on, but its checkpoint stays where it is.
    stream = spark_session.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    writing = stream.writeStream.format("pulsar").options(**options).option("checkpointLocation", str(tmp_path))
    query = writing.trigger(continuous="200 milliseconds").start()
    try:
        assert not query.awaitTermination(3)
    finally:
        query.stop()
    assert [path.name for path in (tmp_path / "offsets").iterdir() if path.name.isdigit()]
    assert not [path.name for path in (tmp_path / "commits").iterdir() if path.name.isdigit()]


def test_output_mode_update_is_refused_by_spark(source, options, tmp_path) -> None:
    counts = source.groupBy("__key").count().selectExpr("__key", "cast(count as string) as value")
    writing = counts.writeStream.format("pulsar").outputMode("update").options(**options)
    with pytest.raises(Exception, match=r"(?i)update"):
        writing.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)


def test_output_mode_complete_writes_the_whole_result(source, official, options, tmp_path) -> None:
    counts = source.groupBy().count().selectExpr("cast(count as string) as value")
    writing = counts.writeStream.format("pulsar").outputMode("complete").options(**options)
    assert writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination(60)
    assert values(official, options["topic"], 2) == [250, 400]
