"""Declared pipelines with a real broker and real Spark, through one session."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

from geminga.spark.pipelines import (
    CheckpointInUseError,
    Guarantee,
    Join,
    PipelineError,
    Sink,
    Source,
    Table,
    Watermark,
    Window,
    WindowKind,
    load_ready,
)
from geminga.spark.pipelines.checkpoint import read_state
from geminga.spark.pipelines.connecting import missing_topics
from geminga.spark.pipelines.core.parsing import parse_pipeline, read_document
from geminga.spark.pipelines.outputs import ASIDE
from geminga.spark.pipelines.query import start
from geminga.spark.pipelines.running import PipelineFailedError, Stop, run
from geminga.spark.pipelines.table import CURRENT, KEY_COLUMN
from support.connector.pipeline_runs import START_MS, Silent, event, go, keep, read_all, send

pytestmark = pytest.mark.timeout(560)


def test_stateless_rows_are_joined_filtered_and_passed_on(spark_session, client, made, fresh_topic, tmp_path):
    output, names = f"{fresh_topic}-out", f"{fresh_topic}-names"
    keep(client, output)
    spark_session.createDataFrame([("i0", 1.5), ("i1", 2.5)], "item string, factor double").write.parquet(
        str(tmp_path / "factors")
    )
    # The newest message of each key counts, a tombstone takes it away.
    send(client, names, [(json.dumps({"label": f"old {n}"}).encode(), {"partition_key": f"i{n}"}) for n in range(3)])
    send(client, names, [(b'{"label": "new 0"}', {"partition_key": "i0"}), (None, {"partition_key": "i1"})])
    pipeline = made(
        tables=(
            Table("factors", parquet=str(tmp_path / "factors")),
            Table("names", topic=names, columns="label string", key="item"),
        ),
        select={"item": "item", "twice": "cents * 2"},
        where="cents >= 4",
        joins=(Join("factors", ("item",)), Join("names", ("item",), is_left=True)),
        having="twice < 16",
        sink=Sink(topic=output, key="item", properties="map('source', __topic)"),
    )
    send(client, fresh_topic, [event(number, START_MS + number, f"i{number % 3}") for number in range(12)])
    go(spark_session, pipeline)
    rows = sorted(
        (json.loads(m.data())["twice"], m.partition_key(), json.loads(m.data())["label"])
        for m in read_all(client, output)
    )
    assert rows == [(8, "i1", None), (12, "i0", "new 0"), (14, "i1", None)]
    message = read_all(client, output)[0]
    assert message.properties() == {"source": fresh_topic}
    assert message.event_timestamp() >= START_MS


def test_a_topic_becomes_parquet_and_parquet_a_topic(spark_session, client, made, standalone, fresh_topic, tmp_path):
    back = f"{fresh_topic}-back"
    keep(client, back)
    big = b"x" * (5 << 20)
    client.subscribe(fresh_topic, "keep").close()
    with client.create_producer(fresh_topic, chunking_enabled=True, batching_enabled=False) as producer:
        producer.send(big, partition_key="big")
        producer.send(b"\xff\x00", properties={"a": "b"}, event_timestamp=START_MS)
        producer.send(None, partition_key="gone")
    directory = str(tmp_path / "files")
    settings = {"topic": fresh_topic, "directory": directory}
    first = replace(
        load_ready("topic-to-parquet", settings, service_url=standalone.service_url), checkpoint=str(tmp_path / "c1")
    )
    go(spark_session, first)
    assert go(spark_session, first).rows == 0
    rows = {row.key: row for row in spark_session.read.parquet(directory).collect()}
    assert set(rows) == {"big", None, "gone"}
    assert bytes(rows["big"].value) == big
    assert bytes(rows[None].value) == b"\xff\x00"
    assert rows[None].properties == {"a": "b"}
    assert rows["gone"].value is None
    settings = {"topic": back, "directory": directory, "key": "key", "value": "value", "event_time": "event_time"}
    second = load_ready("parquet-to-topic", settings, service_url=standalone.service_url)
    options = {"pulsar.producer.chunkingEnabled": "true"}
    second = replace(
        second,
        checkpoint=str(tmp_path / "c2"),
        guarantee=Guarantee.AT_LEAST_ONCE,
        sink=replace(second.sink, options=options),
    )
    go(spark_session, second)
    found = {m.partition_key() if m.has_key() else None: m.data() for m in read_all(client, back)}
    assert found == {"big": big, None: b"\xff\x00", "gone": b""}


def test_dead_letters_go_back_to_where_they_came_from(spark_session, client, standalone, fresh_topic, tmp_path):
    origin, dead = f"{fresh_topic}-orders", f"{fresh_topic}-DLQ"
    foreign = "persistent://pulsar/system/secret"
    refused = f"{dead}-refused"
    keep(client, origin, refused)
    noted = {"REAL_SUBSCRIPTION": "s", "ORIGIN_MESSAGE_ID": "1:2:3", "RECONSUMETIMES": "3", "own": "kept"}
    send(
        client,
        dead,
        [
            (
                b"one",
                {"properties": {**noted, "REAL_TOPIC": origin}, "partition_key": "k", "event_timestamp": START_MS},
            ),
            (b"two", {"properties": {**noted, "REAL_TOPIC": f"{origin}-partition-3"}}),
            (b"three", {"properties": {**noted, "REAL_TOPIC": origin.rpartition("/")[2]}}),
            (b"foreign", {"properties": {**noted, "REAL_TOPIC": foreign}}),
            (b"round", {"properties": {**noted, "REAL_TOPIC": dead}}),
            (b"deeper", {"properties": {**noted, "REAL_TOPIC": f"{fresh_topic}/a"}}),
            (b"without", {}),
        ],
    )
    pipeline = load_ready("redrive", {"topic": dead}, service_url=standalone.service_url)
    pipeline = replace(pipeline, checkpoint=str(tmp_path / "c"), guarantee=Guarantee.AT_LEAST_ONCE)
    go(spark_session, pipeline)
    back = {m.data(): m for m in read_all(client, origin)}
    assert set(back) == {b"one", b"two", b"three"}
    assert back[b"one"].properties() == {"own": "kept"}
    assert back[b"one"].partition_key() == "k"
    assert back[b"one"].event_timestamp() == START_MS
    stayed = {m.data(): m.properties() for m in read_all(client, refused)}
    assert set(stayed) == {b"foreign", b"round", b"deeper", b"without"}
    assert stayed[b"foreign"] == {**noted, "REAL_TOPIC": foreign}


def test_dead_letters_that_name_no_topic_or_one_of_the_brokers_own_stop_nobody(
    spark_session, client, standalone, fresh_topic, tmp_path
):
    dead, namespace = f"{fresh_topic}-DLQ", fresh_topic[: fresh_topic.rindex("/") + 1]
    refused = f"{dead}-refused"
    keep(client, fresh_topic, refused)
    # Who may write dead letters chooses the name: one that can not be would fail the batch, at each start.
    locals_ = ["", ".", "..", " ", "-partition-3", "a\0b", "\u3000", "a" * 5000, "__change_events", "__spark_commits"]
    locals_ += ["a-s__transaction_pending_ack", "__transaction_buffer_snapshot"]
    named = [(local.encode(), {"properties": {"REAL_TOPIC": namespace + local}}) for local in locals_]
    twice = f"{fresh_topic}-partition-3-partition-4"
    send(client, dead, [*named, (b"good", {"properties": {"REAL_TOPIC": twice}})])
    pipeline = load_ready("redrive", {"topic": dead}, service_url=standalone.service_url)
    go(spark_session, replace(pipeline, checkpoint=str(tmp_path / "c"), guarantee=Guarantee.AT_LEAST_ONCE))
    assert [m.data() for m in read_all(client, fresh_topic)] == [b"good"]
    assert sorted(m.data() for m in read_all(client, refused)) == sorted(local.encode() for local in locals_)


def test_a_table_has_the_newest_of_each_key_and_a_replay_changes_nothing(
    spark_session, client, standalone, fresh_topic, tmp_path
):
    directory = tmp_path / "table"
    settings = {"topic": fresh_topic, "directory": str(directory)}
    pipeline = load_ready("table", settings, service_url=standalone.service_url)
    pipeline = replace(
        pipeline, checkpoint=str(tmp_path / "c"), sources=(replace(pipeline.sources[0], messages_max=4),)
    )

    def table() -> dict[str, bytes]:
        return {r[KEY_COLUMN]: bytes(r.value) for r in spark_session.read.parquet(str(directory / CURRENT)).collect()}

    pairs = [("a", b"1"), ("b", b"1"), (None, b"no key"), ("a", b"2"), ("c", b"1"), ("b", b"2"), ("c", None)]
    # No bytes delete, too: what clients send that know no null.
    pairs += [("d", b"1"), ("d", b"")]
    send(client, fresh_topic, [(v, {"partition_key": k} if k else {}) for k, v in pairs])
    go(spark_session, pipeline)
    assert table() == {"a": b"2", "b": b"2"}
    send(client, fresh_topic, [(b"3", {"partition_key": "c"}), (None, {"partition_key": "a"})])
    go(spark_session, pipeline)
    assert table() == {"b": b"2", "c": b"3"}
    # Spark had not noted that the last batch was done: it comes again.
    last = read_state(pipeline.checkpoint_path).done
    for name in (str(last), f".{last}.crc"):
        (Path(pipeline.checkpoint_path) / "commits" / name).unlink(missing_ok=True)
    go(spark_session, pipeline)
    assert table() == {"b": b"2", "c": b"3"}
    with pytest.raises(CheckpointInUseError, match="made with another checkpoint"):
        go(spark_session, replace(pipeline, checkpoint=str(tmp_path / "c2")))


def test_a_null_deletes_its_key_from_a_table_whatever_its_rows_have_to_be_like(
    spark_session, client, made, fresh_topic, tmp_path
):
    prices, directory = tmp_path / "items", tmp_path / "table"
    spark_session.createDataFrame([("a", 1), ("b", 2)], "item string, price int").write.parquet(str(prices))
    pipeline = made(
        sources=(Source(topics=(fresh_topic,), columns="item string, cents long"),),
        where="cents > 0",
        tables=(Table("prices", parquet=str(prices)),),
        joins=(Join("prices", ("item",)),),
        having="price < 10",
        sink=Sink(table=str(directory), fields={"cents": "cents", "price": "price"}),
    )

    def table() -> dict[str, int]:
        return {r[KEY_COLUMN]: r.cents for r in spark_session.read.parquet(str(directory / CURRENT)).collect()}

    send(client, fresh_topic, [event(5, None, "a"), event(6, None, "b"), event(7, None, "c"), event(0, None, "b")])
    go(spark_session, pipeline)
    assert table() == {"a": 5, "b": 6}
    send(client, fresh_topic, [(None, {"partition_key": "a"})])
    go(spark_session, pipeline)
    assert table() == {"b": 6}


def plain_rows(directory: Path) -> list[bytes]:
    """As readers of Parquet see it that know nothing of Spark's log."""
    table = pyarrow.dataset.dataset(directory, format="parquet").to_table(columns=["value"])
    return sorted(table.column("value").to_pylist())


