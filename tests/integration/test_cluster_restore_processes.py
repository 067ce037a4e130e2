"""A cluster's backup is restored to another one by a command that is killed on the way; both sides hold the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tools.chaos.cluster import BookieProcess, BrokerProcess
from tools.zookeeper_server import ZooKeeperServer

from geminga.client import ConsumerType, blocking
from geminga.client.schema import JsonSchema, Record, String
from support.house.source_tree import ROOT
from support.worlds.rest import Rest

pytestmark = [pytest.mark.integration, pytest.mark.long]

SESSION_MS = 4000
PLAIN = "persistent://public/default/plain"
PARTED = "persistent://public/default/parted"
TYPED = "persistent://public/default/typed"
TOPICS = (PLAIN, *(f"{PARTED}-partition-{number}" for number in range(3)), TYPED)
MESSAGES = 150
KILLS = 4
BROKER = {
    "metadataStoreSessionTimeoutMillis": SESSION_MS,
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "clusterName": "prod",
}


class Named(Record):
    name = String()


class Clusters:
    """Processes of two clusters on one ZooKeeper, ended with the test."""

    def __init__(self, place: Path, zookeeper: ZooKeeperServer) -> None:
        self.place = place
        self.hosts = zookeeper.hosts
        self.running: list[BookieProcess | BrokerProcess] = []

    def uri(self, name: str) -> str:
        return f"zk:{self.hosts}/{self.place.name}/{name}"

    def bookies(self, name: str, count: int) -> list[BookieProcess]:
        made = []
        for number in range(count):
            data = self.place / name / f"bookie-{number}"
            data.parent.mkdir(exist_ok=True)
            bookie = BookieProcess(data, log=Path(f"{data}.log"), settings={"zkTimeout": SESSION_MS})
            bookie.zookeeper = self.uri(name)
            bookie.launch()
            made.append(bookie)
        self.running += made
        for bookie in made:
            bookie.wait_ready(60)
        return made

    def broker(self, name: str, **more: object) -> BrokerProcess:
        broker = BrokerProcess(
            self.place, log=self.place / f"{name}-broker.log", settings={**BROKER, **more}, broker_port=0, web_port=0
        )
        broker.zookeeper = self.uri(name)
        broker.launch()
        self.running.append(broker)
        return broker

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "geminga", "backup", *words, "--json"]

    def run(self, *words: str, code: int = 0) -> Any:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=110, check=False, cwd=ROOT)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stderr if code else json.loads(done.stdout)

    def close(self) -> None:
        for process in self.running:
            process.kill()


@pytest.fixture
def clusters(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Clusters]:
    made = Clusters(tmp_path, zookeeper)
    try:
        yield made
    finally:
        made.close()


def fill(broker: BrokerProcess) -> None:
    """Topics of each kind, read in part."""
    Rest(broker.web_url).put("persistent/public/default/parted/partitions", 3)
    with blocking.connect(broker.service_url) as client:
        holes = client.subscribe([PLAIN, PARTED], "holes", consumer_type=ConsumerType.Shared, ack_receipt_enabled=True)
        for topic in (PLAIN, PARTED):
            with client.create_producer(topic, batching_enabled=False) as producer:
                for number in range(MESSAGES):
                    producer.send(b"%d" % number + b" " * 2_000, properties={"n": str(number)})
        with client.create_producer(TYPED, schema=JsonSchema(Named)) as producer:
            for number in range(10):
                producer.send(Named(name=f"n{number}"), partition_key=f"k{number % 3}")
        for number in range(2 * MESSAGES):
            message = holes.receive(20_000)
            if number % 3:
                holes.acknowledge(message)


def contents(broker: BrokerProcess) -> dict[str, list[tuple[str, bytes, dict[str, str]]]]:
    """All messages by their ids."""
    found = {}
    with blocking.connect(broker.service_url) as client:
        for topic in TOPICS:
            there = []
            with client.create_reader(topic, blocking.MessageId.earliest) as reader:
                while reader.has_message_available():
                    message = reader.read_next(20_000)
                    there.append((str(message.message_id()), message.data(), dict(message.properties())))
            found[topic] = there
    return found


def cursors(broker: BrokerProcess) -> dict[str, tuple[str, str]]:
    rest = Rest(broker.web_url)
    found = {}
    for topic in TOPICS[:-1]:
        name = topic.removeprefix("persistent://public/default/")
        cursor = rest.get(f"persistent/public/default/{name}/internalStats").json["cursors"]["holes"]
        found[topic] = cursor["markDeletePosition"], cursor["individuallyDeletedMessages"]
    return found


def until_ledgers(client: KazooClient, chroot: str, count: int, program: subprocess.Popen[bytes]) -> None:
    """So many are there, or it has ended; the time limit of the test ends it."""
    while program.poll() is None:
        try:
            if len(client.get_children(f"{chroot}/ledgers/00/0000")) >= count:
                return
        except NoNodeError:
            continue


def refused(process: BrokerProcess) -> str:
    assert process.process is not None
    assert process.process.wait(60) == 1
    return process.log_tail()


def test_killed_restores_end_with_what_the_cluster_had(clusters: Clusters, tmp_path: Path) -> None:
    clusters.bookies("old", 2)
    old = clusters.broker("old")
    old.wait_ready(60)
    fill(old)
    copy = tmp_path / "copy"
    made = clusters.run("create", str(copy), "--metadata", clusters.uri("old"), "--rate-limit", "2000000")
    assert made["lostLedgers"] == []
    expected = contents(old), cursors(old)
    assert clusters.run("restore", str(copy), "--metadata", clusters.uri("old"), code=1).count("is not empty") == 1
    old.kill()

    bookies = clusters.bookies("new", 3)
    target = clusters.uri("new")
    words = ("restore", str(copy), "--metadata", target, "--set", f"zkTimeout={SESSION_MS}")
    client = KazooClient(clusters.hosts)
    client.start()
    try:
        kills(clusters, words, client, bookies)
    finally:
        client.stop()
        client.close()
    done = clusters.run(*words)
    assert (done["wasResumed"], done["clusters"]) == (True, ["prod"])
    assert done["ledgersKept"] > 0
    assert clusters.run(*words)["wasDone"] is True
    new = clusters.broker("new")
    new.wait_ready(60)
    assert contents(new) == expected[0]
    assert cursors(new) == expected[1]
    go_on(new)


def kills(clusters: Clusters, words: Sequence[str], client: KazooClient, bookies: list[BookieProcess]) -> None:
    """Restoring is killed again and again; a bookie, too; no broker starts meanwhile."""
    killed = 0
    for turn in range(KILLS):
        with subprocess.Popen(
            clusters.command(*words, "--rate-limit", "150000"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as program:
            until_ledgers(client, f"/{clusters.place.name}/new", 4 + 5 * turn, program)
            killed += program.poll() is None
            program.kill()
        if turn == 1:
            assert "holds a part of the backup in" in refused(clusters.broker("new"))
            bookies[0].kill()
            bookies[0].start()
    assert killed == KILLS, "one ended before it was killed"


def go_on(broker: BrokerProcess) -> None:
    """Schemas are there, and what is new comes behind what was."""
    with blocking.connect(broker.service_url) as client:
        with client.create_reader(TYPED, blocking.MessageId.earliest, schema=JsonSchema(Named)) as reader:
            assert [reader.read_next(20_000).value().name for _ in range(10)] == [f"n{number}" for number in range(10)]
        with client.create_producer(PLAIN) as producer:
            producer.send(b"new")
        with client.create_reader(PLAIN, blocking.MessageId.earliest) as reader:
            there = [reader.read_next(20_000).data() for _ in range(MESSAGES + 1)]
        assert there[-1] == b"new"
