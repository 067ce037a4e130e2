"""A cluster of Geminga's and one of Apache's, each with stores of its own, keep their configuration alike by a topic.

What Apache's broker does wrong by itself is said where it is met: none of it may undo, hold up or repeat what is ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import pytest
from tools.chaos.cluster import BookieProcess
from tools.free_ports import free_ports
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import ZooKeeperServer

from integration.test_configuration_kept_alike import NAMES, NAMESPACES, SETTINGS, SYNC, TOPICS, ask
from support.house.waiting import until
from support.processes.apache_broker import ApacheBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CLUSTERS, TENANTS, GROUPS = (f"/admin/v2/{name}" for name in ("clusters", "tenants", "resourcegroups"))
ORDERS: Final = f"{NAMESPACES}/shop/orders"
EVENTS: Final = f"{TOPICS}/public/sync/events/stats"
#: Replicators and consumers of both try again after pauses.
LIMIT_S: Final = 90.0
ONE: Final = {f"managedLedgerDefault{name}": 1 for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
#: It is held up for a while, and keeps its session.
SESSION_MS: Final = 60_000


class ApacheCluster(ApacheBroker):
    """One broker of Apache's with a bookie. Policies are in another store than topics: else it tells of neither."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer) -> None:
        root = f"{zookeeper.hosts}/west"
        own = {
            "clusterName": "west",
            "configurationMetadataStoreUrl": f"zk:{root}/configuration",
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
        }
        super().__init__(directory, settings={**ONE, **own})
        self.zookeeper = f"{root}/own"
        self.bookie = BookieProcess(directory / "west", log=directory / "west-bookie.log", settings={})
        self.bookie.zookeeper = f"zk:{self.zookeeper}"

    def __enter__(self) -> Self:
        self.broker_port, self.web_port = free_ports(2)
        command = [sys.executable, "-m", "geminga", "initialize-cluster-metadata", "-c", "west"]
        command += ["-md", self.bookie.zookeeper, "-cms", str(self.settings["configurationMetadataStoreUrl"])]
        command += ["-uw", self.web_url, "-ub", self.service_url]
        subprocess.run(command, check=True, capture_output=True)
        self.bookie.start()
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        for process in (self, self.bookie):
            if process.is_running:
                process.kill()


@contextlib.contextmanager
def held_up(broker: StandaloneProcess) -> Iterator[None]:
    """It does nothing meanwhile."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.fixture
def clusters(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[dict[str, StandaloneProcess]]:
    """Geminga is east, Apache is west."""
    with contextlib.ExitStack() as stack:
        settings = {"clusterName": "east", **SETTINGS}
        east = StandaloneProcess(tmp_path / "east", log=tmp_path / "east.log", settings=settings)
        found = {"east": stack.enter_context(east), "west": stack.enter_context(ApacheCluster(tmp_path, zookeeper))}
        for name, other in (NAMES, NAMES[::-1]):
            data = {"serviceUrl": found[other].web_url, "brokerServiceUrl": found[other].service_url}
            assert ask(found[name], "PUT", f"{CLUSTERS}/{other}", data) is None
            assert ask(found[name], "POST", f"{TENANTS}/public", {"allowedClusters": [*NAMES]}) is None
            policies = {"replication_clusters": [*NAMES]}
            assert ask(found[name], "PUT", f"{NAMESPACES}/public/sync", policies) is None
        # With the key in its file it does not start on a ZooKeeper, as it tells of a node of its own before it can.
        key = f"/admin/v2/brokers/configuration/configurationMetadataSyncEventTopic/{quote(SYNC, safe='')}"
        assert ask(found["west"], "POST", key) is None
        # What comes before it listens it never hears.
        until(lambda: "metadata-syncer" in str(ask(found["west"], "GET", EVENTS)), "Apache listens", LIMIT_S)
        yield found


def alike(clusters: dict[str, StandaloneProcess], path: str, holds: Callable[[Any], bool]) -> None:
    """What both clusters answer is so, soon."""
    for name, broker in clusters.items():
        answers: list[object] = []

        def is_so(broker: StandaloneProcess = broker, answers: list[object] = answers) -> bool:
            answers.append(ask(broker, "GET", path))
            return holds(answers[-1])

        with contextlib.suppress(AssertionError):
            until(is_so, path, LIMIT_S)
        assert holds(answers[-1]), f"{path} in {name}: {answers[-1]}"


def rate_of(group: object) -> object:
    return group["publishRateInMsgs"] if isinstance(group, dict) else group


def told(broker: StandaloneProcess) -> int:
    """How many events its cluster has."""
    stats = ask(broker, "GET", EVENTS)
    assert isinstance(stats, dict)
    return int(stats["msgInCounter"])


def say_late(clusters: dict[str, StandaloneProcess], group: str) -> None:
    """Two things of one path, in a cluster of ours, while Apache's broker is held up."""
    east, west = clusters.values()
    with held_up(west):
        for rate in (1, 2):
            before = told(east)
            assert ask(east, "PUT", f"{GROUPS}/{group}", {"publishRateInMsgs": rate}) is None
            until(lambda before=before: told(east) > before, "the event", LIMIT_S)  # type: ignore[misc]


