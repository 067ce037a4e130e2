"""Clusters that copy to each other, whose links are cut and whose brokers and bookies are killed under load.

Each cluster is reached from each other one by forwarders alone (:mod:`tools.chaos.links`): its brokers tell it those by
a listener of its own. Every cluster has a producer of each topic, and must have what was acknowledged to any of them:
once, and that of each producer in order.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pulsar
from rich.console import Console

from geminga.app.local.mesh_registration import ClusterUrls, introduce, share_all
from tools.chaos.cluster import Cluster
from tools.chaos.history import judge, undelivered
from tools.chaos.links import Links
from tools.chaos.load import READ_S, Delivered, Publishing, Taking
from tools.chaos.mesh_plan import Cut, Kill, mesh_plan
from tools.free_ports import free_ports

#: Seconds from the last repair until everything must be everywhere; and how long it is waited for.
LAG_S_MAX: Final = 10.0
LAG_PATIENCE_S: Final = 120.0
LOOK_S: Final = 0.2
TOPICS: Final = 4
#: Messages a second of each producer; there is one of each topic in each cluster.
RATE: Final = 50
OPERATION_S: Final = 60
#: Whatever of these is not zero is a broken promise.
PROMISED: Final = ("lost", "out_of_order", "duplicated", "invented", "undelivered", "misdelivered", "late")


class MeshPublishing(Publishing):
    """One cluster's producer of a topic; its messages begin with the cluster's name."""

    def __init__(self, client: pulsar.Client, topic: str, cluster: str, *, batching: bool) -> None:
        self.cluster = cluster
        super().__init__(client, topic, batching=batching, rate=RATE)

    @property
    def name(self) -> str:
        """Of the producer."""
        return f"{super().name}-{self.cluster}"

    def payload(self, number: int) -> bytes:
        """Of one message."""
        return b"%s %d" % (self.cluster.encode(), number)


class MeshConsuming(Taking):
    """Takes all of a topic in one cluster, on a thread of its own."""

    def __init__(self, client: pulsar.Client, topic: str, clusters: Sequence[str]) -> None:
        self.delivered = {cluster: Delivered() for cluster in clusters}
        super().__init__(client, topic)

    def _take(self) -> None:
        with suppress(pulsar.Timeout):
            message = self._consumer.receive(timeout_millis=200)
            cluster, number = _parsed(message.data())
            self.delivered[cluster].see(number)
            self._consumer.acknowledge(message)


class Mesh:
    """All clusters of one run."""

    def __init__(
        self,
        directory: Path,
        *,
        clusters: int,
        bookies: int,
        brokers: int,
        session_ms: int,
        settings: Mapping[str, object],
    ) -> None:
        self.links = Links()
        self.names = [f"city-{number + 1}" for number in range(clusters)]
        self.clusters: dict[str, Cluster] = {}
        #: (source, target) -> where its administration and its brokers are.
        self._seen: dict[tuple[str, str], ClusterUrls] = {}
        #: Of a forwarder, whose it is: "web" or "broker" of which broker of which cluster.
        self._ports: list[tuple[int, str, str, str]] = []
        for name in self.names:
            (directory / name).mkdir()
            self.clusters[name] = Cluster(
                directory / name,
                bookies=bookies,
                brokers=brokers,
                session_ms=session_ms,
                broker_settings={"clusterName": name, **settings},
            )
            self._forward(name)

    def _forward(self, target: str) -> None:
        """To all brokers of a cluster, from each other one."""
        brokers = self.clusters[target].brokers
        for (broker_name, broker), port in zip(brokers.items(), free_ports(len(brokers)), strict=True):
            broker.broker_port = port
            listeners = [f"inside:pulsar://127.0.0.1:{port}"]
            for source in self.names:
                if source != target:
                    web, binary = (self.links.forward((source, target)) for _ in range(2))
                    listeners.append(f"{source}:pulsar://127.0.0.1:{binary}")
                    self._ports += [(web, target, broker_name, "web"), (binary, target, broker_name, "broker")]
                    urls = self._seen.get((source, target))
                    self._seen[source, target] = ClusterUrls(
                        f"http://127.0.0.1:{web}" if urls is None else f"{urls.service_url},127.0.0.1:{web}",
                        f"pulsar://127.0.0.1:{binary}"
                        if urls is None
                        else f"{urls.broker_service_url},127.0.0.1:{binary}",
                        listener_name=source,
                    )
            broker.settings["advertisedListeners"] = ",".join(listeners)

    def start(self) -> None:
        """All of them, which know each other then. Raises StartError, GemingaError."""
        for cluster in self.clusters.values():
            cluster.start()
        for port, target, broker_name, kind in self._ports:
            broker = self.clusters[target].brokers[broker_name]
            self.links.lead(port, ("127.0.0.1", broker.web_port if kind == "web" else broker.broker_port))
        for name, cluster in self.clusters.items():
            others = {target: urls for (source, target), urls in self._seen.items() if source == name}
            introduce(cluster.broker.web_url, name, others)
        share_all({name: cluster.broker.web_url for name, cluster in self.clusters.items()})

    def close(self) -> None:
        """kill -9 for everybody."""
        for cluster in self.clusters.values():
            cluster.close()
        self.links.close()

    def backlog(self, topics: Sequence[str]) -> tuple[int, list[str]]:
        """Entries that are still to be copied, and why a topic is not copied; one that is not counts as one."""
        left, reasons = 0, []
        for name, cluster in self.clusters.items():
            for topic in topics:
                try:
                    path = f"/admin/v2/{topic.replace('://', '/')}/stats"
                    found = json.loads(cluster.broker.request("GET", path))["replication"]
                except (OSError, urllib.error.URLError) as error:
                    left += 1
                    reasons.append(f"{name} {topic}: {error}")
                    continue
                for other in self.names:
                    one = found.get(other)
                    if other != name and (one is None or not one["connected"] or one["replicationBacklog"]):
                        left += max(1, one["replicationBacklog"] if one else 0)
                        reasons.append(f"{name} to {other} {topic}: {one}")
        return left, reasons


class MeshLoad:
    """Producers and consumers of all topics in all clusters."""

    def __init__(self, mesh: Mesh, directory: Path) -> None:
        self.topics = [f"persistent://public/default/chaos-{number}" for number in range(TOPICS)]
        self.clients = {}
        for name, cluster in mesh.clusters.items():
            logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / f"{name}.client.log"))
            self.clients[name] = pulsar.Client(
                cluster.service_url, logger=logger, operation_timeout_seconds=OPERATION_S
            )
        self.consumers = {
            (name, topic): MeshConsuming(client, topic, mesh.names)
            for name, client in self.clients.items()
            for topic in self.topics
        }
        self.producers = {
            (name, topic): MeshPublishing(client, topic, name, batching=number % 2 == 0)
            for name, client in self.clients.items()
            for number, topic in enumerate(self.topics)
        }

    @property
    def acknowledged(self) -> int:
        """Messages with a receipt, of all producers."""
        return sum(len(each.acknowledged) for each in self.producers.values())

    def stop_publishing(self) -> None:
        """And wait until all is answered."""
        for each in self.producers.values():
            each.stop()

    def has_all(self) -> bool:
        """Whether each cluster's consumers were given everything."""
        return all(
            consumer.delivered[name].has(self.producers[name, topic].acknowledged)
            for (_, topic), consumer in self.consumers.items()
            for name in self.clients
        )

    def close(self) -> None:
        """End consuming, and everything else."""
        for each in self.consumers.values():
            each.stop()
        for client in self.clients.values():
            client.close()

    def found(self) -> dict[str, int]:
        """What each cluster has, held against what was sent in any, and what its consumers got."""
        found: Counter[str] = Counter(acknowledged=self.acknowledged)
        for (name, topic), consumer in self.consumers.items():
            read = _read_all(self.clients[name], topic)
            for origin in self.clients:
                producer = self.producers[origin, topic]
                verdict = judge(producer.sent, producer.acknowledged, read.get(origin, []))
                for kind, numbers in verdict._asdict().items():
                    found[kind] += len(numbers)
                delivered = consumer.delivered[origin]
                found["undelivered"] += len(undelivered(producer.acknowledged, delivered.numbers))
                found["misdelivered"] += len(delivered.out_of_order)
                found["deliveredAgain"] += delivered.again
        found["refused"] = sum(len(producer.errors) for producer in self.producers.values())
        return dict(found)


