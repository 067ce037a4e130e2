"""``make demo CLUSTERS=3``: each of the clusters gets its share of the events, and copies it to all others.

A broker is killed while events are published: it is copied to, and copies. What each cluster has then is held against
what was acknowledged anywhere, as the demo of one cluster does it.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pulsar
from rich.console import Console
from rich.table import Table
from tools.chaos.cluster import BrokerProcess, Cluster

from demo.delivery import TOPIC, Publishing, consume, progress_bars, publish
from demo.events import Events
from demo.verdict import Verdict
from geminga.app.local.mesh_registration import ClusterUrls, connect_all

PARTITIONS = 4
SESSION_MS = 4000
#: Seconds that the events are published over, so that a broker is away meanwhile; few take less.
PUBLISH_S = 10.0
RATE_MIN = 1000
#: Seconds that it is away.
AWAY_S = 1.0
#: Until nothing is left to be copied, once everything is published.
PATIENCE_S = 60.0
LOOK_S = 0.1
PATH = TOPIC.replace("://", "/")


@dataclass(slots=True)
class InCluster:
    """What there is of the events in one cluster."""

    cluster: str
    published: int
    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    #: Of entries, to all others.
    backlog: int = 0


@dataclass(slots=True)
class Told:
    """The result."""

    events: int
    killed: str = ""
    #: From the last receipt until nothing was left to be copied.
    copied_s: float = 0.0
    clusters: list[InCluster] = field(default_factory=list)


def names_of(clusters: int) -> list[str]:
    """As the clusters are called."""
    return [f"city-{number + 1}" for number in range(clusters)]


def shares(events: int, clusters: int) -> list[range]:
    """Numbers of the events that each cluster gets: as many one behind the other, the last one what is left."""
    each = events // clusters
    return [range(index * each, events if index == clusters - 1 else (index + 1) * each) for index in range(clusters)]


def run(
    console: Console, events: Events, directory: Path, *, clusters: int, bookies: int, brokers: int, as_json: bool
) -> list[str]:
    """All of it; the reasons why it failed. Raises StartError, GemingaError."""
    copies = min(2, bookies)
    settings = {
        "managedLedgerDefaultEnsembleSize": copies,
        "managedLedgerDefaultWriteQuorum": copies,
        "managedLedgerDefaultAckQuorum": copies,
        "brokerDeduplicationEnabled": "true",
    }
    started = time.perf_counter()
    with ExitStack() as stack:
        made: dict[str, Cluster] = {}
        for name in names_of(clusters):
            made[name] = Cluster(
                directory / name,
                bookies=bookies,
                brokers=brokers,
                session_ms=SESSION_MS,
                broker_settings={"clusterName": name, **settings},
            )
            (directory / name).mkdir()
            stack.callback(made[name].close)
            made[name].start()
        connect_all({name: urls_of(cluster) for name, cluster in made.items()})
        each = f"ZooKeeper, {bookies} bookie{'s' * (bookies > 1)} and {brokers} broker{'s' * (brokers > 1)}"
        console.print(
            f"{clusters} clusters that copy to each other, each of {each}: {clusters * (1 + bookies + brokers)} "
            f"processes, ready after {time.perf_counter() - started:.1f} s",
            highlight=False,
        )
        told, failures = _publish_and_read(console, made, events, directory)
    if as_json:
        print(json.dumps(asdict(told)))
    else:
        report(console, told)
    return failures


def urls_of(cluster: Cluster) -> ClusterUrls:
    """Of all its brokers."""
    hosts = ",".join(f"127.0.0.1:{broker.web_port}" for broker in cluster.brokers.values())
    return ClusterUrls(f"http://{hosts}", cluster.service_url)


def _publish_and_read(
    console: Console, made: dict[str, Cluster], events: Events, directory: Path
) -> tuple[Told, list[str]]:
    told = Told(len(events.rows))
    numbers = dict(zip(made, shares(len(events.rows), len(made)), strict=True))
    clients = {}
    for cluster in made.values():
        cluster.broker.request("PUT", f"/admin/v2/{PATH}/partitions", PARTITIONS)
    for name, cluster in made.items():
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / f"{name}.client.log"))
        clients[name] = pulsar.Client(cluster.service_url, logger=logger, operation_timeout_seconds=30)
        # What nobody is subscribed to may go once it is copied.
        clients[name].subscribe(TOPIC, "demo", initial_position=pulsar.InitialPosition.Earliest).close()
    with progress_bars(console) as progress, ThreadPoolExecutor(len(made)) as threads:
        victim = _victim(made)

        def lose(state: Publishing) -> None:
            told.killed = f"{victim[0]} {victim[1].service_url}"
            acknowledged = len(state.acknowledged)
            victim[1].kill()
            progress.console.print(
                f"[bold red]kill -9[/] of broker {victim[1].service_url} of {victim[0]}, with {acknowledged:,} events "
                "acknowledged there",
                highlight=False,
            )
            threading.Event().wait(AWAY_S)
            victim[1].start()
            progress.console.print(f"it starts again, after {victim[1].start_seconds[-1] * 1000:.0f} ms")

        def publish_in(name: str) -> Publishing:
            share = numbers[name]
            part = Events(events.rows[share.start : share.stop], events.origin)
            over_s = min(PUBLISH_S, len(share) / RATE_MIN)
            halfway = lose if name == victim[0] else None
            return publish(clients[name], part, progress, halfway, over_s=over_s, name=name, first=share.start)

        states = dict(zip(made, threads.map(publish_in, made), strict=True))
        ended = time.monotonic()
        backlogs = _until_copied(made, ended + PATIENCE_S)
        told.copied_s = time.monotonic() - ended

        acknowledged = set().union(*(state.acknowledged for state in states.values()))
        verdicts = {name: Verdict(len(events.rows), acknowledged, set()) for name in made}
        producers = {number: name for name, share in numbers.items() for number in share}

        def read_in(name: str) -> None:
            consume(
                clients[name],
                verdicts[name],
                events,
                progress,
                name=f"found in {name}",
                order_of=lambda message, number: f"{producers.get(number)} in {message.topic_name()}",
            )

        list(threads.map(read_in, made))
    failures = []
    for name, verdict in verdicts.items():
        state = states[name]
        told.clusters.append(_judged(name, len(numbers[name]), state, verdict, backlogs[name]))
        reasons = verdict.failures(expects_no_duplicates=True)
        if backlogs[name]:
            reasons.append(f"{backlogs[name]:,} entries are not copied after {PATIENCE_S:.0f} s")
        reasons += [f"{count:,} sends failed with {error}" for error, count in state.errors.items()]
        failures += [f"in {name} {reason}" for reason in reasons]
        clients[name].close()
    return told, failures


def _judged(name: str, published: int, state: Publishing, verdict: Verdict, backlog: int) -> InCluster:
    return InCluster(
        name,
        published,
        acknowledged=len(state.acknowledged),
        found=len(verdict.first_seen),
        lost=len(verdict.lost),
        duplicated=len(verdict.duplicates),
        out_of_order=len(verdict.out_of_order),
        backlog=backlog,
    )


def _victim(made: dict[str, Cluster]) -> tuple[str, BrokerProcess]:
    """A broker of the second cluster."""
    name = list(made)[1]
    return name, made[name].broker


def _until_copied(made: dict[str, Cluster], until: float) -> dict[str, int]:
    """Entries of each cluster that are still to be copied, once there are none or the time is over."""
    while True:
        backlogs = {name: _backlog(cluster.broker, len(made) - 1) for name, cluster in made.items()}
        if not any(backlogs.values()) or time.monotonic() > until:
            return {name: backlog or 0 for name, backlog in backlogs.items()}
        threading.Event().wait(LOOK_S)


def _backlog(broker: BrokerProcess, others: int) -> int | None:
    """Of all partitions and other clusters; None: not all of these are copied to yet, and something is left."""
    stats = json.loads(broker.request("GET", f"/admin/v2/{PATH}/partitioned-stats?perPartition=true"))
    found = [one["replication"] for one in stats["partitions"].values()]
    backlog = sum(int(copied["replicationBacklog"]) for one in found for copied in one.values())
    is_connected = all(len(one) == others and all(copied["connected"] for copied in one.values()) for one in found)
    return backlog if is_connected and len(found) == PARTITIONS else max(1, backlog)


def report(console: Console, told: Told) -> None:
    """The table on screen."""
    table = Table(title=f"What each cluster has of {told.events:,} events")
    table.add_column("cluster", style="cyan")
    titles = ("sent", "receipts", "found", "lost", "twice", "disordered", "uncopied")
    for title in titles:
        table.add_column(title, justify="right")
    for one in told.clusters:
        numbers = (one.published, one.acknowledged, one.found, one.lost, one.duplicated, one.out_of_order, one.backlog)
        table.add_row(one.cluster, *(f"{number:,}" for number in numbers))
    console.print(table)
    console.print(
        f"order: of each producer in each partition, by first deliveries; deduplication is on; all was copied "
        f"{told.copied_s:.1f} s after the last receipt",
        highlight=False,
    )