def test_files_of_a_killed_batch_are_set_aside_and_a_new_checkpoint_loses_nothing(
    spark_session, client, standalone, fresh_topic, tmp_path
):
    """Spark passes over batches whose numbers its log of files has: with a new checkpoint rows were missing."""
    directory = tmp_path / "files"
    settings = {"topic": fresh_topic, "directory": str(directory)}
    pipeline = replace(
        load_ready("topic-to-parquet", settings, service_url=standalone.service_url), checkpoint=str(tmp_path / "c1")
    )
    send(client, fresh_topic, [(b"1", {}), (b"2", {})])
    go(spark_session, pipeline)
    # What a batch leaves that is killed before Spark has logged its files: the same rows under another random id.
    written = next(path for path in directory.glob("part-*.parquet") if pyarrow.parquet.read_table(path).num_rows)
    before, after = written.name[:11], written.name[47:]
    shutil.copy(written, directory / f"{before}{uuid.uuid4()}{after}")
    assert plain_rows(directory) == [b"1", b"1", b"2", b"2"]
    send(client, fresh_topic, [(b"3", {})])
    go(spark_session, pipeline)
    assert plain_rows(directory) == [b"1", b"2", b"3"]
    assert sorted(bytes(row.value) for row in spark_session.read.parquet(str(directory)).collect()) == [
        b"1",
        b"2",
        b"3",
    ]
    assert len(list((directory / ASIDE).iterdir())) == 1
    again = replace(pipeline, checkpoint=str(tmp_path / "c2"))
    with pytest.raises(CheckpointInUseError, match="made with another checkpoint"):
        go(spark_session, again)
    (directory / "_geminga.json").unlink()
    with pytest.raises(CheckpointInUseError, match="not this pipeline's"):
        go(spark_session, again)


