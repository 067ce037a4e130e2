"""Two clusters of processes that share their configuration in one ZooKeeper and have all else apart.

The official client publishes in each and reads in both; what is said of a namespace in one holds in the other; while
the store that they share is away, topics are served, and ledgers begun.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pulsar
import pytest
from tools.chaos.cluster import BookieProcess, BrokerProcess
from tools.free_ports import free_ports
from tools.zookeeper_server import ZooKeeperServer

from support.processes.cluster_brokers import ask, refusal
from support.processes.cutting_proxy import CuttingProxy

pytestmark = pytest.mark.integration

NAMES = ("east", "west")
NAMESPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
SETTINGS = {
    **{f"managedLedgerDefault{name}": 1 for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")},
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "brokerDeduplicationEnabled": True,
}
#: Long: nothing is to wait for its end, and nobody to lose one.
SESSION_MS = 30_000


class Instance:
    """Both clusters; the shared store is reached through a proxy."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, root: str) -> None:
        self.directory = directory
        self.root = f"zk:{zookeeper.hosts}/{root}"
        self.proxy = CuttingProxy(1)
        self.proxy.is_hostile = False
        self.proxy.target = ("127.0.0.1", zookeeper.port)
        self._shared = f"zk:127.0.0.1:{self.proxy.port}/{root}/all"
        self.brokers: dict[str, BrokerProcess] = {}
        self.bookies: list[BookieProcess] = []

    def broker(self, name: str, settings: Mapping[str, object]) -> BrokerProcess:
        """Of a cluster, not started."""
        made = BrokerProcess(self.directory, log=self.directory / f"{name}.log", settings=settings)
        made.zookeeper = f"{self.root}/{name}"
        return made

    def start(self) -> None:
        for name in NAMES:
            bookie = BookieProcess(self.directory / name, log=self.directory / f"{name}-bookie.log", settings={})
            bookie.zookeeper = f"{self.root}/{name}"
            settings = {
                "clusterName": name,
                "configurationMetadataStoreUrl": self._shared,
                "metadataStoreSessionTimeoutMillis": SESSION_MS,
                **SETTINGS,
            }
            broker = self.broker(name, settings)
            broker.broker_port, broker.web_port = free_ports(2)
            command = [sys.executable, "-m", "geminga", "initialize-cluster-metadata", "--json", "-c", name]
            command += ["-md", bookie.zookeeper, "-cms", self._shared]
            command += ["-uw", f"http://127.0.0.1:{broker.web_port}", "-ub", f"pulsar://127.0.0.1:{broker.broker_port}"]
            made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["changed"]
            assert f"/admin/clusters/{name}" in made
            assert "/admin/policies/public/default" in made
            self.bookies.append(bookie)
            self.brokers[name] = broker
        for process in (*self.bookies, *self.brokers.values()):
            process.launch()
        for process in (*self.bookies, *self.brokers.values()):
            process.wait_ready()

    def stop(self) -> None:
        for process in (*self.brokers.values(), *self.bookies):
            if process.process is not None:
                process.kill()
        self.proxy.close()


@pytest.fixture
def instance(tmp_path: Path, zookeeper: ZooKeeperServer, request: pytest.FixtureRequest) -> Iterator[Instance]:
    made = Instance(tmp_path, zookeeper, request.node.name)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def received(client: pulsar.Client, topic: str, count: int) -> list[str]:
    """So many messages of all partitions, and one more if there is one; sorted."""
    found = []
    with (
        contextlib.closing(
            client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
        ) as consumer,
        contextlib.suppress(pulsar.Timeout),
    ):
        for number in range(count + 1):
            message = consumer.receive(timeout_millis=30_000 if number < count else 300)
            found.append(message.data().decode())
            consumer.acknowledge(message)
    return sorted(found)


def test_clusters_share_what_administrators_say_and_nothing_else(instance: Instance) -> None:
    east, west = (instance.brokers[name] for name in NAMES)
    assert ask(west, "GET", "/admin/v2/clusters") == [*NAMES]
    assert ask(west, "GET", f"{NAMESPACE}/replication") == [*NAMES]
    ask(east, "POST", f"{NAMESPACE}/messageTTL", 3600)
    assert ask(west, "GET", f"{NAMESPACE}/messageTTL") == 3600
    ask(east, "PUT", f"{TOPICS}/t/partitions", 2)
    assert ask(west, "GET", f"{TOPICS}/t/partitions")["partitions"] == 2
    with contextlib.ExitStack() as stack:
        clients = {
            name: stack.enter_context(contextlib.closing(pulsar.Client(instance.brokers[name].service_url)))
            for name in NAMES
        }
        expected = [f"{name[0]}{number:03}" for name in NAMES for number in range(60)]
        producers = {name: client.create_producer("t") for name, client in clients.items()}
        for text in expected[::2]:
            producers["east" if text[0] == "e" else "west"].send(text.encode(), partition_key=text)

        instance.proxy.forgets = 1 << 30
        instance.proxy.cut()
        # Of what is shared nobody can change anything now; ledgers of twenty entries are filled and begun.
        for text in expected[1::2]:
            producers["east" if text[0] == "e" else "west"].send(text.encode(), partition_key=text)
        instance.proxy.forgets = 0
        instance.proxy.cut()

        for client in clients.values():
            assert received(client, "t", len(expected)) == expected
        ask(west, "POST", f"{NAMESPACE}/messageTTL", 7200)
        assert ask(east, "GET", f"{NAMESPACE}/messageTTL") == 7200
    for broker in (east, west):
        status, reason = refusal(broker, "DELETE", NAMESPACE)
        assert (status, reason.partition(".")[0]) == (412, "Cannot delete the global namespace public/default")


def test_a_backup_has_both_stores_and_no_broker_looks_elsewhere(instance: Instance, tmp_path: Path) -> None:
    east = instance.brokers["east"]
    ask(east, "PUT", f"{TOPICS}/t/partitions", 2)
    program = [sys.executable, "-m", "geminga"]
    copy = tmp_path / "copy"
    command = [*program, "backup", "create", str(copy), "--metadata", east.zookeeper, "--json"]
    done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    assert done["topics"] >= 2
    (stored,) = (copy / "files").glob("*-metadata.sqlite")
    with contextlib.closing(sqlite3.connect(stored)) as tree:
        paths = {f"{parent}/{name}" for parent, name in tree.execute("SELECT parent, name FROM node")}
    assert {
        "/admin/policies/public/default",
        "/admin/partitioned-topics/public/default/persistent/t",
        "/managed-ledgers/public/default/persistent/t-partition-1",
    } <= paths
    assert "/geminga/configuration-store" not in paths

    command = [*program, "broker", "--metadata", east.zookeeper, "--broker-port", "0", "--web-port", "0"]
    refused = subprocess.run([*command, "--set", "clusterName=east"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert "configurationMetadataStoreUrl=(nothing): brokers of this cluster that are up (127.0.0.1:" in refused.stderr
