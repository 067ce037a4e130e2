"""Topic to topic through one session, as a user writes it: read, transform, write, read back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from geminga.client import MessageId, connect
from geminga.client.blocking import connect as connect_blocking
from geminga.spark import register
from geminga.spark.decoding.json_gate import JsonGate
from geminga.spark.pipelines import Cluster, Guarantee, Pipeline, Sink, Source
from geminga.spark.pipelines.reporter import Reporter
from geminga.spark.pipelines.running import PipelineFailedError, run
from geminga.spark.source_rules.ddl import parse_columns
from support.connector.dirty_json import FIXED, MOMENTS, NUMBERS, literal, seeded
from support.house.weekly_sample import sampled


async def publish(service_url: str, topic: str, contents: list[bytes]) -> None:
    async with connect(service_url) as client, await client.create_producer(topic) as producer:
        for content in contents:
            producer.send_nowait(content, partition_key="k", event_timestamp=1_700_000_000_123)
        await producer.flush()


def test_stream_from_topic_to_topic_keeps_key_time_and_value(spark_session, standalone, fresh_topic, tmp_path):
    output = f"{fresh_topic}-out"
    contents = [f"m{number}".encode() for number in range(100)]
    asyncio.run(publish(standalone.service_url, fresh_topic, contents))
    messages = (
        spark_session.readStream.format("pulsar")
        .option("service.url", standalone.service_url)
        .option("topic", fresh_topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        messages.selectExpr("value", "cast(__key as string) as __key", "__eventTime")
        .writeStream.format("pulsar")
        .option("service.url", standalone.service_url)
        .option("topic", output)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    read = spark_session.read.format("pulsar").option("service.url", standalone.service_url).option("topic", output)
    rows = read.load().selectExpr("value", "cast(__key as string) as key", "unix_millis(__eventTime) as at").collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(contents)
    assert {(row.key, row["at"]) for row in rows} == {("k", 1_700_000_000_123)}


def test_registering_what_registers_itself_changes_nothing(spark_session, standalone, fresh_topic):
    register(spark_session)
    asyncio.run(publish(standalone.service_url, fresh_topic, [b"m"]))
    read = spark_session.read.format("pulsar").option("service.url", standalone.service_url)
    assert read.option("topic", fresh_topic).load().count() == 1


def test_sql_reads_and_writes_through_a_view_and_says_so_of_a_table(spark_session, standalone, fresh_topic):
    asyncio.run(publish(standalone.service_url, fresh_topic, [b"m"]))
    given = f"'service.url' '{standalone.service_url}', topic '{fresh_topic}', metadataColumns '__key'"
    spark_session.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING pulsar OPTIONS ({given})")
    spark_session.sql("INSERT INTO messages VALUES (cast('n' as binary), cast('j' as binary))")
    rows = spark_session.sql("SELECT cast(value as string) AS v, cast(__key as string) AS k FROM messages").collect()
    assert sorted((row.v, row.k) for row in rows) == [("m", "k"), ("n", "j")]
    with pytest.raises(PySparkException, match="write CREATE TEMPORARY VIEW name USING pulsar"):
        spark_session.sql(f"CREATE TABLE kept USING pulsar OPTIONS ({given})")
    spark_session.catalog.dropTempView("messages")


def pipeline(standalone, topic: str, tmp_path, **source: object) -> Pipeline:
    return Pipeline(
        name="dirty",
        cluster=Cluster(standalone.service_url),
        every_ms=None,
        guarantee=Guarantee.AT_LEAST_ONCE,
        checkpoint=str(tmp_path / "checkpoint"),
        sources=(Source(topics=(topic,), columns="id long, n string", **source),),
        sink=Sink(topic=f"{topic}-out"),
    )


def read_ids(standalone, topic: str, name: str = "id") -> list[int | None]:
    with connect_blocking(standalone.service_url) as client, client.create_reader(topic, MessageId.earliest) as reader:
        found = []
        while reader.has_message_available():
            found.append(json.loads(reader.read_next().data())[name])
        return found


@pytest.mark.parametrize(
    "poison",
    sampled(
        "poison of a pipeline",
        [b'{"id":2}{"id":3}', b'{"id":2} rest', b"", b'{"id":2,"n":"\xff"}', b'{"id":"x"}', b'{"id":2.5}'],
        1,
    ),
)
def test_message_that_is_not_json_of_the_columns_is_named_by_topic_and_message(
    spark_session, standalone, fresh_topic, tmp_path, poison
):
    asyncio.run(publish(standalone.service_url, fresh_topic, [b'{"id":1}', poison]))
    with pytest.raises(PipelineFailedError, match=rf"{fresh_topic}: message \d+:\d+:1 ") as caught:
        run(pipeline(standalone, fresh_topic, tmp_path), spark=spark_session, reporter=Reporter())
    assert "\n" not in str(caught.value)


def test_messages_that_do_not_fit_are_nulls_or_go_to_a_topic_if_the_pipeline_says_so(
    spark_session, standalone, fresh_topic, tmp_path
):
    contents = [b'{"id":1}', b'{"id":2}{"id":3}', b'{"id":4,"n":5}', b'{"id":"x","n":"kept?"}', b""]
    asyncio.run(publish(standalone.service_url, fresh_topic, contents))
    kept = pipeline(standalone, fresh_topic, tmp_path / "kept", keeps_invalid=True)
    run(kept, spark=spark_session, reporter=Reporter())
    assert read_ids(standalone, f"{fresh_topic}-out") == [1, None, 4, None, None]
    assert read_ids(standalone, f"{fresh_topic}-out", "n") == [None, None, "5", None, None]
    aside = replace(
        pipeline(standalone, fresh_topic, tmp_path / "aside", bad_records_topic=f"{fresh_topic}-bad"),
        sink=Sink(topic=f"{fresh_topic}-fitting"),
    )
    run(aside, spark=spark_session, reporter=Reporter())
    assert read_ids(standalone, f"{fresh_topic}-fitting") == [1, 4]
    read = spark_session.read.format("pulsar").option("service.url", standalone.service_url)
    rows = read.option("topic", f"{fresh_topic}-bad").load().collect()
    assert [bytes(row.value) for row in rows] == [contents[1], contents[3], contents[4]]


@pytest.mark.parametrize(
    "kind",
    sampled(
        "types of a pipeline's columns",
        [
            *("boolean", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp"),
            *("decimal(5,1)", "array<int>", "struct<a:int>", "map<string,int>", "timestamp_ntz"),
        ],
        2,
    ),
)
def test_what_fits_the_columns_is_what_spark_reads_of_them(spark_session, kind):
    """A literal that Spark itself does not read is none that fits."""
    random = seeded(kind)
    gate = JsonGate(parse_columns(f"v {kind}"))
    texts = [*FIXED, *map(json.dumps, (*MOMENTS, *NUMBERS)), "0e99999999999", *(literal(random) for _ in range(200))]
    payloads = [f'{{"v":{text}}}'.encode() for text in texts]
    fitting = [(payload.decode(),) for payload in payloads if not gate.of_payload(payload)]
    rows = spark_session.createDataFrame(fitting, "j string")
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
    read = rows.select("j", f.from_json("j", f"v {kind}, corrupt string", how).alias("r"))
    assert fitting
    assert read.where("r.corrupt is not null").select("j").collect() == []


@pytest.mark.long
def test_command_names_the_message_that_does_not_fit_though_its_session_is_over(standalone, fresh_topic, tmp_path):
    asyncio.run(publish(standalone.service_url, fresh_topic, [b'{"id":1}', b'{"id":"x"}']))
    path = tmp_path / "poison.yaml"
    path.write_text(
        f"pipeline: poison\nsources:\n  - topic: {fresh_topic}\n    columns: id long\n"
        f"sink: {{topic: {fresh_topic}-out}}\ntrigger: available\ncheckpoint: {tmp_path / 'checkpoint'}\n"
    )
    command = [sys.executable, "-m", "geminga", "pipeline", "run", str(path), "--url", standalone.service_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    assert f"geminga: {fresh_topic}: message" in done.stderr
    assert "Traceback" not in done.stderr