def run_mesh(
    mesh: Mesh, directory: Path, console: Console, *, seed: int, cuts: int, kills: int, session_s: float
) -> dict[str, Any]:
    """All cuts and kills of a plan; what was found."""
    first = next(iter(mesh.clusters.values()))
    planned, killed = mesh_plan(
        seed,
        mesh.names,
        cuts=cuts,
        kills=kills,
        bookies=len(first.bookies),
        brokers=len(first.brokers),
        session_s=session_s,
    )
    with ExitStack() as stack:
        stack.callback(mesh.close)
        mesh.start()
        load = MeshLoad(mesh, directory)
        began = time.monotonic()
        cutter = threading.Thread(target=_cut_all, args=(mesh, planned, began, console, load), daemon=True)
        cutter.start()
        sessions_end = began
        for kill in killed:
            sessions_end = max(sessions_end, _kill(mesh, kill, began, session_s, console, load))
        cutter.join()
        threading.Event().wait(max(0.0, sessions_end - time.monotonic()))
        whole = time.monotonic()
        load.stop_publishing()
        lag_s, reasons = _until_everywhere(mesh, load, whole)
        found = load.found()
        load.close()
        seconds = time.monotonic() - began
    found["late"] = int(lag_s > LAG_S_MAX)
    return {
        "seed": seed,
        "clusters": len(mesh.names),
        "cuts": len(planned),
        "hung": sum(cut.hangs for cut in planned),
        "kills": dict(Counter(kill.who.split("-")[0] for kill in killed)),
        "seconds": round(seconds, 1),
        "lagSeconds": round(lag_s, 1),
        **found,
        **({"left": reasons} if reasons else {}),
    }


