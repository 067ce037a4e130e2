"""``read_topic``: Spark's own Parquet reader and the broker's tail give, row by row, what the data source gives."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from geminga.client import MessageId
from geminga.client.schema import JsonSchema
from geminga.spark import read_topic
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source_rules.file_parts import FILE_COLUMNS, FilePart, column_of, is_id_short
from geminga.spark.source_rules.lake_plan import PlannedFile
from geminga.spark.source_rules.offsets import ReadPosition
from pyspark_geminga import DefaultSource
from support.connector.lake_tables import TOPIC, Table, lake_table, offload
from support.connector.spark_source import read_batch
from support.house.weekly_sample import sampled
from support.worlds.rest import Rest

#: A JVM, a broker and a hundred small tasks.
pytestmark = pytest.mark.timeout(300)
SEED = 1407
#: Ranges looked at.
RANGES = 6
#: A name that Spark would take for a pattern, and URLs for something else.
ODD = "persistent://public/default/odd*{x}[1]=2%41 ü"
PARTS = "persistent://public/default/odd-parts"
PARTITIONS = 2
#: What HotSpot's compilers take of a method.
COMPILED_BYTES_MAX = 8000


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Iterator[Table]:
    # In a root, too, they mean nothing.
    lake = tmp_path_factory.mktemp("lake") / "a=b (c) %41 +ü"
    lake.mkdir()
    with lake_table(lake) as table:
        publish_odd(table)
        yield table


def publish_odd(table: Table) -> None:
    """Topics for a pattern: one with an odd name, one of partitions, each with two versions of a schema."""

    @dataclass
    class Event:
        name: str
        count: int

    older = Event

    @dataclass
    class Event:  # type: ignore[no-redef]
        name: str
        count: int
        place: str = "here"

    path = f"persistent/{PARTS.removeprefix('persistent://')}/partitions"
    assert Rest(table.broker.web_service_url).put(path, PARTITIONS).status == 204
    topics = [ODD, *(f"{PARTS}-partition-{number}" for number in range(PARTITIONS))]
    for kind in (older, Event):
        for topic in topics:
            with table.client.create_producer(topic, schema=JsonSchema(kind), batching_max_messages=5) as producer:
                for number in range(60):
                    producer.send_nowait(kind(topic, number), partition_key=f"k{number % 7}")
                    if number % 5 == 4:
                        producer.flush()
                producer.flush()
        if kind is older:
            for topic in topics:
                offload(table.broker, topic)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """Through Arrow, as the tests of the source have them; by topic and message."""
    return by_message(frame.toArrow().to_pylist())


def by_message(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["__topic"], *position(row)))


def position(row: dict[str, Any]) -> ReadPosition:
    at = MessageId.deserialize(row["__messageId"])
    return ReadPosition(at.ledger_id(), at.entry_id(), max(0, at.batch_index()))


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_every_column_of_files_and_tail_is_that_of_source_and_broker(spark_session, table):
    frame = read_topic(spark_session, table.options)
    assert frame.schema == DefaultSource(options=table.options).schema()
    assert rows_of(frame) == table.rows == read_batch(table.options)
    assert plan_of(frame).count("FileScan parquet") == 2  # files of messages alone, and those that hold markers
    # Columns that are not asked for are not read.
    read = re.findall(r"ReadSchema: (\S+)", plan_of(frame.select("__key")))
    assert read == ["struct<key:binary>", "struct<kind:string,key:binary>"]
    # Files have ids of messages, so that none is made of numbers.
    assert "batch_size" not in plan_of(frame)
    assert frame.count() == len(table.rows)


def test_ranges_that_begin_and_end_anywhere_have_the_rows_between(spark_session, table):
    print(f"seed {SEED}")
    random = Random(SEED)
    for number in range(RANGES):
        first, last = sorted(random.sample(range(len(table.rows)), 2))
        bounds = {
            "startingOffsets": json.dumps({TOPIC: str(position(table.rows[first]))}),
            "endingOffsets": json.dumps({TOPIC: str(position(table.rows[last]))}),
        }
        options = {**table.options, **bounds, "targetBytesPerTask": "100" if number % 2 else ""}
        # The source by itself, too: test_spark_lake.
        assert rows_of(read_topic(spark_session, options)) == table.rows[first:last], (SEED, first, last)


def test_bounds_of_time_hold(spark_session, table):
    times = sorted({round(row["__publishTime"].timestamp() * 1000) for row in table.rows})
    first, last = times[len(times) // 3], times[2 * len(times) // 3]
    wanted = [row for row in table.rows if first <= round(row["__publishTime"].timestamp() * 1000) < last]
    assert wanted
    frame = read_topic(spark_session, {**table.options, "startingTime": first, "endingTime": last})
    assert rows_of(frame) == wanted
    assert "GreaterThanOrEqual(publish_time" in plan_of(frame)


@pytest.mark.parametrize("mode", sampled("read topic", ["raw", "topic"], 1))
def test_topics_of_a_pattern_and_their_partitions_are_as_the_source_has_them(spark_session, table, mode):
    columns = {**table.options, "topic": "", "topicsPattern": "public/default/odd.*", "schemaMode": mode}
    wanted = by_message(read_batch({**columns, "lake.root": ""}))
    assert len(wanted) == 2 * 60 * (1 + PARTITIONS)
    assert by_message(read_batch(columns)) == wanted
    frame = read_topic(spark_session, columns)
    assert rows_of(frame) == wanted
    assert frame.schema == DefaultSource(options=columns).schema()
    # Only payloads as they are come from Spark's own reader, no name that is a pattern; one scan a partition.
    assert plan_of(frame).count("FileScan parquet") == (PARTITIONS if mode == "raw" else 0)


def test_root_that_spark_would_take_for_a_pattern_is_read_by_the_source(spark_session, table, tmp_path):
    (tmp_path / "a*b").symlink_to(table.lake)
    frame = read_topic(spark_session, {**table.options, "lake.root": str(tmp_path / "a*b")})
    assert "FileScan" not in plan_of(frame)
    assert rows_of(frame) == table.rows


def test_filters_on_key_and_time_reach_the_files(spark_session, table):
    at = datetime(2020, 1, 1, tzinfo=UTC)
    frame = read_topic(spark_session, table.options)
    found = frame.where((F.col("__key") == F.lit(b"x")) & (F.col("__publishTime") > F.lit(at))).select("__sequenceId")
    plan = plan_of(found)
    for filters in re.findall(r"PushedFilters: \[(.*?)\], ReadSchema", plan):
        assert "EqualTo(key," in filters
        assert "GreaterThan(publish_time," in filters
    # Message ids are not read where nobody asks for them.
    assert "message_id" not in plan
    assert found.count() == len([row for row in table.rows if row["__key"] == b"x"])


def test_rows_stay_those_of_the_plan_while_topic_and_lake_go_on(spark_session, table):
    topic = "persistent://public/default/going-on"
    options = {**table.options, "topic": topic}
    with table.client.create_producer(topic) as producer:
        for number in range(30):
            producer.send(b"%d" % number)
        offload(table.broker, topic)
        planned = read_topic(spark_session, options)
        wanted = read_batch({**options, "lake.root": ""})
        for number in range(30):
            producer.send(b"late%d" % number)
        offload(table.broker, topic)
        for _ in range(2):
            assert rows_of(planned) == wanted
        assert len(rows_of(read_topic(spark_session, options))) == 60


def test_file_that_goes_or_is_damaged_fails_the_query_whatever_the_session_says(spark_session, table):
    settings = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    frame = read_topic(spark_session, table.options)
    path = min(table.lake.rglob("*lake-table/ledger-*.parquet"))
    data = path.read_bytes()
    for name in settings:
        spark_session.conf.set(name, "true")
    try:
        group = pq.ParquetFile(path).metadata.row_group(0)
        at = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == "value")
        # The end of a page, which a count of rows does not read.
        last = at.data_page_offset + at.total_compressed_size - 1
        path.write_bytes(data[:last] + bytes([data[last] ^ 0xFF]) + data[last + 1 :])
        with pytest.raises(Exception, match=path.name):
            rows_of(frame)
        path.unlink()
        with pytest.raises(Exception, match=path.name):
            rows_of(frame)
        # Planned anew the broker is asked for it.
        assert rows_of(read_topic(spark_session, table.options)) == table.rows
    finally:
        path.write_bytes(data)
        for name in settings:
            spark_session.conf.unset(name)


def test_topic_without_a_lake_and_a_compacted_one_come_from_the_broker(spark_session, table):
    alone = {**table.options, "lake.root": ""}
    assert rows_of(read_topic(spark_session, alone)) == table.rows
    compacted = {**alone, "pulsar.reader.readCompacted": True, "filterPushdown": False}
    frame = read_topic(spark_session, compacted)
    assert rows_of(frame) == read_batch({**alone, "pulsar.reader.readCompacted": "true"})
    with pytest.raises(OptionError, match="readCompacted"):
        read_topic(spark_session, {**compacted, "lake.root": str(table.lake)})


def test_columns_that_are_given_are_those_of_the_table(spark_session, table):
    schema = DefaultSource(options={**table.options, "metadataColumns": "__topic"}).schema()
    frame = read_topic(spark_session, table.options, schema)
    assert rows_of(frame.withColumn("__messageId", F.lit(MessageId(0, 0, 0, 0).serialize()))) is not None
    assert sorted(map(str, frame.toArrow().to_pylist())) == sorted(
        str({"value": row["value"], "__topic": TOPIC}) for row in table.rows
    )


@pytest.mark.parametrize("options", [{"lake.plan": "{}"}, {"service.url": ["a"]}, {"topic": ""}, {"lake.rot": "x"}])
def test_options_that_can_not_be_are_refused(spark_session, table, options):
    name = next(iter(options))
    with pytest.raises(OptionError, match=re.escape(name)):
        read_topic(spark_session, {**table.options, **options})


# ---- columns as SQL


def part_with(ledger_id: int, entries: int, rows: int) -> FilePart:
    ledger = PlannedFile(ledger_id, "f", entries, 1, (0,), None, group_rows_max=rows)
    return FilePart(TOPIC, ledger, ReadPosition(ledger_id, 0), ReadPosition(ledger_id, entries))


@pytest.mark.parametrize("partition", sampled("message ids", [-1, 300], 1))
def test_message_ids_that_spark_makes_are_those_that_clients_write(spark_session, partition):
    print(f"seed {SEED}")
    draw = random.Random(SEED + partition)
    bounds = [
        (1, 1, 1),
        (2**35 - 1, 2**21, 2**14 - 1),
        (2**35 - 1, 2**7, 2**14),
        (300, 2**31 - 1, 2**21 - 1),
    ]
    for ledger_max, entries, rows in bounds:
        parts = [part_with(ledger_max, entries, rows)]
        assert is_id_short(parts)
        ids = [(ledger_max, entries, rows - 1, rows), (0, 0, 0, 1), (ledger_max, 0, -1, 0)]
        for _ in range(200):
            size = draw.randrange(1, 1 << draw.randrange(1, rows.bit_length() + 1)) % rows + 1
            index = -1 if draw.random() < 0.2 else draw.randrange(size)
            numbers = (draw.randrange(1 << draw.randrange(most.bit_length() + 1)) for most in (ledger_max, entries))
            ids.append((*numbers, index, 0 if index < 0 else size))
        frame = spark_session.createDataFrame(ids, "ledger bigint, entry bigint, batch_index int, batch_size int")
        found = frame.select(F.expr(column_of("__messageId", TOPIC, partition, parts)).alias("id")).collect()
        assert [bytes(row["id"]) for row in found] == [
            MessageId(partition, ledger, entry, index, size if index >= 0 else 0).serialize()
            for ledger, entry, index, size in ids
        ]


def test_code_of_the_longest_ids_is_compiled(spark_session, tmp_path):
    longest = [part_with(2**35 - 1, 2**31 - 1, 2**21 - 1)]
    assert is_id_short(longest)
    assert not is_id_short([part_with(2**35, 1, 1)])
    assert not is_id_short([part_with(1, 1, 2**21)])
    spark_session.range(1).selectExpr(
        *(f"cast(null as {kind}) as {name}" for name, kind in (one.split(" ", 1) for one in FILE_COLUMNS.split(", ")))
    ).write.parquet(str(tmp_path / "f"))
    rows = spark_session.read.schema(FILE_COLUMNS).parquet(str(tmp_path / "f")).where("kind = 'message' AND entry >= 3")
    frame = rows.select(*(F.expr(column_of(name, TOPIC, 300, longest)).alias(name) for name in ("value", *ALL_COLUMNS)))
    debug = spark_session._jvm.org.apache.spark.sql.execution.debug
    stages = debug.package.codegenStringSeq(frame._jdf.queryExecution().executedPlan())
    sizes = [stages.apply(number)._3().maxMethodCodeSize() for number in range(stages.length())]
    assert 0 < max(sizes) < COMPILED_BYTES_MAX, sizes
