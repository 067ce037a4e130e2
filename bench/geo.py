"""``python -m bench geo``: what a replicated message costs beside a published one, and Apache Pulsar beside it.

Two standalones of a kind, ``east`` copies to ``west``; both sync their journal before each receipt. CPU is that of the
servers, both sides together. The link goes through a forwarder where it is cut.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from tools.chaos.cluster import free_ports
from tools.chaos.links import Links
from tools.standalone_process import ROOT, StandaloneProcess, StartError

from bench.peers.rows import PULSAR
from bench.peers.servers import GEMINGA, Kind, find_kinds
from bench.servers import Bench, BenchError, environment, load
from geminga.app.local.mesh_registration import ClusterUrls, introduce, replicate, share
from geminga.model.errors import GemingaError

Row = dict[str, Any]
LOAD: Final = "bench.geo_load"
NAMES: Final = ("east", "west")
COPIED: Final = "persistent://public/default/"
HERE: Final = "persistent://public/here/"
#: What both sides together may cost of a published message.
GOAL: Final = 2.5
SIZE: Final = 100
CUT_RATE: Final = 20_000
#: Messages of each measured load, and before it.
COUNTS: Final = {True: 1_000_000, False: 60_000}
WARM_SHARE: Final = {GEMINGA: 0.2, PULSAR: 1.0}
START_S: Final = 120.0
PATIENCE_S: Final = 300.0
LOOK_S: Final = 0.05
#: Until many topics are in the other cluster, and between two looks.
MANY_PATIENCE_S: Final = 1800.0
MANY_LOOK_S: Final = 10.0
#: A busy topic's messages a second.
BUSY_RATE: Final = 10


@dataclass(slots=True)
class Found:
    """Of one kind of server: by row, the figure."""

    figures: dict[str, float] = field(default_factory=dict)


class Pair:
    """Two clusters of one server each."""

    def __init__(self, kind: Kind, bench: Bench, directory: Path, *, links: Links | None) -> None:
        self.servers: dict[str, StandaloneProcess] = {}
        self._links = links
        self._ports: tuple[int, int] | None = None
        for name in NAMES:
            also = {"clusterName": name, "brokerDeduplicationEnabled": "true"}
            server_port = free_ports(1)[0]
            if links is not None and name == "west":
                self._ports = links.forward("link"), links.forward("link")
                inside = f"inside:pulsar://127.0.0.1:{server_port}"
                also["advertisedListeners"] = f"{inside},east:pulsar://127.0.0.1:{self._ports[1]}"
                also["internalListenerName"] = "inside"
            server = kind.make(bench, directory / name, also=also)
            server.broker_port = server_port
            if kind.name == PULSAR:
                server.web_port, server._bookie_port = free_ports(2)  # type: ignore[attr-defined]
            self.servers[name] = server
        self.east, self.west = (self.servers[name] for name in NAMES)

    def start(self) -> None:
        """Both, and what is needed to copy. Raises StartError, GemingaError."""
        for server in self.servers.values():
            server.start(START_S)
        urls = ClusterUrls(self.west.web_url, self.west.service_url)
        if self._links is not None and self._ports is not None:
            web, binary = self._ports
            self._links.lead(web, ("127.0.0.1", self.west.web_port))
            self._links.lead(binary, ("127.0.0.1", self.west.broker_port))
            urls = ClusterUrls(f"http://127.0.0.1:{web}", f"pulsar://127.0.0.1:{binary}", listener_name="east")
        introduce(self.east.web_url, "east", {"west": urls})
        introduce(self.west.web_url, "west", {"east": ClusterUrls(self.east.web_url, self.east.service_url)})
        for name, server in self.servers.items():
            share(server.web_url, name, NAMES)
        self.east.request("PUT", "/admin/v2/namespaces/public/here", {"replication_clusters": ["east"]})
        replicate(self.east.web_url, "east", NAMES)

    def cpu_seconds(self) -> float:
        """Of both."""
        return sum(server.cpu_seconds() for server in self.servers.values())

    def backlog(self, topic: str) -> int:
        """Entries that are not copied; one where that is not known yet."""
        found = json.loads(self.east.request("GET", f"/admin/v2/{topic.replace('://', '/')}/stats"))["replication"]
        one = found.get("west")
        return (
            max(1, int(one["replicationBacklog"]))
            if one is None or not one["connected"]
            else int(one["replicationBacklog"])
        )

    def until_copied(self, topic: str) -> float:
        """Seconds from now. Raises BenchError."""
        started = time.perf_counter()
        while self.backlog(topic):
            if time.perf_counter() - started > PATIENCE_S:
                raise BenchError(f"{topic} is not copied after {PATIENCE_S:.0f} s")
            time.sleep(LOOK_S)
        return time.perf_counter() - started

    def until_there(self, count: int) -> None:
        """Until so many topics are in the other cluster, each of which has its link. Raises BenchError."""
        started = time.perf_counter()
        while self._topics_there() < count:
            if time.perf_counter() - started > MANY_PATIENCE_S:
                raise BenchError(f"{count:,} topics are not in the other cluster after {MANY_PATIENCE_S:.0f} s")
            # Each look costs as much as all topics have metrics.
            time.sleep(MANY_LOOK_S)

    def _topics_there(self) -> float:
        lines = self.west.request("GET", "/metrics", timeout_s=PATIENCE_S).decode().splitlines()
        told = [line for line in lines if line.startswith("pulsar_topics_count{") and '"public/default"' in line]
        return max((float(line.split()[-1]) for line in told), default=0.0)

    def close(self) -> None:
        """kill -9."""
        for server in self.servers.values():
            server.kill()


@contextmanager
def started(kind: Kind, bench: Bench, *, links: Links | None = None) -> Iterator[Pair]:
    """A pair on a directory that goes with it."""
    with bench.directory(f"geo-{kind.name}") as directory:
        pair = Pair(kind, bench, directory, links=links)
        try:
            pair.start()
            yield pair
        except (StartError, GemingaError) as error:
            raise BenchError(f"{kind.title}: {error}") from None
        finally:
            pair.close()


def measure_cost(pair: Pair, kind: Kind, bench: Bench) -> dict[str, float]:
    """CPU and rate of messages that stay, and of those that are copied, in turns."""
    found: dict[str, float] = {}
    for batched, title in ((True, "batched"), (False, "unbatched")):
        count = COUNTS[batched]
        each: dict[str, list[tuple[float, float]]] = {HERE: [], COPIED: []}
        for turn in range(bench.rounds + 1):
            for prefix in (HERE, COPIED):
                topic = f"{prefix}cost-{title}"
                total = int(count * WARM_SHARE[kind.name]) if turn == 0 else count
                before, began = pair.cpu_seconds(), time.perf_counter()
                load(
                    "publish",
                    module=LOAD,
                    url=pair.east.service_url,
                    topic=topic,
                    batched=batched,
                    size=SIZE,
                    count=total,
                )
                if prefix == COPIED:
                    pair.until_copied(topic)
                took, cpu = time.perf_counter() - began, pair.cpu_seconds() - before
                if turn:
                    each[prefix].append((cpu * 1e6 / total, total / took))
        here, copied = ([statistics.median(values) for values in zip(*each[prefix], strict=True)] for prefix in each)
        found[f"{title}: CPU us published here"] = here[0]
        found[f"{title}: CPU us copied, both sides"] = copied[0]
        found[f"{title}: copied / published"] = copied[0] / here[0]
        found[f"{title}: copied a second"] = copied[1]
    return found


def measure_lag(pair: Pair, rate: float, seconds: float, how: str) -> dict[str, float]:
    """From the send here to the message over there."""
    answer = load(
        "paced",
        module=LOAD,
        url=pair.east.service_url,
        there=pair.west.service_url,
        topic=f"{COPIED}lag-{rate:.0f}",
        rate=rate,
        size=SIZE,
        seconds=seconds,
    )
    return {f"lag {name} ms at {how}": answer["lag"][name] for name in ("p50", "p99")}


def measure_topics(pair: Pair, count: int, seconds: float) -> dict[str, float]:
    """Idle ones beside 1 % that are busy."""
    before = {name: server.rss_bytes() for name, server in pair.servers.items()}
    busy = max(1, count // 100)
    spec = {"mode": "topics", "url": pair.east.service_url, "topic": f"{COPIED}many", "count": count, "busy": busy}
    spec |= {"rate": BUSY_RATE, "size": SIZE, "seconds": seconds}
    process = subprocess.Popen(
        [sys.executable, "-m", LOAD, json.dumps(spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        made = json.loads(process.stdout.readline() or '{"error": "it ended"}')
        if "error" in made:
            raise BenchError(str(made["error"]))
        pair.until_there(count)
        for number in (0, count // 2, count - 1):
            pair.until_copied(f"{COPIED}many-{number}")
        grown = sum(server.rss_bytes() - before[name] for name, server in pair.servers.items())
        cpu = pair.cpu_seconds()
        time.sleep(seconds)
        idle = (pair.cpu_seconds() - cpu) / seconds
        cpu, began = pair.cpu_seconds(), time.perf_counter()
        process.stdin.write("go\n")
        process.stdin.flush()
        json.loads(process.stdout.readline())
        spent = (pair.cpu_seconds() - cpu) / (time.perf_counter() - began)
    title = f"{count:,} topics"
    return {
        f"{title}: KiB each, both sides": grown / 1024 / count,
        f"{title}: CPU % idle": idle * 100,
        f"{title}: CPU % with 1 % busy, {BUSY_RATE}/s each": spent * 100,
    }


def measure_cut(pair: Pair, links: Links, seconds: float) -> dict[str, float]:
    """Publishing while the link works and while it is cut; then how fast what is left is copied."""
    topic = f"{COPIED}cut"

    def put(duration_s: float) -> dict[str, Any]:
        return load(
            "paced",
            module=LOAD,
            limit_s=duration_s + PATIENCE_S,
            url=pair.east.service_url,
            topic=topic,
            rate=CUT_RATE,
            size=SIZE,
            seconds=duration_s,
        )

    put(2.0)
    pair.until_copied(topic)
    whole = put(min(seconds, 10.0))
    pair.until_copied(topic)
    links.cut("link", hangs=False)
    cut = put(seconds)
    links.mend("link")
    took = pair.until_copied(topic)
    title = f"cut {seconds:.0f} s at {CUT_RATE:,}/s"
    return {
        f"{title}: receipt p99 ms before": whole["receipt"]["p99"],
        f"{title}: receipt p99 ms meanwhile": cut["receipt"]["p99"],
        f"{title}: published a second meanwhile": cut["rate"],
        f"{title}: s until copied": took,
        f"{title}: caught up a second": CUT_RATE * seconds / took,
    }


def measure(kind: Kind, bench: Bench, options: argparse.Namespace) -> dict[str, float]:
    """All figures of one kind of server. Raises BenchError."""
    parts = [part.strip() for part in options.k.split(" or ") if part.strip()] or ["cost", "lag", "topics", "cut"]
    found: dict[str, float] = {}
    if {"cost", "lag", "topics"} & set(parts):
        with started(kind, bench) as pair:
            if "cost" in parts:
                found |= measure_cost(pair, kind, bench)
            if "lag" in parts:
                found |= measure_lag(pair, options.rate, bench.seconds, f"{options.rate:,}/s")
            if {"cost", "lag"} <= set(parts):
                found |= measure_lag(pair, found["batched: copied a second"] / 2, bench.seconds, "half the rate")
            if "topics" in parts:
                found |= measure_topics(pair, options.count, bench.seconds)
    if "cut" in parts:
        links = Links()
        try:
            with started(kind, bench, links=links) as pair:
                found |= measure_cut(pair, links, options.cut_seconds)
        finally:
            links.close()
    return found


def geo(bench: Bench, options: argparse.Namespace) -> list[Row]:
    """The table; Apache beside, where it is here."""
    console = Console(stderr=True, soft_wrap=True)
    found: dict[str, dict[str, float]] = {}
    for name, kind in find_kinds().items():
        if name not in (GEMINGA, PULSAR):
            continue
        if kind.missing:
            console.print(f"without {kind.title}: {kind.missing}", markup=False, highlight=False)
            continue
        if name != GEMINGA and options.alone:
            continue
        found[name] = measure(kind, bench, options)
        # Before the other one's turn: that takes minutes.
        for title, figure in found[name].items():
            console.print(f"{kind.title}: {title}: {figure:,.2f}", markup=False, highlight=False)
    ours, theirs = found[GEMINGA], found.get(PULSAR, {})
    rows: list[Row] = []
    for title, figure in ours.items():
        other = theirs.get(title)
        is_rate = title.endswith("a second") or "a second " in title
        times = "" if not other or not figure else round(figure / other if is_rate else other / figure, 2)
        met = "" if "copied / published" not in title else ("yes" if figure <= GOAL else "NO")
        rows.append(
            {"what": title, "Geminga": figure, "Pulsar": "" if other is None else other, "times": times, "met": met}
        )
    return rows
