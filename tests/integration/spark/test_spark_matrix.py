"""Rows of the failure matrix (docs/spark-faults.md) that need a second driver, or a broker that goes away.

With Spark itself and a broker of its own for each; what needs neither is in ``test_spark_exactly_once_queries.py``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from tools.standalone_process import StandaloneProcess

import geminga
from geminga.client.blocking import connect
from geminga.spark.sink import crash_points
from support.connector.faulty_sink import FAULT, FaultyPulsar, has_happened, let_go, plan
from support.connector.sink_cases import stored
from support.connector.spark_crash import job
from support.house.waiting import until
from support.processes.official import quiet_client
from support.worlds.rest import Rest

SOURCE, OUTPUT = (f"persistent://public/default/matrix-{name}" for name in ("source", "output"))
ROWS = 60
BATCH_ROWS = 40
TASKS = 2
LIMIT_S = 400
EACH_ONCE = list(range(ROWS))


@pytest.fixture(scope="module")
def faulty(spark_session: SparkSession) -> SparkSession:
    """The session, which knows ``pulsar-faulty`` too."""
    spark_session.dataSource.register(FaultyPulsar)
    return spark_session


@pytest.fixture
def broker(tmp_path) -> Iterator[StandaloneProcess]:
    """A broker that may be killed."""
    settings = {"brokerDeduplicationEnabled": "true"}
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings) as one:
        yield one


def fill(broker: StandaloneProcess) -> None:
    """Rows in the source, and what holds both topics over a restart of the broker."""
    broker.request("PUT", f"/admin/v2/{SOURCE.replace('://', '/')}/partitions", TASKS)
    with connect(broker.service_url) as client:
        for topic in (SOURCE, OUTPUT):
            client.subscribe(topic, "keep").close()
        with client.create_producer(SOURCE) as producer:
            for number in range(ROWS):
                producer.send_nowait(str(number).encode(), partition_key=f"k{number % 10}")
            producer.flush()


def started(spark: SparkSession, broker: StandaloneProcess, checkpoint: Path, **options: str) -> StreamingQuery:
    """A copy from topic to topic; with the faulty sink if a fault is planned."""
    reading = {"service.url": broker.service_url, "topics": SOURCE, "startingOffsets": "earliest"}
    stream = spark.readStream.format("pulsar").options(**reading, maxMessagesPerTrigger=str(BATCH_ROWS)).load()
    rows = stream.select("value", f.col("__key").cast("string").alias("__key"), "__eventTime")
    writing = rows.writeStream.format("pulsar-faulty" if FAULT in options else "pulsar").trigger(availableNow=True)
    given = {"service.url": broker.service_url, "topic": OUTPUT, **options}
    return writing.options(**given).option("checkpointLocation", str(checkpoint)).start()


def ended(query: StreamingQuery) -> str:
    """What a query that comes to its end says; empty: no error."""
    try:
        assert query.awaitTermination(LIMIT_S)
    except StreamingQueryException as error:
        return str(error)
    finally:
        query.stop()
    return ""


def values(broker: StandaloneProcess, directory: Path, count: int = ROWS) -> list[int]:
    client = quiet_client(broker.service_url, directory)
    try:
        return sorted(int(message.data()) for message in stored(client, OUTPUT, count))
    finally:
        client.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("label", [crash_points.TXN_WRITTEN, crash_points.CLAIMED, crash_points.DECIDED])
def test_two_drivers_on_one_checkpoint(faulty, broker, tmp_path, label) -> None:
    """One is held in the middle of its batch while another one, a process of its own, does all of the work."""
    fill(broker)
    path, checkpoint = tmp_path / "fault", tmp_path / "checkpoint"
    first = started(faulty, broker, checkpoint, **{FAULT: plan(path, label, "hold")})
    until(lambda: has_happened(path) or first.exception(), f"the first driver is held at {label}", limit_s=LIMIT_S)
    assert has_happened(path), first.exception()
    given = ("stateless", broker.service_url, (SOURCE,), OUTPUT, tmp_path)
    with job(*given, per_trigger=BATCH_ROWS, guarantee="exactly-once") as second:
        second.start()
        assert second.wait(LIMIT_S) == 0, second.log_tail()
        let_go(path)
        said = ended(first)
    # Where it had decided, the other one has carried its decision through.
    expected = {
        crash_points.TXN_WRITTEN: "batch 1 is committed already",
        crash_points.CLAIMED: "another driver commits for this sink now",
    }
    assert expected.get(label, "") in said
    assert values(broker, tmp_path) == EACH_ONCE


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_deduplicated", [True, False])
def test_broker_that_is_killed_in_the_middle_of_a_write(faulty, tmp_path, is_deduplicated) -> None:
    settings = {"brokerDeduplicationEnabled": str(is_deduplicated).lower()}
    rows = 60_000
    columns = ["cast(concat(cast(id as string), repeat(' ', 1000)) as binary) as value"]
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings) as broker:
        with connect(broker.service_url) as client:
            client.subscribe(OUTPUT, "keep").close()
        stats = f"/admin/v2/{OUTPUT.replace('://', '/')}/stats"
        given = {"service.url": broker.service_url, "topic": OUTPUT, "txnAppId": "matrix", "txnVersion": "1"}

        def write() -> None:
            frame = faulty.range(0, rows, numPartitions=TASKS).selectExpr(*columns)
            frame.write.format("pulsar").mode("append").options(**given).save()

        def kill_and_start() -> None:
            until(lambda: json.loads(broker.request("GET", stats))["msgInCounter"], "rows come", limit_s=LIMIT_S)
            broker.kill()
            broker.start()

        thread = Thread(target=kill_and_start)
        thread.start()
        try:
            write()
        except PySparkException as error:
            assert not is_deduplicated, error
            assert "could be there twice, so this attempt is given up" in str(error)
        finally:
            thread.join()
        write()
        assert values(broker, tmp_path, rows) == list(range(rows))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_outage_longer_than_transactions_live_after_the_decision(faulty, broker, tmp_path) -> None:
    fill(broker)
    timeout_ms = 40_000
    path, checkpoint = tmp_path / "fault", tmp_path / "checkpoint"
    short = {"txnTimeoutMs": str(timeout_ms)}
    query = started(faulty, broker, checkpoint, **short, **{FAULT: plan(path, crash_points.DECIDED, "hold")})
    until(lambda: has_happened(path) or query.exception(), "the driver has decided", limit_s=LIMIT_S)
    assert has_happened(path), query.exception()
    decided_at = time.monotonic()
    broker.kill()
    until(lambda: time.monotonic() > decided_at + timeout_ms / 1000, "nobody is there for so long", limit_s=LIMIT_S)
    broker.start()
    slow = "/admin/v3/transactions/slowTransactions/0"
    until(lambda: json.loads(broker.request("GET", slow)) == {}, "the transactions have timed out", limit_s=LIMIT_S)
    let_go(path)
    said = ended(query)
    assert "was decided, and its transactions could not all be committed in their time" in said
    assert "None of its rows is in a topic: start the query again" in said
    assert values(broker, tmp_path, 0) == []
    assert ended(started(faulty, broker, checkpoint, **short)) == ""
    assert values(broker, tmp_path) == EACH_ONCE


LEDGER_ENTRIES = 20


@pytest.mark.parametrize("subscription", ["", pytest.param("mine", marks=pytest.mark.long)])
def test_source_trimmed_between_planning_and_reading(spark_session, tmp_path, subscription) -> None:
    config = {"managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
    topic = "persistent://public/default/trimmed"
    with geminga.Standalone(config=config) as broker, connect(broker.service_url) as client:
        client.create_producer(topic).close()
        reading = {"service.url": broker.service_url, "topic": topic, "startingOffsets": "earliest", "longPollMs": "20"}
        if subscription:
            reading["subscription"] = subscription
            client.subscribe(topic, subscription, initial_position=geminga.client.InitialPosition.Earliest).close()
        with client.create_producer(topic, batching_enabled=False) as producer:
            for number in range(LEDGER_ENTRIES - 1):
                producer.send(str(number).encode())

        def trim_and_write(frame: DataFrame, batch_id: int) -> None:
            """The batch is planned; now its ledger closes and goes, if nothing holds it."""
            with client.create_producer(topic, batching_enabled=False) as producer:
                for number in range(2 * LEDGER_ENTRIES):
                    producer.send(f"later {number}".encode())
            broker._call(broker._broker().topics[topic].ledger.trimmer.trim())
            rows = frame.selectExpr("cast(value as string) as value").collect()
            (tmp_path / str(batch_id)).write_text("\n".join(row.value for row in rows), encoding="utf-8")

        stream = spark_session.readStream.format("pulsar").options(**reading).load()
        writing = stream.writeStream.foreachBatch(trim_and_write).trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        said = ended(query)
        if not subscription:
            assert "are gone" in said
            assert not (tmp_path / "0").exists()
            return
        assert said == ""
        found = (tmp_path / "0").read_text(encoding="utf-8").splitlines()
        assert found == [str(number) for number in range(LEDGER_ENTRIES - 1)]
        names = f"persistent/{topic.removeprefix('persistent://')}/subscriptions"
        assert subscription in Rest(broker.web_service_url).get(names).json
