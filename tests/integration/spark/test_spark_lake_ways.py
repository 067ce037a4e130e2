"""Lakes in a bucket, of partitioned topics, with schemas of several versions: what the broker alone gives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from typer.testing import CliRunner

import geminga
from geminga.app.commands.cli import app_for
from geminga.client.blocking import Client, connect
from geminga.client.schema import JsonSchema
from geminga.spark.source_rules.lake_plan import LakeRange
from geminga.spark.source_rules.planner import TopicRange
from pyspark_geminga import DefaultSource
from support.connector.spark_source import read_batch
from support.house.weekly_sample import sampled
from support.processes.s3_server import S3Server
from support.worlds.rest import Rest

TOPIC = "persistent://public/default/lake-parts"
PARTITIONS = 3
#: Of each schema version in each partition.
MESSAGES = 40
WANTED = StructType(
    [StructField("count", LongType()), StructField("place", StringType()), StructField("other", StringType())]
)


class Parts(NamedTuple):
    """A partitioned topic of which a part is in a bucket."""

    options: dict[str, str]
    lake: dict[str, str]


def publish(client: Client, first: int, kind: type, *more: str) -> None:
    for partition in range(PARTITIONS):
        with client.create_producer(
            f"{TOPIC}-partition-{partition}", schema=JsonSchema(kind), batching_max_messages=5
        ) as producer:
            for number in range(first, first + MESSAGES):
                producer.send_nowait(kind(f"{partition}-{number}", number, *more), partition_key=f"k{number % 7}")
                if number % 5 == 4:
                    producer.flush()
            producer.flush()


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    # As conftest has it for the JVM and what it starts.
    assert os.environ["AWS_ACCESS_KEY_ID"]
    with S3Server() as s3:
        settings = {
            "managedLedgerMaxEntriesPerLedger": 6,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "managedLedgerOffloadDriver": "aws-s3",
            "s3ManagedLedgerOffloadBucket": "lake",
            "s3ManagedLedgerOffloadServiceEndpoint": s3.endpoint,
            "gemingaLakePrefix": "of/tests",
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
        }
        with geminga.Standalone(None, settings) as broker, connect(broker.service_url) as client:
            path = f"persistent/{TOPIC.removeprefix('persistent://')}/partitions"
            assert Rest(broker.web_service_url).put(path, PARTITIONS).status == 204

            @dataclass
            class Event:
                name: str
                count: int

            publish(client, 0, Event)

            @dataclass
            class Event:  # type: ignore[no-redef]
                name: str
                count: int
                place: str = "here"

            publish(client, MESSAGES, Event, "there")
            for partition in range(PARTITIONS):
                name = f"{TOPIC}-partition-{partition}"
                command = ["lake", "offload", name, "--admin-url", broker.web_service_url, "--wait"]
                assert CliRunner().invoke(app_for(["lake"]), command).exit_code == 0
            publish(client, 2 * MESSAGES, Event, "tail")
            columns = "__messageId,__key,__topic,__partition,__schemaVersion"
            options = {"service.url": broker.service_url, "topic": TOPIC, "metadataColumns": columns}
            yield Parts(options, {"lake.root": "s3://lake/of/tests", "lake.endpoint": s3.endpoint})


def rows_of_frame(frame: Any) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in frame.collect()]
    return [{name: bytes(cell) if isinstance(cell, bytearray) else cell for name, cell in row.items()} for row in rows]


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks of the broker's plan come by size; rows of a partition in their order."""
    return sorted(rows, key=lambda row: row["__topic"])


def columns_of(options: dict[str, str], mode: str) -> StructType:
    """Of the source; for fixed: those that are wanted, and its metadata columns."""
    if mode != "fixed":
        return DefaultSource(options={**options, "schemaMode": mode}).schema()
    raw = DefaultSource(options={**options, "schemaMode": "raw"}).schema()
    return StructType([*WANTED.fields, *(field for field in raw.fields if field.name.startswith("__"))])


@pytest.mark.parametrize("mode", sampled("lake ways", ["raw", "topic", "fixed"], 1))
def test_partitions_in_a_bucket_and_their_tails_are_the_rows_of_the_broker(parts, mode):
    schema = columns_of(parts.options, mode)
    options = {**parts.options, "schemaMode": mode}
    planned = DefaultSource(options={**options, **parts.lake}).reader(schema).partitions()
    pieces = [piece for one in planned for piece in one.value.pieces]
    for kind in (LakeRange, TopicRange):
        assert len({piece.topic for piece in pieces if isinstance(piece, kind)}) == PARTITIONS
    alone = read_batch(options, schema)
    assert len(alone) == 3 * MESSAGES * PARTITIONS
    for tasks in ("1", "2", "50"):
        found = read_batch({**options, **parts.lake, "numPartitions": tasks}, schema)
        assert ordered(found) == ordered(alone)
    if mode == "fixed":
        assert {row["place"] for row in alone} == {None, "there", "tail"}
        assert {row["other"] for row in alone} == {None}
        assert len({row["__schemaVersion"] for row in alone}) == 2


@pytest.mark.long
def test_spark_reads_a_bucket_of_partitions_with_a_fixed_schema(spark_session, parts):
    options = {**parts.options, "schemaMode": "fixed"}
    schema = columns_of(parts.options, "fixed")

    def read(more: dict[str, str]) -> Any:
        return spark_session.read.format("pulsar").options(**options, **more).schema(schema).load()

    alone, both = read({}), read(parts.lake)
    assert ordered(rows_of_frame(both)) == ordered(rows_of_frame(alone))
    counted = both.groupBy("__partition", "place").count().collect()
    # Not counted with row.count, which is a method of every row.
    assert {(row["__partition"], row["place"]): row["count"] for row in counted} == {
        (partition, place): MESSAGES for partition in range(PARTITIONS) for place in (None, "there", "tail")
    }
