"""What a cluster of broker processes is asked beside messages: lookups, topics of one that is killed, and bundles.

All of ``geminga standalone --brokers N``: metadata and bookies are in the parent, on the same cores.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from tools.standalone_process import StandaloneProcess

from bench.broker_processes import children, cpu_of_servers, cpu_seconds_of
from bench.measure import Row
from bench.servers import Bench, BenchError, finish_load, load, start_load
from geminga.broker.ownership.core.bundles import topic_hash

GENERATOR = "bench.cluster_load"
#: Of lookups: topics, connections and how many each has in flight.
LOOKED_UP = 200
CONNECTIONS = 4
WINDOW = 64
#: Of the namespace whose topics are taken over.
TAKEN_BUNDLES = 16
#: Of the topics that are taken over, those that clients ask for first.
USED = 500
#: Namespaces of 128 bundles, as many as one may begin with, whose memory is measured, and those owned before.
NAMESPACES = 32
NAMESPACES_WARM = 4
BUNDLES_EACH = 128
#: Who ask where bundles are, at once.
ASKERS = 16


def lookups(bench: Bench) -> list[Row]:
    """Binary lookups a second: answered by the owner, and by another broker, which sends the client on to it."""
    rows: list[Row] = []
    for case, brokers, is_elsewhere in (
        ("one process", 0, False),
        ("--brokers 1", 1, False),
        ("--brokers 2, at the owner", 2, False),
        ("--brokers 2, at the other: sent on", 2, True),
    ):
        with bench.product(gemingaBrokers=str(brokers)) as broker:
            cut = _namespace(broker, "public/lookups", 4 * max(brokers, 1))
            owner = _owners(broker, "public/lookups", cut)
            port = next(port for port in owner.values() if (port == broker.broker_port) is not is_elsewhere)
            asked = broker.broker_port
            ranges = [each for each in owner if owner[each] == port]
            topics = list(itertools.islice(_names("public/lookups", ranges), LOOKED_UP))
            before = cpu_of_servers(broker)
            answer = load(
                "lookup",
                module=GENERATOR,
                port=asked,
                topics=topics,
                connections=CONNECTIONS,
                window=WINDOW,
                seconds=bench.seconds,
                owner_port=port,
            )
            after = cpu_of_servers(broker)
        rows.append(
            {
                "case": case,
                "topics": LOOKED_UP,
                "lookups/s": round(answer["rate"]),
                "CPU us, brokers": (after[0] - before[0]) / answer["answered"] * 1e6,
            }
        )
    return rows


def takeover(bench: Bench, count: int) -> list[Row]:
    """One of two broker processes is killed: all of its topics have clients, which come back at once."""
    with bench.product(gemingaBrokers="2") as broker:
        cut = _namespace(broker, "public/taken", TAKEN_BUNDLES)
        owners = _owners(broker, "public/taken", cut)
        port = next(port for port in owners.values() if port != broker.broker_port)
        generator = start_load(
            "takeover",
            module=GENERATOR,
            port=port,
            other_port=broker.broker_port,
            prefix="persistent://public/taken/topic-",
            ranges=[each for each in owners if owners[each] == port],
            count=count,
            used=min(USED, count),
        )
        assert generator.stdout is not None
        line = generator.stdout.readline()
        if "opened" not in line:
            raise BenchError(line or finish_load(generator)["error"])
        # The second one: the first has the standalone's port.
        survivor, killed = sorted(children(broker.pid))
        before = cpu_seconds_of(survivor), broker.cpu_seconds()
        os.kill(killed, signal.SIGKILL)
        answer = finish_load(generator)
        after = cpu_seconds_of(survivor), broker.cpu_seconds()
    return [
        {
            "topics": count,
            "opened/s": round(answer["opened_rate"]),
            f"first {min(USED, count)}: p50 s": answer["used_p50_s"],
            "p99 s": answer["used_p99_s"],
            "all: first s": answer["first_s"],
            "last s": answer["all_s"],
            "topics/s": round(answer["rate"]),
            "CPU us a topic, broker": round((after[0] - before[0]) / count * 1e6),
            "storage": round((after[1] - before[1]) / count * 1e6),
        }
    ]


def bundles(bench: Bench) -> list[Row]:
    """Memory per bundle that a broker owns, none of its topics being open: difference of RSS."""
    with bench.product(gemingaBrokers="1") as broker:
        (child,) = children(broker.pid)
        for number in range(NAMESPACES_WARM):
            _owners(broker, f"public/warm-{number}", _namespace(broker, f"public/warm-{number}", BUNDLES_EACH))
        cuts = {name: _namespace(broker, name, BUNDLES_EACH) for name in (f"public/of-{i}" for i in range(NAMESPACES))}
        time.sleep(1.0)
        before, parent_before = _rss_bytes(child), _rss_bytes(broker.pid)
        began = time.perf_counter()
        for name, cut in cuts.items():
            _owners(broker, name, cut)
        seconds = time.perf_counter() - began
        time.sleep(1.0)
        count = NAMESPACES * BUNDLES_EACH
        each, parent_each = (_rss_bytes(child) - before) / count, (_rss_bytes(broker.pid) - parent_before) / count
    return [
        {
            "namespaces": NAMESPACES,
            "bundles": count,
            "taken/s": round(count / seconds),
            "bytes each, broker": round(each),
            "bytes each, storage's process": round(parent_each),
        }
    ]


def _namespace(broker: StandaloneProcess, name: str, count: int) -> list[tuple[int, int]]:
    """A new namespace; the ranges of its bundles."""
    broker.request("PUT", f"/admin/v2/namespaces/{name}", {"bundles": {"numBundles": count}})
    told = json.loads(broker.request("GET", f"/admin/v2/namespaces/{name}/bundles"))
    boundaries = [int(text, 16) for text in told["boundaries"]]
    # The last one has its upper boundary, too.
    return [*itertools.pairwise([*boundaries[:-1], boundaries[-1] + 1])]


def _names(namespace: str, ranges: list[tuple[int, int]]) -> itertools.filterfalse[str]:
    """Topics that lie in one of these bundles."""
    names = (f"persistent://{namespace}/topic-{number}" for number in itertools.count())
    return itertools.filterfalse(lambda name: not any(low <= topic_hash(name) < high for low, high in ranges), names)


def _owners(broker: StandaloneProcess, namespace: str, cut: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """The broker's port of each bundle, which is owned then."""
    topics: dict[tuple[int, int], str] = {}
    width = cut[0][1] - cut[0][0]
    for number in itertools.count():
        topic = f"persistent://{namespace}/topic-{number}"
        value = topic_hash(topic)
        each = cut[min(value // width, len(cut) - 1)]
        topics.setdefault(each if each[0] <= value < each[1] else _holder(cut, value), topic)
        if len(topics) == len(cut):
            break

    def port_of(topic: str) -> int:
        told = json.loads(broker.request("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}"))
        port = urlsplit(told["brokerUrl"]).port
        assert port is not None
        return port

    with ThreadPoolExecutor(ASKERS) as pool:
        return dict(zip(topics, pool.map(port_of, topics.values()), strict=True))


def _holder(cut: list[tuple[int, int]], value: int) -> tuple[int, int]:
    return next(each for each in cut if each[0] <= value < each[1])


def _rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"process {pid} is gone")
