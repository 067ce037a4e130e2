"""A topic as one table: files of the lake and the broker's tail give the rows that the broker alone gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from geminga.client import MessageId
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source.lake_files import named_ledgers, store_of
from geminga.spark.source.lake_read import LakeTask
from geminga.spark.source_rules.errors import LakeError
from geminga.spark.source_rules.lake_plan import LakeRange
from geminga.spark.source_rules.options import LakeChoice
from pyspark_geminga import DefaultSource
from support.connector.lake_tables import TOPIC, Table, lake_table
from support.connector.spark_source import read_batch, rows_of, values

SEED = 14


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Iterator[Table]:
    with lake_table(tmp_path_factory.mktemp("lake")) as table:
        yield table


def pieces_of(options: dict[str, str]) -> list[Any]:
    source = DefaultSource(options=options)
    partitions = source.reader(source.schema()).partitions()
    assert all(isinstance(partition.value, LakeTask) for partition in partitions)
    return [piece for partition in partitions for piece in partition.value.pieces]


def position(row: dict[str, Any]) -> str:
    at = MessageId.deserialize(row["__messageId"])
    return f"{at.ledger_id()}:{at.entry_id()}:{max(0, at.batch_index())}"


def test_lake_and_tail_are_the_rows_of_the_broker_in_their_order(table):
    assert len(table.rows) == 150 + 13 + 1 + 6 + 35 + 1
    for tasks in ("1", "3", "40"):
        assert read_batch({**table.options, "numPartitions": tasks}) == table.rows
    assert read_batch({**table.options, "arrowBatchBytes": "700"}) == table.rows
    assert read_batch({**table.options, "targetBytesPerTask": "100"}) == table.rows
    in_files = [piece for piece in pieces_of(table.options) if isinstance(piece, LakeRange)]
    assert len({piece.path for piece in in_files}) >= 6
    # Between two neighbours in the lake the broker is not asked; but where chunks are, and at the end.
    assert len(pieces_of({**table.options, "numPartitions": "1"})) - len(in_files) <= 3


def test_ranges_that_begin_and_end_anywhere_have_the_rows_between(table):
    random = Random(SEED)
    for _ in range(30):
        first, last = sorted(random.sample(range(len(table.rows)), 2))
        ends = {
            "startingOffsets": json.dumps({TOPIC: position(table.rows[first])}),
            "endingOffsets": json.dumps({TOPIC: position(table.rows[last])}),
        }
        assert read_batch({**table.options, **ends}) == table.rows[first:last], (SEED, first, last)


def test_bounds_of_time_hold(table):
    times = sorted({round(row["__publishTime"].timestamp() * 1000) for row in table.rows})
    first, last = times[len(times) // 3], times[2 * len(times) // 3]
    wanted = [row for row in table.rows if first <= round(row["__publishTime"].timestamp() * 1000) < last]
    bounds = {"startingTime": str(first), "endingTime": str(last)}
    assert wanted
    assert read_batch({**table.options, **bounds}) == wanted


def test_file_that_goes_or_is_damaged_is_read_from_the_broker_which_has_it(table):
    source = DefaultSource(options=table.options)
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    files = sorted(table.lake.rglob("*.parquet"))
    before = {path: path.read_bytes() for path in files[:2]}
    try:
        files[0].unlink()
        half = len(before[files[1]]) // 3
        files[1].write_bytes(before[files[1]][:half] + bytes(64) + before[files[1]][half + 64 :])
        assert rows_of(reader, partitions) == table.rows
        assert read_batch(table.options) == table.rows  # planned anew
    finally:
        for path, data in before.items():
            path.write_bytes(data)


@pytest.mark.parametrize("columns", ["__partition", "__key"])
def test_messages_that_do_not_fit_go_to_another_topic_whole_whatever_columns_are_read(table, columns):
    wanted = {"jsonColumns": "n int", "metadataColumns": columns}
    from_broker = {name: text for name, text in table.options.items() if name != "lake.root"}
    found = []
    for number, options in enumerate((from_broker, table.options)):
        bad = f"{TOPIC}-bad-{columns}-{number}"
        assert [row["value"] for row in read_batch({**options, **wanted, "badRecordsTopic": bad})].count(None)
        with table.client.create_reader(bad, MessageId.earliest) as reader:
            messages = []
            while reader.has_message_available():
                one = reader.read_next()
                messages.append((one.value(), one.partition_key(), one.event_timestamp(), one.properties()))
            found.append(messages)
    assert found[1] == found[0]
    assert len(found[0]) > 150


def test_manifest_that_is_damaged_fails_and_is_named_and_without_one_the_broker_has_all(table, tmp_path):
    path = max(table.lake.rglob("_manifest/*.json"))
    data = path.read_bytes()
    try:
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(LakeError, match=path.name):
            read_batch(table.options)
    finally:
        path.write_bytes(data)
    assert named_ledgers(store_of(LakeChoice(f"file://{tmp_path}")), TOPIC) == []
    assert read_batch({**table.options, "lake.root": str(tmp_path)}) == table.rows
    with pytest.raises(LakeError, match="mounted"):
        read_batch({**table.options, "lake.root": str(tmp_path / "missing")})


@pytest.mark.parametrize(
    "options",
    [
        {"lake.root": "relative"},
        {"lake.root": "s3://"},
        {"lake.root": "", "lake.region": "eu"},
        {"pulsar.reader.readCompacted": "true"},
    ],
)
def test_options_that_can_not_be_are_refused(table, options):
    with pytest.raises(OptionError, match=r"lake\."):
        read_batch({**table.options, **options})


def test_real_spark_reads_both_as_one_table(spark_session, table):
    found = spark_session.read.format("pulsar").options(**table.options).load().collect()
    assert [row.value and bytes(row.value) for row in found] == values(table.rows)
    assert [bytes(row["__messageId"]) for row in found] == [row["__messageId"] for row in table.rows]