def test_a_file_that_is_copied_with_an_old_time_is_read_all_the_same(
    spark_session, client, standalone, fresh_topic, tmp_path
):
    directory = tmp_path / "files"
    directory.mkdir()
    keep(client, fresh_topic)
    settings = {"topic": fresh_topic, "directory": str(directory), "columns": "id long", "value": "cast(id as string)"}
    pipeline = replace(
        load_ready("parquet-to-topic", settings, service_url=standalone.service_url), checkpoint=str(tmp_path / "c")
    )

    def put(number: int, days_ago: int) -> None:
        path = directory / f"{number}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"id": [number]}), path)
        at = START_MS / 1000 - days_ago * 86_400
        os.utime(path, (at, at))

    put(1, 0)
    go(spark_session, pipeline)
    put(2, 30)
    put(3, 0)
    # Half a file: an error and no row of it; whole, it is read.
    whole = (directory / "1.parquet").read_bytes()
    (directory / "4.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PipelineFailedError, match=r"4\.parquet"):
        go(spark_session, pipeline)
    pyarrow.parquet.write_table(pyarrow.table({"id": [4]}), directory / "4.parquet")
    go(spark_session, pipeline)
    assert sorted(m.data() for m in read_all(client, fresh_topic)) == [b"1", b"2", b"3", b"4"]


def test_a_checkpoint_is_one_pipelines_and_one_processs(spark_session, client, made, fresh_topic, tmp_path):
    keep(client, f"{fresh_topic}-out")
    pipeline = made(where="cents > 1", sink=Sink(topic=f"{fresh_topic}-out"))
    send(client, fresh_topic, [event(n, START_MS, "i") for n in range(3)])
    go(spark_session, pipeline)
    with pytest.raises(CheckpointInUseError, match="pipeline test, not of other"):
        go(spark_session, replace(pipeline, name="other"))
    with pytest.raises(CheckpointInUseError, match=r"sink\.topic may not change"):
        go(spark_session, replace(pipeline, sink=Sink(topic=f"{fresh_topic}-elsewhere")))
    go(spark_session, replace(pipeline, where="cents > 2"))
    foreign = tmp_path / "foreign"
    (foreign / "offsets").mkdir(parents=True)
    with pytest.raises(CheckpointInUseError, match="no pipeline"):
        go(spark_session, replace(pipeline, checkpoint=str(foreign)))


@pytest.mark.parametrize("is_of_each", [False, True])
def test_a_number_is_no_event_time(spark_session, client, made, fresh_topic, is_of_each):
    keep(client, fresh_topic)
    pipeline = made(
        time="cents",
        watermark=Watermark(1000, is_of_each=is_of_each),
        window=Window(WindowKind.TUMBLING, 1000),
        aggregates={"n": "count(*)"},
        sink=Sink(topic=f"{fresh_topic}-out"),
        lines={"time": 7},
    )
    with pytest.raises(PipelineError, match=r"time: 'cents' is bigint.*expected a timestamp, such as") as caught:
        start(spark_session, pipeline)
    assert caught.value.problems[0].line == 7


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"where": "centz > 1"}, "centz"),
        ({"sources": None}, "no-such"),
        ({"bad": True}, "JSON|parse|malformed|Malformed"),
    ],
)
def test_what_fails_is_told_in_a_paragraph(spark_session, client, made, fresh_topic, standalone, parts, expected):
    keep(client, f"{fresh_topic}-out")
    send(client, fresh_topic, [event(1, START_MS, "i")])
    if parts.pop("bad", False):
        send(client, fresh_topic, [(b"no json", {})])
    if "sources" in parts:
        parts["sources"] = (Source(topics=("persistent://public/no-such/t",)),)
    with pytest.raises(PipelineFailedError, match=expected) as caught:
        go(spark_session, made(**parts, sink=Sink(topic=f"{fresh_topic}-out")))
    told = str(caught.value)
    assert "\n" not in told
    assert len(told) < 1300
    assert "at org.apache" not in told
    assert "Traceback" not in told


