"""Topic to topic through one session, as a user writes it: read, transform, write, read back."""

from __future__ import annotations

import asyncio

from geminga.client import connect
from geminga.spark import register


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
