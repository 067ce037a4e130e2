"""The other ends: what asks brokers, clusters, buckets and filters leaves nothing when it is broken off."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Coroutine, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType
from tools.zookeeper_server import ZooKeeperServer

import geminga
import geminga.admin.blocking
from geminga.admin._http import HttpCaller
from geminga.admin.errors import AdminError
from geminga.broker.geo.clusters import ClusterBytes, OutgoingBytes
from geminga.broker.geo.remote_cluster import RemoteCluster
from geminga.broker.peers.http_client import PeerHttp
from geminga.broker.peers.links import PLAIN
from geminga.client import blocking
from geminga.lake.bucket_store import BucketStore
from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import real_runtime
from geminga.spark.datasource import PulsarDataSource
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import until
from support.house.weekly_sample import sampled
from support.processes.dropped_connections import (
    COUNTS,
    LOOPS_IN_TURN,
    Drop,
    OnThread,
    assert_nothing_left,
    descriptors,
    half_answering,
    no_fatal,
    on_thread,
    some_turns,
    until_quiet,
)
from support.processes.raw_protocol import RawConnection, flow_frame, shared_frame
from support.processes.s3_server import S3Server
from support.worlds.other_cluster import as_copy

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/other-end"


@pytest.fixture(autouse=True)
def without_a_log() -> Iterator[None]:
    """What pytest keeps of it is no leftover."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(params=LOOPS_IN_TURN)
def served(request: pytest.FixtureRequest) -> Iterator[OnThread]:
    made = on_thread(request.param)
    yield made
    made.close()


FILTER = """
from geminga.entry_filters import ACCEPT, REJECT

def every_other(entry):
    return REJECT if entry.properties.get("n") == "1" else ACCEPT
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[geminga.Standalone]:
    directory = tmp_path_factory.mktemp("filters")
    (directory / "mine.py").write_text(FILTER)
    settings = {
        "entryFiltersDirectory": str(directory),
        "allowOverrideEntryFilters": "true",
        "gemingaEntryFilterProcesses": "1",
    }
    with geminga.Standalone(config=settings) as running:
        yield running


def begun(served: OnThread, work: Coroutine[object, object, object]) -> Drop:
    """Begins it there, and cuts it off."""

    async def begin() -> asyncio.Task[object]:
        task = asyncio.get_running_loop().create_task(work)
        await some_turns()
        return task

    async def cut_off(task: asyncio.Task[object]) -> None:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    task = served.call(begin())
    return lambda: served.call(cut_off(task))


# ---- other brokers

ANSWERS = {
    "nothing": b"",
    "half the headers": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + b"x" * 10_000,
    "no answer": b"\x01\x02\x03\r\n\r\n",
}


@pytest.mark.parametrize("answer", sampled("dropped answers", ANSWERS.values(), 1, ids=[*ANSWERS]))
@pytest.mark.parametrize("count", COUNTS)
def test_of_calls_of_other_brokers(served: OnThread, answer: bytes, count: int) -> None:
    listener = served.call(half_answering(answer))

    async def make() -> PeerHttp:
        return PeerHttp(real_runtime(no_fatal))

    http = served.call(make())

    def half_use() -> Drop:
        return begun(served, http.request("GET", f"http://127.0.0.1:{listener.port}/admin/v2/clusters"))

    assert_nothing_left(half_use, lambda: served.call(some_turns()), count)
    served.call(listener.close())


# ---- other clusters


def remote(broker_url: str, web_url: str) -> RemoteCluster:
    document = {"brokerServiceUrl": broker_url, "serviceUrl": web_url}
    return RemoteCluster(real_runtime(no_fatal), "west", document, PLAIN, "east", ClusterBytes(OutgoingBytes()))


@pytest.mark.parametrize("count", [pytest.param(200, id="some"), COUNTS[1]])
def test_of_links_to_other_clusters(served: OnThread, broker: geminga.Standalone, count: int) -> None:
    """With an entry on its way that nobody waits for."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    # Who copies to a topic is one at a time; and nothing is stored, which would count.
    topics = itertools.cycle([TopicName.parse(f"non-{TOPIC}-{number}") for number in range(20)])

    async def make() -> RemoteCluster:
        return remote(broker.service_url, broker.web_service_url)

    cluster = served.call(make())

    def half_use() -> Drop:
        link = served.call(cluster.open(next(topics), 0))

        async def send() -> None:
            link.send(as_copy(metadata, b"x" * 100), Position(1, 1), lambda _, __: None)

        served.call(send())
        return lambda: served.call(link.close())

    def settle() -> None:
        until_quiet(served.call)
        until_quiet(broker._call)

    assert_nothing_left(half_use, settle, count, warm=40)
    served.call(cluster.close())


@pytest.mark.parametrize("count", COUNTS)
def test_of_clusters_that_answer_half(served: OnThread, count: int) -> None:
    listener = served.call(half_answering(ANSWERS["half a body"]))
    url = f"//127.0.0.1:{listener.port}"

    async def make() -> RemoteCluster:
        return remote(f"pulsar:{url}", f"http:{url}")

    def half_use() -> Drop:
        cluster = served.call(make())
        drop = begun(served, cluster.open(TopicName.parse(TOPIC), 0))

        def all_of_it() -> None:
            drop()
            served.call(cluster.close())

        return all_of_it

    assert_nothing_left(half_use, lambda: served.call(some_turns()), count)
    served.call(listener.close())


# ---- ZooKeeper, with which a process has one session at a time