def _cut_all(mesh: Mesh, planned: Sequence[Cut], began: float, console: Console, load: MeshLoad) -> None:
    steps = sorted(
        [(cut.at_s, number, True) for number, cut in enumerate(planned)]
        + [(cut.until_s, number, False) for number, cut in enumerate(planned)]
    )
    for at_s, number, begins in steps:
        threading.Event().wait(max(0.0, began + at_s - time.monotonic()))
        cut = planned[number]
        if begins:
            mesh.links.cut((cut.source, cut.target), hangs=cut.hangs)
            console.print(
                f"{time.monotonic() - began:6.1f} s: {cut.source} to {cut.target} {'hangs' if cut.hangs else 'is cut'} "
                f"for {cut.until_s - cut.at_s:.1f} s; {load.acknowledged:,} acknowledged",
                highlight=False,
            )
        else:
            mesh.links.mend((cut.source, cut.target))


def _kill(mesh: Mesh, kill: Kill, began: float, session_s: float, console: Console, load: MeshLoad) -> float:
    """One, and its start; when its session is over, if it was a broker."""
    threading.Event().wait(max(0.0, began + kill.at_s - time.monotonic()))
    cluster = mesh.clusters[kill.cluster]
    process = {**cluster.brokers, **cluster.bookies}[kill.who]
    process.kill()
    killed = time.monotonic()
    console.print(
        f"{killed - began:6.1f} s: {kill.who} of {kill.cluster} is killed for {kill.away_s:.1f} s; "
        f"{load.acknowledged:,} acknowledged",
        highlight=False,
    )
    threading.Event().wait(kill.away_s)
    cluster.start_gone()
    return killed + session_s if kill.who in cluster.brokers else killed


def _until_everywhere(mesh: Mesh, load: MeshLoad, since: float) -> tuple[float, list[str]]:
    """Seconds since then until nothing is left to be copied, and why something is."""
    while True:
        left, reasons = mesh.backlog(load.topics)
        lag_s = time.monotonic() - since
        if not left or lag_s > LAG_PATIENCE_S:
            break
        threading.Event().wait(LOOK_S)
    until = time.monotonic() + LAG_PATIENCE_S
    while not load.has_all() and time.monotonic() < until:
        threading.Event().wait(LOOK_S)
    return lag_s, reasons


def _parsed(data: bytes) -> tuple[str, int]:
    cluster, _, number = data.decode().partition(" ")
    return cluster, int(number)


def _read_all(client: pulsar.Client, topic: str) -> dict[str, list[int]]:
    """By the cluster that it is from, in the order of the topic."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: dict[str, list[int]] = {}
    while reader.has_message_available():
        cluster, number = _parsed(reader.read_next(timeout_millis=int(READ_S * 1000)).data())
        found.setdefault(cluster, []).append(number)
    reader.close()
    return found
