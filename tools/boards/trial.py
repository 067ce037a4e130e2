"""A cluster on this machine under a load that concerns every board, watched by a real Prometheus.

Two brokers, three bookies, ZooKeeper, auto-recovery, and a standalone as the other cluster of a namespace. The load, in
rounds with a pause between: publish and consume, also late (from the disk), with redeliveries, delays and transactions,
on both sides of the namespace; through an entry filter, a resource group, a proxy, and over WebSockets
(:mod:`tools.boards.features`); topics come and go; a namespace is unloaded; at last a bookie is lost, and auto-recovery
copies what it had.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pulsar

from tools.boards.features import Proxy, over_websockets, prepare, settings, through_proxy
from tools.boards.panels import Panel, filled
from tools.boards.prometheus import SCRAPE_S, Prometheus, Target, configuration
from tools.boards.verdict import Judged, Reasons, judged
from tools.chaos.cluster import Cluster
from tools.standalone_process import StandaloneProcess

CLUSTER: Final = "boards"
OTHER: Final = "other"
#: A topic that both clusters have.
COPIED: Final = "persistent://shared/both/orders"
ROUNDS: Final = 4
MESSAGES: Final = 400
#: Auto-recovery looks, and copies, within this.
RECOVERY_S: Final = 60.0
BROKER_SETTINGS: Final = {
    "clusterName": CLUSTER,
    "transactionCoordinatorEnabled": "true",
    "exposeProducerLevelMetricsInPrometheus": "true",
    "exposeConsumerLevelMetricsInPrometheus": "true",
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "managedLedgerMaxEntriesPerLedger": 200,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerCacheSizeMB": 0,
    "brokerDeleteInactiveTopicsEnabled": "false",
}
BOOKIE_SETTINGS: Final = {
    "httpServerEnabled": "true",
    "httpServerPort": 0,
    "gcWaitTime": 5000,
    "flushInterval": 1000,
    "logSizeLimit": 2_000_000,
    "minorCompactionInterval": 10,
    "minorCompactionThreshold": 0.8,
    "dbStorage_readAheadCacheMaxSizeMb": 16,
}


class Seen(NamedTuple):
    """Of a run: when the load began and ended, and what pages said."""

    since_s: float
    until_s: float
    pages: dict[str, str]


class Clusters(NamedTuple):
    """What is loaded, and who is asked for metrics."""

    cluster: Cluster
    other: StandaloneProcess
    targets: list[Target]
    proxy: Proxy


@contextmanager
def watched(directory: Path, port: int, rules: Path) -> Iterator[tuple[Prometheus, Clusters]]:
    """The cluster, the other one, and their Prometheus; all of it is gone at the end."""
    cluster = Cluster(
        directory / "cluster",
        bookies=3,
        brokers=2,
        session_ms=8000,
        broker_settings={**BROKER_SETTINGS, **settings(directory / "filters")},
        bookie_settings=BOOKIE_SETTINGS,
    )
    (directory / "cluster").mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        cluster.start()
        recovery = cluster.start_autorecovery(
            {
                "httpServerEnabled": "true",
                "httpServerPort": 0,
                "lostBookieRecoveryDelay": 1,
                "auditorPeriodicBookieCheckInterval": 5,
            }
        )
        other = StandaloneProcess(
            directory / OTHER, log=directory / "cluster/other.log", settings={"clusterName": OTHER}
        )
        stack.callback(other.kill)
        other.start()
        targets = [Target("broker", name, f"127.0.0.1:{each.web_port}") for name, each in cluster.brokers.items()]
        targets += [Target("bookie", name, _http(each)) for name, each in cluster.bookies.items()]
        proxy = Proxy(cluster, directory / "cluster/proxy.log")
        stack.callback(proxy.close)
        targets.append(Target("proxy", "proxy", proxy.address))
        targets.append(Target("broker", OTHER, f"127.0.0.1:{other.web_port}"))
        targets.append(Target("recovery", "recovery", _http(recovery)))
        prometheus = Prometheus(directory / "prometheus", configuration(targets, CLUSTER, rules), port)
        _make_known(cluster.broker, other)
        prepare(cluster.broker, _put)
        yield stack.enter_context(prometheus), Clusters(cluster, other, targets, proxy)


def _http(process: StandaloneProcess) -> str:
    return f"127.0.0.1:{process.ready['httpPort']}"


def loaded(clusters: Clusters) -> Seen:
    """Carry the load out."""
    cluster, targets = clusters.cluster, clusters.targets
    since_s = time.time()
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for number in range(ROUNDS):
            _round(client, cluster, number)
            _compacted(client, cluster, number)
            _transactions(cluster, number)
            _copied(clusters, number)
            through_proxy(clusters.proxy)
            over_websockets(cluster.broker, number + 1)
            # Rates are of the time between two scrapes: so that one is seen without load.
            time.sleep(2 * SCRAPE_S)
        pages = {target.name: _page(target) for target in targets}
        _apart(client, clusters.other)
        _recovery(cluster)
    finally:
        client.close()
    time.sleep(2 * SCRAPE_S)
    pages["recovery"] = _page(targets[-1])
    return Seen(since_s, time.time(), pages)


def _round(client: pulsar.Client, cluster: Cluster, number: int) -> None:
    topic = "persistent://public/default/orders"
    reader = client.subscribe(topic, "late", consumer_type=pulsar.ConsumerType.Shared)
    consumer = client.subscribe(
        topic, "prompt", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=200
    )
    producer = client.create_producer(topic, producer_name=f"app:orders-{number}", batching_enabled=False)
    for index in range(MESSAGES):
        producer.send_async(b"x" * (100 + 37 * index), lambda *_: None)
        if index % 100 == 99:
            producer.flush()
            time.sleep(SCRAPE_S / 2)
    for index in range(number + 1):
        producer.send(b"later", deliver_after=_seconds(4 * (index + 1)))
    for index in range(MESSAGES):
        message = consumer.receive(20_000)
        consumer.negative_acknowledge(message) if index % 10 == 0 else consumer.acknowledge(message)
    time.sleep(3 * SCRAPE_S)
    with suppress(pulsar.Timeout):
        for _ in range(MESSAGES // 2):
            reader.acknowledge(reader.receive(2_000))
    for each in (producer, consumer, reader):
        each.close()
    passing = f"persistent://public/default/passing-{number}"
    short = client.create_producer(passing)
    for _ in range(50):
        short.send(b"y" * 20_000)
    short.close()
    if number:
        before = f"persistent/public/default/passing-{number - 1}"
        _ask(cluster, "DELETE", f"{before}?force=true")
    else:
        _ask(cluster, "PUT", "namespaces/public/default/unload", may_fail=True)


def _compacted(client: pulsar.Client, cluster: Cluster, number: int) -> None:
    """A topic of few keys."""
    producer = client.create_producer("persistent://public/default/prices", batching_enabled=False)
    for index in range(100 * (number + 1)):
        producer.send_async(b"p" * 200, lambda *_: None, partition_key=f"k{index % (20 * (number + 1))}")
    producer.flush()
    producer.close()
    _ask(cluster, "PUT", "persistent/public/default/prices/compaction", may_fail=True)


def _transactions(cluster: Cluster, number: int) -> None:
    from geminga.client.blocking import connect

    with connect(cluster.service_url) as client:
        producer = client.create_producer("persistent://public/default/paid")
        for index in range(3 + 2 * number):
            transaction = client.transaction()
            with transaction:
                producer.send(b"z", txn=transaction)
                if not index:
                    time.sleep(2 * SCRAPE_S)  # it is seen while it is open
                if index % 3 == 2:
                    transaction.abort()
        producer.close()


def _make_known(broker: StandaloneProcess, other: StandaloneProcess) -> None:
    """Each cluster to the other, with a namespace that both have."""
    both = {CLUSTER: broker, OTHER: other}
    for here in both.values():
        for name, there in both.items():
            document = {"serviceUrl": there.web_service_url, "brokerServiceUrl": there.service_url}
            _put(here, f"clusters/{name}", document, method="POST" if here is there else "PUT")
        _put(here, "tenants/shared", {"adminRoles": [], "allowedClusters": list(both)})
        _put(here, "namespaces/shared/both", {"replication_clusters": list(both)})


def _copied(clusters: Clusters, number: int) -> None:
    """Publish on both sides."""
    for url in (clusters.cluster.service_url, clusters.other.service_url):
        client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(COPIED, batching_enabled=False)
        for _ in range(4):
            for _ in range(100 * (number + 1)):
                producer.send_async(b"c" * 300, lambda *_: None)
            producer.flush()
            time.sleep(SCRAPE_S / 2)
        client.close()


def _apart(client: pulsar.Client, other: StandaloneProcess) -> None:
    """The other cluster is away for a while, and comes back."""
    other.kill()
    producer = client.create_producer(COPIED, batching_enabled=False)
    for _ in range(4):
        for _ in range(100):
            producer.send(b"d" * 300)
        time.sleep(SCRAPE_S)
    producer.close()
    other.start()
    time.sleep(5 * SCRAPE_S)


def _recovery(cluster: Cluster) -> None:
    """Lose a bookie until its copies are made anew."""
    lost = list(cluster.bookies.values())[-1]
    lost.kill()
    deadline = time.monotonic() + RECOVERY_S
    assert cluster.autorecovery is not None
    target = Target("recovery", "recovery", _http(cluster.autorecovery))
    while time.monotonic() < deadline:
        lines = _page(target).splitlines()
        if any(
            line.startswith("replication_worker_NUM_ENTRIES_WRITTEN ") and not line.endswith(" 0") for line in lines
        ):
            return
        time.sleep(1)


def looked_at(prometheus: Prometheus, panels: list[Panel], seen: Seen, reasons: Reasons) -> list[Judged]:
    """Every panel of the time of the load; ValueError where Prometheus refuses a query."""
    found = []
    for panel in panels:
        series = [
            values
            for query in panel.queries
            for values in prometheus.values(filled(query, CLUSTER), seen.since_s, seen.until_s)
            if values
        ]
        found.append(judged(panel, series, reasons))
    return found


def _page(target: Target) -> str:
    with urllib.request.urlopen(f"http://{target.address}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def _ask(cluster: Cluster, method: str, path: str, *, may_fail: bool = False) -> None:
    """Of the broker that owns what it is about: the other one sends on, which urllib follows for no PUT.

    What is not there is as good as deleted. Raises HTTPError, unless it ``may_fail``.
    """
    refused: urllib.error.HTTPError | None = None
    for broker in cluster.brokers.values():
        request = urllib.request.Request(f"{broker.web_service_url}/admin/v2/{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=30):
                return
        except urllib.error.HTTPError as error:
            if error.code not in (307, 404):
                refused = error
    if refused is not None and not may_fail:
        raise refused


def _put(process: StandaloneProcess, path: str, document: object, *, method: str = "PUT") -> None:
    request = urllib.request.Request(
        f"{process.web_service_url}/admin/v2/{path}",
        data=json.dumps(document).encode(),
        method=method,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30):
        pass


def _seconds(count: int) -> object:
    from datetime import timedelta

    return timedelta(seconds=count)


def summary(found: list[Judged]) -> str:
    """As JSON, for whoever counts."""
    return json.dumps([[each.panel.board, each.panel.title, each.verdict, each.why] for each in found], indent=1)
