"""A broker of each make in one cluster: ZooKeeper, three of Apache's bookies, Apache Pulsar's broker and Geminga's."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from tools.chaos.cluster import BrokerProcess
from tools.chaos.secured import LOAD, Security
from tools.free_ports import free_ports
from tools.interop.apache_broker import ApacheBroker
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import ZooKeeperServer

from geminga.app.storage.cluster_metadata import initialize
from geminga.app.storage.core.cluster_options import ClusterOptions
from support.processes.apache_cluster import apaches_bookies
from support.processes.apache_secured import broker_settings
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
            answer = Rest(base, headers=self.headers, tls=self.tls).call(method, asked, body, raw=raw)
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
        security: Security | None,
    ) -> None:
        metadata = f"zk:{zookeeper.hosts if security is None else zookeeper.secure_hosts}"
        self.directory = directory
        self.security = security
        secured: dict[Make, dict[str, object]] = {"apache": {}, "geminga": {}}
        if security is not None:
            secured["apache"] = broker_settings(security, "apache-broker")
            secured["geminga"] = security.broker_settings("geminga-broker")
            for own in secured.values():
                own["brokerServicePortTls"], own["webServicePortTls"] = free_ports(2)
        apache = ApacheBroker(
            directory / "apache-broker",
            log=directory / "apache-broker.log",
            metadata=metadata,
            cluster=CLUSTER,
            settings={
                **SETTINGS,
                "numIOThreads": 2,
                "managedLedgerCacheSizeMB": 64,
                **settings,
                **apaches_own,
                **secured["apache"],
            },
        )
        apache.memory = MEMORY
        geminga = BrokerProcess(
            directory,
            log=directory / "geminga-broker.log",
            settings={"clusterName": CLUSTER, **SETTINGS, **settings, **secured["geminga"]},
        )
        geminga.zookeeper = metadata
        self.brokers: dict[Make, StandaloneProcess] = {"apache": apache, "geminga": geminga}
        #: What each request of HTTP says, and how.
        self._headers: dict[str, str] = {}
        self._web_tls: ssl.SSLContext | None = None
        if security is not None:
            self._headers["Authorization"] = f"Bearer {security.admin_token()}"
            self._web_tls = ssl.create_default_context(cafile=str(security.member("client").trust))
            apache.headers, apache.web_tls = self._headers, self._web_tls

    @property
    def service_url(self) -> str:
        """Of both brokers, for clients."""
        urls = [urlsplit(self._url(make)) for make in MAKES]
        return f"{urls[0].scheme}://{','.join(url.netloc for url in urls)}"

    @property
    def client_options(self) -> dict[str, Any]:
        """Of official clients."""
        return {} if self.security is None else self.security.client_options()

    def grant(self, namespace: str) -> None:
        """Let the clients' role produce and consume there."""
        answer = self.rest("geminga").post(f"namespaces/{namespace}/permissions/{LOAD}", ["produce", "consume"])
        assert answer.status in (200, 204), answer

    def _url(self, make: Make) -> str:
        broker = self.brokers[make]
        return broker.service_url if self.security is None else broker.tls_url

    def _web_url(self, make: Make) -> str:
        broker = self.brokers[make]
        return broker.web_url if self.security is None else broker.web_tls_url

    def rest(self, make: Make) -> Rest:
        """The admin REST of the broker of this make."""
        return FollowingRest(self._web_url(make), headers=self._headers, tls=self._web_tls)

    def id(self, make: Make) -> str:
        """As brokers are listed."""
        return urlsplit(self._web_url(make)).netloc

    def owner(self, topic: str, asked: Make = "geminga") -> Make:
        """Who serves a topic (``tenant/namespace/local name``), as the broker that is asked says."""
        found: list[Answer] = []

        def is_found() -> bool:
            # Where two take a bundle at the same time, Apache's broker answers 500, and clients look it up again.
            found.append(self.rest(asked).get(f"/lookup/v2/topic/persistent/{topic}"))
            return found[-1].status == 200

        eventually(is_found, True)
        answer = found[-1]
        urls = {self._url(make): make for make in MAKES}
        return urls[answer.json["brokerUrl" if self.security is None else "brokerUrlTls"].rstrip("/")]

    def bundle(self, topic: str, asked: Make = "geminga") -> str:
        """The bundle of a topic: ``0x..._0x...``."""
        answer = self.rest(asked).get(f"/lookup/v2/topic/persistent/{topic}/bundle")
        assert answer.status == 200, answer
        return answer.body.decode().strip('"').rpartition("/")[2]

    def data_of_tls(self) -> dict[str, str]:
        """What the cluster's data say beside, for brokers that call each other by them."""
        if self.security is None:
            return {}
        return {
            "broker_service_url_tls": self.service_url,
            "web_service_url_tls": f"https://{','.join(self.id(make) for make in MAKES)}",
        }

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
    security: Security | None = None,
) -> Iterator[MixedCluster]:
    """Apache's broker first, which leads then. ``apaches_own``: settings of that alone.

    ``security``: TLS on every link, tokens and rights; made with :data:`apache_secured.UNIT`, as ``zookeeper`` is.
    """
    cluster = MixedCluster(zookeeper, directory, settings or {}, apaches_own or {}, security)
    with ExitStack() as stack:
        each = BOOKIES // bookie_processes
        for first in range(0, BOOKIES, each):
            stack.enter_context(
                apaches_bookies(
                    zookeeper,
                    directory,
                    range(first, first + each),
                    session_ms=BOOKIE_SESSION_MS,
                    security=security,
                )
            )
        apache, geminga = cluster.brokers["apache"], cluster.brokers["geminga"]
        metadata = f"zk:{zookeeper.hosts}"
        initialize(
            ClusterOptions(
                CLUSTER,
                "http://127.0.0.1:8080",
                metadata,
                broker_service_url="pulsar://127.0.0.1:6650",
                **cluster.data_of_tls(),
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