def test_what_is_said_in_a_cluster_of_either_make_holds_in_both(clusters: dict[str, StandaloneProcess]) -> None:
    east, west = clusters.values()
    names = [*NAMES]
    assert ask(east, "PUT", f"{TENANTS}/shop", {"adminRoles": ["r"], "allowedClusters": names}) is None
    alike(clusters, f"{TENANTS}/shop", lambda found: found == {"adminRoles": ["r"], "allowedClusters": names})
    assert ask(west, "PUT", ORDERS, {"replication_clusters": names}) is None
    alike(clusters, f"{ORDERS}/replication", lambda found: found == names)
    for broker, ttl in ((west, 60), (east, 120), (west, 180)):
        assert ask(broker, "POST", f"{ORDERS}/messageTTL", ttl) is None
        alike(clusters, f"{ORDERS}/messageTTL", lambda found, ttl=ttl: found == ttl)  # type: ignore[misc]
    for broker, name in ((east, "e"), (west, "w")):
        assert ask(broker, "PUT", f"{TOPICS}/shop/orders/{name}/partitions", 2) is None
        assert ask(broker, "PUT", f"{GROUPS}/{name}", {"publishRateInMsgs": 5}) is None
        assert ask(broker, "PUT", f"{NAMESPACES}/shop/of-{name}", {"replication_clusters": names}) is None
    partitioned = [f"persistent://shop/orders/{name}" for name in "ew"]
    alike(clusters, f"{TOPICS}/shop/orders/partitioned", lambda found: sorted(found) == partitioned)
    alike(clusters, GROUPS, lambda found: sorted(found) == ["e", "w"])
    namespaces = ["shop/of-e", "shop/of-w", "shop/orders"]
    alike(clusters, f"{NAMESPACES}/shop", lambda found: sorted(found) == namespaces)
    # Deleted by the other one than made it.
    for broker, own, name in ((west, "west", "e"), (east, "east", "w")):
        assert ask(broker, "DELETE", f"{GROUPS}/{name}") is None
        path = f"{NAMESPACES}/shop/of-{name}/replication"
        assert ask(broker, "POST", path, [own]) is None
        # It passes over what was said before it wrote what was said before that.
        alike(clusters, path, lambda found, own=own: found == [own])  # type: ignore[misc]
        assert ask(broker, "DELETE", f"{NAMESPACES}/shop/of-{name}") is None
    alike(clusters, GROUPS, lambda found: found == [])
    alike(clusters, f"{NAMESPACES}/shop", lambda found: found == ["shop/orders"])

    # Held up, Apache's broker makes a node, tells it as a change of its own, and passes over what came in between.
    say_late(clusters, "late")
    alike(clusters, f"{GROUPS}/late", lambda found: rate_of(found) == 2)
    # What it can not follow, such as each deletion that it told itself, it never acknowledges: it comes with its start.
    for broker, name in ((east, "e"), (west, "w")):
        assert ask(broker, "PUT", f"{GROUPS}/{name}", {"publishRateInMsgs": 7}) is None
        alike(clusters, f"{GROUPS}/{name}", lambda found: rate_of(found) == 7)
    west.stop()
    assert ask(east, "POST", f"{ORDERS}/messageTTL", 240) is None
    west.start()
    alike(clusters, f"{ORDERS}/messageTTL", lambda found: found == 240)
    assert ask(west, "POST", f"{ORDERS}/messageTTL", 300) is None
    alike(clusters, f"{ORDERS}/messageTTL", lambda found: found == 300)
    alike(clusters, GROUPS, lambda found: sorted(found) == ["e", "late", "w"])
    for name in "ew":
        alike(clusters, f"{GROUPS}/{name}", lambda found: rate_of(found) == 7)
