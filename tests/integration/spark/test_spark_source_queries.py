"""The source through Spark itself: registered by its name, batch and stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException

import geminga
from support.worlds.rest import Rest


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    with geminga.Standalone() as one:
        yield one


def test_topic_is_a_table_and_a_stream(spark_session, broker, client, tmp_path):
    with client.create_producer("queries-1") as producer:
        for index in range(1000):
            producer.send_nowait(b"%d" % index, partition_key=str(index % 3))
        producer.flush()
        reading = {"service.url": broker.service_url, "topic": "queries-1"}
        table = spark_session.read.format("pulsar").options(**reading).load()
        found = table.selectExpr("cast(value as string)", "cast(__key as string)").collect()
        assert [tuple(row) for row in found] == [(str(index), str(index % 3)) for index in range(1000)]

        def run() -> list[int]:
            stream = spark_session.readStream.format("pulsar").options(**reading, startingOffsets="earliest").load()
            query = (
                stream.selectExpr("cast(cast(value as string) as int) as n")
                .writeStream.format("parquet")
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(60)
            return sorted(row.n for row in spark_session.read.parquet(str(tmp_path / "out")).collect())

        assert run() == list(range(1000))
        for index in range(1000, 1100):
            producer.send_nowait(b"%d" % index)
        producer.flush()
        assert run() == list(range(1100))


def test_limits_hold_with_available_now_and_the_named_cursor_follows(spark_session, broker, client, tmp_path):
    # 3: without SupportsTriggerAvailableNow Spark passes no limit and everything is one batch.
    options = {
        "service.url": broker.service_url,
        "topic": "queries-2",
        "startingOffsets": "earliest",
        "subscription": "mine",
        "maxMessagesPerTrigger": "40",
        "metadataColumns": "",
    }
    sent = []

    def publish(number: int) -> None:
        with client.create_producer("queries-2") as producer:
            for _ in range(number):
                sent.append(b"%d" % len(sent))
                producer.send_nowait(sent[-1])
            producer.flush()

    found: list[bytes] = []

    def take(frame, _) -> None:
        found.extend(bytes(row.value) for row in frame.collect())

    def run() -> list[int]:
        stream = spark_session.readStream.format("pulsar").options(**options).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert query.exception() is None
        told = [progress for progress in query.recentProgress if progress.numInputRows]
        # What a batch left is in the progress, as JSON beside the ends; Spark 4.3 has no metrics of Python sources.
        lags.extend(json.loads(progress.sources[0].latestOffset)["lag"] for progress in told)
        assert all(progress.sources[0].metrics == {} for progress in told)
        return [progress.numInputRows for progress in told]

    lags: list[dict[str, int]] = []
    publish(100)
    assert run() == [40, 40, 20]
    assert [lag["entries"] for lag in lags] == [1, 1, 0]
    assert lags[0]["ms"] < lags[1]["ms"]
    publish(10)
    assert run() == [10]
    assert found == sent
    rest = Rest(broker.web_service_url)
    stats = rest.get("persistent/public/default/queries-2/stats").json["subscriptions"]
    assert stats["mine"]["msgBacklog"] == 1  # 17: the last batch (one entry), until the next run


def test_query_that_begins_at_the_end_of_its_topic_waits_for_what_comes(spark_session, broker, client, tmp_path):
    with client.create_producer("queries-at-end") as producer:
        last = producer.send(b"before")
        at = {"persistent://public/default/queries-at-end": f"{last.ledger_id()}:{last.entry_id() + 1}:0"}
        given = {"service.url": broker.service_url, "topic": "queries-at-end", "startingOffsets": json.dumps(at)}
        stream = spark_session.readStream.format("pulsar").options(**given).load()
        found: list[bytes] = []

        def take(frame, _) -> None:
            found.extend(bytes(row.value) for row in frame.collect())

        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
        try:
            query.processAllAvailable()
            producer.send(b"after")
            query.processAllAvailable()
        finally:
            query.stop()
    assert found == [b"after"]


def test_filters_are_pushed_where_spark_was_told_so_and_give_the_same_rows(spark_session, broker, client):
    # 12: a reader that takes filters fails unless a setting of Spark's allows it.
    for name in "ab":
        with client.create_producer(f"queries-3-{name}") as producer:
            producer.send(name.encode())
    reading = {"service.url": broker.service_url, "topics": "queries-3-a,queries-3-b"}

    def read(**options: str) -> list[bytes]:
        table = spark_session.read.format("pulsar").options(**reading, **options).load()
        wanted = table.where("__topic = 'persistent://public/default/queries-3-b' and __publishTime > '2020-01-01'")
        return [bytes(row.value) for row in wanted.collect()]

    assert read() == [b"b"]
    spark_session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert read(filterPushdown="true") == [b"b"]
    finally:
        spark_session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_query_over_messages_that_are_gone_ends_with_the_cause(spark_session, broker, client, tmp_path):
    with client.create_producer("queries-4") as producer:
        producer.send(b"x")
    reading = {"service.url": broker.service_url, "topic": "queries-4", "startingOffsets": '{"queries-4":"0:0:0"}'}
    stream = spark_session.readStream.format("pulsar").options(**reading).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=r"queries-4: messages from 0:0:0 on are gone"):
        query.awaitTermination(60)
