"""A broker of each make in one cluster: ZooKeeper, three of Apache's bookies, Apache Pulsar's broker and Geminga's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from tools.chaos.cluster import BrokerProcess
from tools.interop.apache_broker import ApacheBroker
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import ZooKeeperServer

from geminga.app.storage.cluster_metadata import initialize
from geminga.app.storage.core.cluster_options import ClusterOptions
from support.processes.apache_cluster import apaches_bookies
from support.worlds.rest import Answer, Rest

Make = Literal["apache", "geminga"]

CLUSTER: Final = "mixed"
MAKES: Final[tuple[Make, Make]] = ("apache", "geminga")
BUNDLES: Final = 16
BOOKIES: Final = 3
COORDINATORS: Final = 4
SESSION_MS: Final = 4000
#: Nobody ends a bookie here: a busy machine does neither.
BOOKIE_SESSION_MS: Final = 30_000
#: Of a broker, on a machine that has much else to do.
START_S: Final = 300.0
#: Where nobody is killed: a busy machine ends no session.
CALM: Final[Mapping[str, object]] = {"metadataStoreSessionTimeoutMillis": 30_000}
#: Of both makes.
SETTINGS: Final[Mapping[str, object]] = {
    "metadataStoreSessionTimeoutMillis": SESSION_MS,
    "transactionCoordinatorEnabled": "true",
    # Nothing moves but what a test moves.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
}
#: In which one broker hears what the other stored, on a machine that has much else to do.
SOON_S: Final = 20.0
#: That a bundle is sent to a broker.
MOVES_MAX: Final = 5
#: As clients take.
REDIRECTS_MAX: Final = 5
#: Small, beside everything else that runs.
MEMORY: Final = ["-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC"]


class FollowingRest(Rest):
    """As ``pulsar-admin`` calls a broker: sent to the other one, it goes there."""

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Answer:
        """Send a request and follow."""
        asked, base = path, self.base_url
        for _ in range(REDIRECTS_MAX):
            answer = Rest(base).call(method, asked, body, raw=raw)
            if answer.status != 307:
                return answer
            there = urlsplit(answer.headers["location"])
            base = f"{there.scheme}://{there.netloc}"
            asked = f"{there.path}?{there.query}" if there.query else there.path
        raise AssertionError(f"{method} {path} is passed round more than {REDIRECTS_MAX} times, now to {base}{asked}")


class MixedCluster:
    """Made by :func:`mixed_cluster`, with both brokers up."""

    def __init__(
        self,
        zookeeper: ZooKeeperServer,
        directory: Path,
        settings: Mapping[str, object],
        apaches_own: Mapping[str, object],
    ) -> None:
        metadata = f"zk:{zookeeper.hosts}"
        self.directory = directory
        apache = ApacheBroker(
            directory / "apache-broker",
            log=directory / "apache-broker.log",
            metadata=metadata,
            cluster=CLUSTER,
            settings={**SETTINGS, "numIOThreads": 2, "managedLedgerCacheSizeMB": 64, **settings, **apaches_own},
        )
        apache.memory = MEMORY
        geminga = BrokerProcess(
            directory, log=directory / "geminga-broker.log", settings={"clusterName": CLUSTER, **SETTINGS, **settings}
        )
        geminga.zookeeper = metadata
        self.brokers: dict[Make, StandaloneProcess] = {"apache": apache, "geminga": geminga}

    @property
    def service_url(self) -> str:
        """Of both brokers, for clients."""
        return "pulsar://" + ",".join(f"127.0.0.1:{broker.broker_port}" for broker in self.brokers.values())

    def rest(self, make: Make) -> Rest:
        """The admin REST of the broker of this make."""
        return FollowingRest(self.brokers[make].web_url)

    def id(self, make: Make) -> str:
        """As brokers are listed."""
        return f"127.0.0.1:{self.brokers[make].web_port}"

    def owner(self, topic: str, asked: Make = "geminga") -> Make:
        """Who serves a topic (``tenant/namespace/local name``), as the broker that is asked says."""
        found: list[Answer] = []

        def is_found() -> bool:
            # Where two take a bundle at the same time, Apache's broker answers 500, and clients look it up again.
            found.append(self.rest(asked).get(f"/lookup/v2/topic/persistent/{topic}"))
            return found[-1].status == 200

        eventually(is_found, True)
        answer = found[-1]
        urls = {broker.service_url: make for make, broker in self.brokers.items()}
        return urls[answer.json["brokerUrl"].rstrip("/")]

    def bundle(self, topic: str, asked: Make = "geminga") -> str:
        """The bundle of a topic: ``0x..._0x...``."""
        answer = self.rest(asked).get(f"/lookup/v2/topic/persistent/{topic}/bundle")
        assert answer.status == 200, answer
        return answer.body.decode().strip('"').rpartition("/")[2]

    def move(self, topic: str, to: Make, *, asked: Make = "geminga") -> None:
        """``pulsar-admin namespaces unload --bundle --destinationBroker``, until it is there.

        A leader of Apache's sends the first who asks there, and whoever else asks before the bundle is taken
        to any broker: with clients at work it may go elsewhere (docs/compatibility.md).
        """
        for _ in range(MOVES_MAX):
            answer = self.ask_move(topic, to, asked=asked)
            assert answer.status == 204, answer
            if self.owner(topic) == to:
                return
        raise AssertionError(f"{topic} does not go to {to}")

    def ask_move(self, topic: str, to: Make, *, asked: Make) -> Answer:
        """The same, whatever comes of it."""
        namespace = topic.rpartition("/")[0]
        path = f"namespaces/{namespace}/{self.bundle(topic, asked)}/unload?destinationBroker={self.id(to)}"
        return self.rest(asked).put(path)


@contextmanager
def mixed_cluster(
    zookeeper: ZooKeeperServer,
    directory: Path,
    settings: Mapping[str, object] | None = None,
    *,
    apaches_own: Mapping[str, object] | None = None,
    bookie_processes: int = 1,
) -> Iterator[MixedCluster]:
    """Apache's broker first, which leads then. ``apaches_own``: settings of that alone."""
    cluster = MixedCluster(zookeeper, directory, settings or {}, apaches_own or {})
    with ExitStack() as stack:
        each = BOOKIES // bookie_processes
        for first in range(0, BOOKIES, each):
            stack.enter_context(
                apaches_bookies(zookeeper, directory, range(first, first + each), session_ms=BOOKIE_SESSION_MS)
            )
        apache, geminga = cluster.brokers["apache"], cluster.brokers["geminga"]
        metadata = f"zk:{zookeeper.hosts}"
        initialize(
            ClusterOptions(
                CLUSTER,
                "http://127.0.0.1:8080",
                metadata,
                broker_service_url="pulsar://127.0.0.1:6650",
                bundles=BUNDLES,
                transaction_coordinators=COORDINATORS,
            )
        )
        try:
            apache.start(START_S)
            geminga.start(START_S)
            yield cluster
        finally:
            apache.kill()
            geminga.kill()


def eventually(found: Callable[[], object], expected: object, limit_s: float = SOON_S) -> None:
    """For what the other broker hears of a moment later."""
    pause = threading.Event()
    deadline = time.monotonic() + limit_s
    while (last := found()) != expected:
        assert time.monotonic() < deadline, f"{last} and not {expected}"
        pause.wait(0.1)