def passed_over(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()


def test_of_sessions_with_zookeeper(served: OnThread, zookeeper: ZooKeeperServer) -> None:
    """With watches, and requests that nobody waits for. kazoo's objects know one another: the collector has them."""
    address = parse_zookeeper_address(f"zk:{zookeeper.hosts}/dropped")

    async def half_use() -> None:
        store = await ZooKeeperMetadataStore.open(real_runtime(no_fatal), address)
        for number in range(5):
            store.watch_node(f"/{number}", lambda _: None)
            store.watch_children(f"/{number}", lambda _: None)
            asyncio.get_running_loop().create_task(store.exists(f"/{number}")).add_done_callback(passed_over)
        await store.close()

    served.call(half_use())
    threads, files = threading.active_count(), descriptors()
    for _ in range(20):
        served.call(half_use())
    until(lambda: threading.active_count() <= threads and descriptors() <= files, "all threads and files are gone")


def test_of_sessions_that_nobody_answers(served: OnThread) -> None:
    """Whoever opens one is cut off before it is there."""
    listener = served.call(half_answering(b""))
    address = parse_zookeeper_address(f"zk:127.0.0.1:{listener.port}")

    async def open_one() -> ZooKeeperMetadataStore:
        return await ZooKeeperMetadataStore.open(real_runtime(no_fatal), address, session_timeout_ms=1000)

    async def connect_once() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.close()
        await writer.wait_closed()

    # With its first connection uvloop opens a file for as long as the loop lives.
    served.call(connect_once())
    threads, files = threading.active_count(), descriptors()
    for drop in [begun(served, open_one()) for _ in range(5)]:
        drop()
    until(lambda: threading.active_count() <= threads and descriptors() <= files, "all threads and files are gone")
    served.call(listener.close())


# ---- a lake's bucket


@pytest.mark.parametrize("count", COUNTS)
def test_of_a_lakes_bucket(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Files that are read by half, and those whose writing is broken off."""
    for name, value in {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    class BrokenOffError(Exception):
        pass

    with S3Server() as s3:
        store = BucketStore("lake", "files", endpoint=s3.endpoint)
        store.write_bytes("one", os.urandom(100_000))

        def half_use() -> Drop:
            file = store.read("one")
            file.read(1000)
            with contextlib.suppress(BrokenOffError), store.write("two") as output:
                output.write(b"x" * 1000)
                raise BrokenOffError
            return file.close

        assert_nothing_left(half_use, s3.calls.clear, count)
        assert pa.total_allocated_bytes() < 8 << 20


# ---- entry filters


@pytest.mark.parametrize("count", COUNTS)
def test_of_consumers_behind_entry_filters(broker: geminga.Standalone, count: int) -> None:
    topic = f"{TOPIC}-filtered"
    with blocking.connect(broker.service_url) as client, client.create_producer(topic) as producer:
        client.subscribe(topic, "s").close()
        for number in range(4):
            producer.send(b"m", properties={"n": str(number)})
    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        admin.topic_policies.entry_filters.set(topic, {"entryFilterNames": "mine:every_other"})

    def half_use() -> Drop:
        raw = RawConnection(broker.broker_port)
        raw.send(shared_frame(topic))
        raw.expect(pb.BaseCommand.SUCCESS)
        raw.send(flow_frame(100))
        return raw.close

    assert_nothing_left(half_use, lambda: until_quiet(broker._call), count)


# ---- the administration's client


@pytest.mark.parametrize("answer", sampled("dropped answers to calls", ANSWERS.values(), 1, ids=[*ANSWERS]))
@pytest.mark.parametrize("count", COUNTS)
def test_of_the_administrations_client(answer: bytes, count: int) -> None:
    served = on_thread("asyncio")
    listener = served.call(half_answering(answer, ends=True))
    caller = HttpCaller(f"http://127.0.0.1:{listener.port}")

    def half_use() -> Drop:
        with pytest.raises(AdminError):
            caller.request("GET", "/admin/v2/clusters")
        return lambda: None

    assert_nothing_left(half_use, lambda: served.call(some_turns()), count)
    caller.close()
    served.call(listener.close())
    served.close()


# ---- Spark's tasks

COLUMNS = StructType([StructField("value", BinaryType())])


class TaskFailedError(Exception):
    """Of the task's own work."""


def source(broker: geminga.Standalone, topic: str) -> PulsarDataSource:
    return PulsarDataSource({"service.url": broker.service_url, "topic": topic})


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", sampled("dropped tasks", ["reads half", "writes half"], 1))
def test_of_spark_tasks(broker: geminga.Standalone, kind: str, count: int) -> None:
    """Tasks of one process, which end in the middle."""
    topic = f"{TOPIC}-tasks-{kind[0]}"
    schema = to_arrow_schema(COLUMNS)
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"] * 8, pa.binary())], schema=schema)
    # An entry that is larger than ``recent_candidates`` remembers.
    large = pa.RecordBatch.from_arrays([pa.array([os.urandom(70_000)], pa.binary())], schema=schema)
    writer = source(broker, topic).writer(COLUMNS, overwrite=False)
    writer.write(iter([large]))
    reader = source(broker, topic).reader(source(broker, topic).schema())
    parts = reader.partitions()

    def broken_off() -> Iterator[pa.RecordBatch]:
        yield rows
        raise TaskFailedError

    def reads_half() -> Drop:
        found = reader.read(parts[0])
        next(iter(found))
        return found.close

    def writes_half() -> Drop:
        with contextlib.suppress(TaskFailedError):
            writer.write(broken_off())
        return lambda: None

    half_use = {"reads half": reads_half, "writes half": writes_half}[kind]
    assert_nothing_left(half_use, lambda: until_quiet(broker._call), count)
