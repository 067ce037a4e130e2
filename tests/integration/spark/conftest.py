"""One Spark session for every test that needs a JVM: it takes 10 seconds to start.

For those that need none: a broker of the file's own, a client, a topic for each test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tools import spark_classes
from tools.process_tree import children_of, command_of, wait_gone

import geminga
from geminga.client.blocking import Client, connect
from geminga.spark import session
from geminga.spark.process import clients
from geminga.spark.process.home import make_home
from support.connector.rolled_topics import LEDGER_ENTRIES

ROOT = Path(__file__).parents[3]
INSTALLED = Path(pyspark.__file__).parent
TEST_PATHS = (str(ROOT), str(ROOT / "tests"))
#: The JVM and its workers have them from the environment that they were started with.
BUCKET_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}

_numbers = count(1)


@pytest.fixture(scope="session", autouse=True)
def _bucket_keys() -> None:
    """For tests that run before the JVM is there, too."""
    os.environ.update(BUCKET_KEYS)


@pytest.fixture(scope="session", autouse=True)
def _compiled_workers() -> None:
    """For the session, and for drivers that are processes of their own: workers and JVMs that start quickly."""
    if "SPARK_HOME" not in os.environ:
        make_home(spark_classes.HOME, INSTALLED)
        os.environ.update(spark_classes.environment())


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory) -> Iterator[SparkSession]:
    """``local[2]``; stopped with everything it started when the tests are over."""
    directory = tmp_path_factory.mktemp("spark")
    # Python workers import what tests hand to Spark.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*TEST_PATHS, os.environ.get("PYTHONPATH", ""))))
    before = children_of([os.getpid()])
    spark = session(
        "tests",
        master="local[2]",
        settings={
            **spark_classes.SMALL,
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    # Brokers and ZooKeepers of other session fixtures, which end after this one, are not waited for.
    started = {pid for pid in children_of([os.getpid()]) - before if is_spark(command_of(pid))}
    for query in spark.streams.active:
        query.stop()
    spark.stop()
    stop_jvm()
    left = {pid: command_of(pid) for pid in wait_gone(started, 20.0)}
    assert not left, left


@pytest.fixture(scope="module", autouse=True)
def _no_client_outlives_its_module() -> Iterator[None]:
    """What this process kept as a worker or driver of Spark keeps it, which would try to connect for ever after."""
    yield
    while clients._sessions:
        clients._sessions.popitem()[1].blocking.close()


def is_spark(command: str) -> bool:
    """Whether a command is that of a JVM of Spark or of one of its Python workers."""
    return "pyspark" in command or "org.apache.spark" in command


def stop_jvm() -> None:
    """End the JVM that ``spark.stop()`` leaves for the next session of this process."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(20)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def dedup_namespace(standalone) -> str:
    """A namespace whose topics are deduplicated."""
    standalone.request("PUT", "/admin/v2/namespaces/public/dedup")
    standalone.request("POST", "/admin/v2/namespaces/public/dedup/deduplication", True)
    return "public/dedup"


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    """Its ledgers roll over after a few entries."""
    config = {"managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
    with geminga.Standalone(config=config) as one:
        yield one


@pytest.fixture(scope="module")
def client(broker) -> Iterator[Client]:
    with connect(broker.service_url) as one:
        yield one


@pytest.fixture
def topic(request) -> str:
    return f"persistent://public/default/{request.module.__name__.rpartition('.')[2]}-{next(_numbers)}"


@pytest.fixture
def options(broker, topic) -> dict[str, str]:
    """Of a source that reads the topic from its beginning."""
    return {"service.url": broker.service_url, "topic": topic, "startingOffsets": "earliest", "longPollMs": "20"}
