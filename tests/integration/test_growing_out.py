"""A standalone with everything in it becomes a cluster: ZooKeeper, its bookie, a broker; nothing of it is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String
from tools.chaos.cluster import BookieProcess, BrokerProcess
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import ZooKeeperServer

from geminga.app.servers.embedded import Standalone
from geminga.client import MessageId, blocking
from geminga.metadata import SqliteMetadataStore
from geminga.metadata.core.copying import SourceNode
from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.errors import DataDirectoryError
from geminga.model.txn_id import TxnId
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime
from support.house.source_tree import ROOT
from support.processes.official import quiet_client
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

ORDERS = "persistent://public/default/orders"
SESSION_MS = 4000
SETTINGS = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMaxEntriesPerLedger": 40,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}


class Order(Record):
    name = String()


def copy_command(directory: Path, target: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "geminga", "metadata", "copy", str(directory), target, *more]


def copy(directory: Path, target: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = copy_command(directory, target, *more)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


def copied(directory: Path, target: str) -> dict[str, Any]:
    done = copy(directory, target, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def target(zookeeper: ZooKeeperServer, tmp_path: Path) -> str:
    return f"zk:{zookeeper.hosts}/grown/{tmp_path.name}"


@pytest.fixture
def standalone_of_before(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "standalone.log", settings=SETTINGS) as process:
        yield process


def cursors(rest: Rest) -> dict[str, tuple[str, str]]:
    found = rest.get("persistent/public/default/orders/internalStats").json["cursors"]
    return {
        name: (found[name]["markDeletePosition"], found[name]["individuallyDeletedMessages"])
        for name in ("holes", "front")
    }


def policies(rest: Rest) -> list[Any]:
    paths = (
        "namespaces/public/default",
        "persistent/public/default/orders/maxConsumers",
        "schemas/public/default/typed/schema",
    )
    return [rest.get(path).json for path in paths]


def test_a_standalone_becomes_a_cluster_and_nothing_of_it_is_lost(
    standalone_of_before: StandaloneProcess, target: str, tmp_path: Path
) -> None:
    standalone, rest = standalone_of_before, Rest(standalone_of_before.web_url)
    assert rest.post("namespaces/public/default/deduplication", True).status < 300
    assert (
        rest.post("namespaces/public/default/retention", {"retentionTimeInMinutes": 77, "retentionSizeInMB": -1}).status
        < 300
    )
    client = quiet_client(standalone.service_url, tmp_path)
    holes = client.subscribe(
        ORDERS, "holes", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    client.subscribe(ORDERS, "front", initial_position=pulsar.InitialPosition.Earliest).close()
    producer = client.create_producer(ORDERS, producer_name="p", initial_sequence_id=0)
    sent = [b"%d" % i for i in range(100)]
    ids = [producer.send(payload) for payload in sent]
    assert len({message_id.ledger_id() for message_id in ids}) > 2
    for i in range(100):
        message = holes.receive(10_000)
        if i % 3 == 0:
            holes.acknowledge(message)
    holes.close()
    typed = client.create_producer("persistent://public/default/typed", schema=JsonSchema(Order))
    typed.send(Order(name="a"))
    assert rest.post("persistent/public/default/orders/maxConsumers", 7).status < 300
    client.close()
    with blocking.connect(standalone.service_url) as other:
        txn = other.transaction(timeout=3600)
        other.create_producer("in-txn").send(b"unfinished", txn=txn)
        txn_id = txn.detach()
    before = cursors(rest), policies(rest)
    assert "," in before[0]["holes"][1], "no holes"

    assert standalone.stop() == 0
    report = copied(standalone.data, target)
    assert report["nextLedgerId"] > max(message_id.ledger_id() for message_id in ids)
    bookie = BookieProcess(standalone.data, log=tmp_path / "bookie.log", settings={"zkTimeout": SESSION_MS})
    bookie.zookeeper = target
    # One that is new: a cluster's broker keeps two copies unless told.
    joined = BookieProcess(tmp_path / "joined", log=tmp_path / "joined.log", settings={"zkTimeout": SESSION_MS})
    joined.zookeeper = target
    broker = BrokerProcess(
        tmp_path,
        log=tmp_path / "broker.log",
        settings={"metadataStoreSessionTimeoutMillis": SESSION_MS, **SETTINGS},
        broker_port=standalone.broker_port,
        web_port=standalone.web_port,
    )
    broker.zookeeper = target
    try:
        for process in (bookie, joined, broker):
            process.launch()
        for process in (bookie, joined):
            process.wait_ready(60)
        assert bookie.ready["bookieId"] == "127.0.0.1:3181"
        assert bookie.port != 3181
        broker.wait_ready(60)
        check_cluster(broker, tmp_path, sent, ids, before)
        check_transaction(broker, txn_id)
        # A second start of its bookie is as any.
        bookie.kill()
        bookie.start()
    finally:
        for process in (broker, bookie, joined):
            process.kill()


def check_cluster(broker: BrokerProcess, tmp_path: Path, sent: list[bytes], ids: list[Any], before: Any) -> None:
    rest = Rest(broker.web_url)
    client = quiet_client(broker.service_url, tmp_path)
    reader = client.create_reader(ORDERS, pulsar.MessageId.earliest)
    assert [reader.read_next(10_000).data() for _ in sent] == sent
    assert not reader.has_message_available()
    reader.close()
    assert (cursors(rest), policies(rest)) == before
    # What is new, and what is sent again.
    producer = client.create_producer(ORDERS, producer_name="p", initial_sequence_id=-1)
    assert producer.last_sequence_id() == 99
    producer.send(b"again", sequence_id=99)
    new = producer.send(b"new")
    assert new.ledger_id() > max(message_id.ledger_id() for message_id in ids)
    holes = client.subscribe(ORDERS, "holes", pulsar.ConsumerType.Shared)
    waiting = [holes.receive(10_000).data() for _ in range(67)]
    assert sorted(waiting) == sorted([payload for i, payload in enumerate(sent) if i % 3] + [b"new"])
    front = client.subscribe(ORDERS, "front")
    assert [front.receive(10_000).data() for _ in range(101)] == [*sent, b"new"]
    typed = client.subscribe(
        "persistent://public/default/typed",
        "s",
        schema=JsonSchema(Order),
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert typed.receive(10_000).value().name == "a"
    client.close()


def check_transaction(broker: BrokerProcess, txn_id: TxnId) -> None:
    """It is open still, hides what it published, and ends as any."""
    with blocking.connect(broker.service_url) as client:
        with client.create_producer("in-txn") as producer:
            producer.send(b"behind")
        with client.create_reader("in-txn", MessageId.earliest) as reader:
            assert not reader.has_message_available()
        client.end_transaction(txn_id, commit=True)
        with client.create_reader("in-txn", MessageId.earliest) as reader:
            assert [reader.read_next(20_000).data() for _ in range(2)] == [b"unfinished", b"behind"]


@pytest.mark.long
def test_a_standalone_of_several_bookies_becomes_a_process_for_each(target: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    sent = [b"%d" % i for i in range(50)]
    with Standalone(data, bookies=2) as broker:
        client = quiet_client(broker.service_url, tmp_path)
        producer = client.create_producer(ORDERS)
        for payload in sent:
            producer.send(payload)
        client.close()
    copied(data, target)
    whole = BookieProcess(data, log=tmp_path / "whole.log")
    whole.zookeeper = target
    whole.launch()
    assert whole.process is not None
    assert whole.process.wait(60) == 1
    assert "is of a standalone with 2 bookies: start a process for each of them" in whole.log_tail()
    bookies = [BookieProcess(data / name, log=tmp_path / f"{name}.log") for name in ("bookie", "bookie-2")]
    # The directory of one is not that of the other.
    stranger = BookieProcess(data / "bookie", log=tmp_path / "stranger.log", settings={"bookieId": "127.0.0.1:3182"})
    settings = {"metadataStoreSessionTimeoutMillis": SESSION_MS}
    cluster = BrokerProcess(tmp_path, log=tmp_path / "broker.log", settings=settings)
    for process in (*bookies, stranger, cluster):
        process.zookeeper = target
    stranger.launch()
    assert stranger.process is not None
    assert stranger.process.wait(60) == 1
    assert "bookie 127.0.0.1:3182 was that of a standalone, whose files are those of" in stranger.log_tail()
    try:
        for process in (*bookies, cluster):
            process.launch()
        for process in (*bookies, cluster):
            process.wait_ready(60)
        assert [bookie.ready["bookieId"] for bookie in bookies] == ["127.0.0.1:3181", "127.0.0.1:3182"]
        client = quiet_client(cluster.service_url, tmp_path)
        client.create_producer(ORDERS).send(b"new")
        reader = client.create_reader(ORDERS, pulsar.MessageId.earliest)
        assert [reader.read_next(10_000).data() for _ in range(51)] == [*sent, b"new"]
        client.close()
    finally:
        for process in (cluster, *bookies):
            process.kill()


# ---- copies that are cut off

FILLERS = 4000


async def change(directory: Path, changes: dict[str, bytes | None]) -> None:
    """As a standalone would, which may start as long as no copy of its directory is whole."""
    runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
    store = await SqliteMetadataStore.open(runtime, str(directory / "metadata.sqlite"))
    puts = (store.put(path, value, expected_version=None) for path, value in changes.items() if value is not None)
    await asyncio.gather(*puts)
    for path in [path for path, value in changes.items() if value is None]:
        await store.delete(path)
    await store.close()
    await close_runtime(runtime)


async def trees(directory: Path, target: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """All paths and values of the directory, and of the ZooKeeper."""
    runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
    source = await SqliteMetadataStore.open(runtime, str(directory / "metadata.sqlite"))
    there = await ZooKeeperMetadataStore.open(runtime, parse_zookeeper_address(target))
    nodes: list[SourceNode] = []
    while found := await source.nodes_after(nodes[-1].path if nodes else "", 1000):
        nodes += found
    values = {}

    async def read(path: str) -> None:
        node = await there.get(path)
        assert node is not None
        values[path] = node.value
        await asyncio.gather(*(read(f"{path.rstrip('/')}/{name}") for name in await there.children(path)))

    await read("/")
    await there.close()
    await source.close()
    await close_runtime(runtime)
    return {node.path: node.value for node in nodes}, values


def test_copy_that_is_killed_goes_on_and_takes_what_changed_meanwhile(target: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Standalone(data) as broker:
        broker.create_namespace("public/early")
    fillers = {f"/filler/{i // 100}/{i}": b"%d" % i * 50 for i in range(FILLERS)}
    asyncio.run(change(data, {**fillers, "/gone/a": b"x", "/counters/n": b""}))
    with subprocess.Popen(copy_command(data, target), stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.kill()
    assert line.startswith("copied "), line
    # Nothing starts on a part of it.
    bookie = BookieProcess(tmp_path / "other", log=tmp_path / "bookie.log")
    bookie.zookeeper = target
    bookie.launch()
    assert bookie.process is not None
    assert bookie.process.wait(60) == 1
    assert "holds an unfinished copy of the metadata" in bookie.log_tail()
    # The directory is a standalone's until the copy is whole.
    with Standalone(data) as broker:
        broker.create_namespace("public/late")
    asyncio.run(change(data, {"/filler/0/0": b"changed", "/filler/0/1": None, "/gone/a": None, "/gone": None}))
    report = copied(data, target)
    assert (report["wasResumed"], report["wasDone"]) == (True, False)
    source, there = asyncio.run(trees(data, target))
    assert source == {path: value for path, value in there.items() if path in source}
    assert set(there) - set(source) <= {"/geminga", "/ledgers/INSTANCEID"}
    assert report["nodes"] == len(source)
    assert copied(data, target)["wasDone"]
    with pytest.raises(DataDirectoryError, match="was moved to a cluster"):
        Standalone(data).start()
    refused = copy(data, f"{target}-2")
    assert refused.returncode == 1
    assert "was moved already" in refused.stderr