def test_an_empty_topic_a_stop_and_missing_topics(spark_session, client, made, fresh_topic):
    output = f"{fresh_topic}-out"
    keep(client, output, fresh_topic)
    pipeline = made(sink=Sink(topic=output), every_ms=0)
    assert go(spark_session, replace(pipeline, every_ms=None)).rows == 0
    stop = Stop()

    class Stopping(Silent):
        def event(self, event: str, text: str, **more: object) -> None:
            super().event(event, text)
            if event == "started":
                stop.want()

    reporter = Stopping()
    run(pipeline, spark=spark_session, reporter=reporter, stop=stop, metrics_port=0)
    assert reporter.said == ["starting", "started", "stopping", "ended"]
    assert missing_topics(pipeline) == []
    found = missing_topics(replace(pipeline, sink=Sink(topic=f"{output}-2")))
    assert [problem.path for problem in found] == ["sink.topic"]
    assert output.rpartition("/")[2] in found[0].text


def test_a_file_runs_as_it_is_written(spark_session, client, standalone, fresh_topic, tmp_path):
    output = f"{fresh_topic}-out"
    keep(client, output)
    text = f"""
pipeline: copied
cluster: {{service_url: "{standalone.service_url}"}}
sources:
  - topic: {fresh_topic}
sink: {{topic: {output}}}
trigger: available
guarantee: at-least-once
"""
    content = [(f"m{n}".encode(), {"partition_key": "k", "event_timestamp": START_MS}) for n in range(5)]
    send(client, fresh_topic, content)
    pipeline = parse_pipeline(read_document(text), base=str(tmp_path))
    assert go(spark_session, pipeline).rows == 5
    assert start(spark_session, pipeline).awaitTermination(60)
    assert sorted(m.data() for m in read_all(client, output)) == sorted(c for c, _ in content)
    assert (tmp_path / "checkpoints" / "copied" / "geminga" / "pipeline.json").is_file()
