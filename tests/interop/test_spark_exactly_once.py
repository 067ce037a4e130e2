"""Spark writes exactly once with Apache's broker: a batch with a version, a query, a driver that dies on the way.

With Geminga's broker ``tests/integration/spark/test_spark_exactly_once_queries.py`` has this and more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tools.standalone_process import StandaloneProcess

from geminga.client.blocking import connect
from geminga.spark.sink import crash_points
from integration.spark.conftest import spark_session  # noqa: F401 - a fixture
from support.connector.faulty_sink import FAULT, FaultyPulsar, has_happened, plan
from support.connector.sink_cases import stored
from support.processes.official import quiet_client

#: Before any fixture: a session of Spark takes its time.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not os.environ.get("INTEROP_PULSAR"),
        reason="test_spark_exactly_once_queries.py has it with Geminga's broker",
    ),
]

ROWS = 60
BATCH_ROWS = 25
LIMIT_S = 120


@pytest.fixture(scope="module")
def transacting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Apache's broker with transactions."""
    from tools.interop.apache_standalone import ApacheStandalone

    directory = tmp_path_factory.mktemp("spark-transacting")
    settings = {"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
    process = ApacheStandalone(directory / "data", log=directory / "broker.log", settings=settings)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def spark(spark_session: SparkSession) -> SparkSession:  # noqa: F811
    """The session, active in the thread that asks: else Spark knows no data source of Python's when it writes."""
    spark_session._jvm.SparkSession.setActiveSession(spark_session._jsparkSession)
    spark_session.dataSource.register(FaultyPulsar)
    return spark_session


def values(broker: StandaloneProcess, topic: str, directory: Path, count: int = ROWS) -> list[int]:
    client = quiet_client(broker.service_url, directory)
    try:
        return sorted(int(message.data()) for message in stored(client, topic, count))
    finally:
        client.close()


def test_batch_with_a_version_is_written_once(transacting, spark: SparkSession, fresh_topic, tmp_path) -> None:
    frame = spark.range(ROWS).selectExpr("cast(id as string) as value").repartition(2)
    given = {"service.url": transacting.service_url, "topic": fresh_topic, "txnAppId": "interop"}
    for version in ("1", "1", "1"):
        frame.write.format("pulsar").mode("append").options(**given, txnVersion=version).save()
    assert values(transacting, fresh_topic, tmp_path) == list(range(ROWS))


@pytest.mark.parametrize(
    "label",
    [crash_points.TXN_WRITTEN, crash_points.CLAIMED, crash_points.DECIDED, crash_points.TXN_ENDED],
)
def test_query_that_dies_on_the_way_writes_each_row_once(
    transacting,
    spark: SparkSession,
    fresh_topic,
    tmp_path,
    label: str,
) -> None:
    source = f"{fresh_topic}-source"
    with connect(transacting.service_url) as client:
        client.subscribe(source, "keep").close()
        client.subscribe(fresh_topic, "keep").close()
        with client.create_producer(source) as producer:
            for number in range(ROWS):
                producer.send_nowait(str(number).encode())
            producer.flush()
    reading = {"service.url": transacting.service_url, "topic": source, "startingOffsets": "earliest"}
    stream = spark.readStream.format("pulsar").options(**reading, maxMessagesPerTrigger=str(BATCH_ROWS)).load()

    def run(**more: str) -> None:
        rows = stream.selectExpr("value").repartition(2)
        writing = rows.writeStream.format("pulsar-faulty" if more else "pulsar").trigger(availableNow=True)
        writing = writing.options(**{"service.url": transacting.service_url, "topic": fresh_topic}, **more)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            assert query.awaitTermination(LIMIT_S)
        finally:
            query.stop()

    path = tmp_path / "fault"
    with pytest.raises(StreamingQueryException):
        run(**{FAULT: plan(path, label, "kill")})
    assert has_happened(path)
    run()
    assert values(transacting, fresh_topic, tmp_path) == list(range(ROWS))
