"""Publish and consume with one broker in the storage's process, and with one and two broker processes beside it.

The same generator for all: a publisher per topic in one process, then a consumer per topic in a process each. The
topics are spread evenly over the brokers, and each is asked for where it is. On a machine of few cores generator and
servers share them: what a message costs the servers is in ``CPU us``, of the brokers' processes and of all; ``cost`` is
that of the brokers' beside a whole standalone's, and ``met`` says whether both are within the goal.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from tools.standalone_process import StandaloneProcess

from bench.measure import TOPIC, Row, frame_count, in_flight
from bench.servers import Bench, BenchError, finish_load, load, start_load

TOPICS = 4
#: Entries of each topic, by their size: single messages, and batches of a hundred as clients send them by default.
ENTRIES = {100: 60_000, 1_024: 40_000, 10_000: 8_000}
#: At most so many times what a message costs a standalone may it cost a broker process alone: the goal.
COST_MAX = 1.15
#: Names that are tried until the topics are spread evenly.
NAMES_MAX = 200
#: Broker processes; 0: the broker is in the process of its storage.
CASES = (0, 1, 2)
_TICKS = os.sysconf("SC_CLK_TCK")


def broker_processes(bench: Bench) -> list[Row]:
    """Medians of ``rounds`` turns of each case, all on the same disk."""
    return [row for size in ENTRIES for row in _of_size(bench, size)]


def _of_size(bench: Bench, size: int) -> list[Row]:
    turns: dict[int, list[Row]] = {}
    for _ in range(bench.rounds):
        for count in CASES:
            turns.setdefault(count, []).append(_turn(bench, count, size))
    medians = {
        count: {key: statistics.median(turn[key] for turn in rows) for key in rows[0]} for count, rows in turns.items()
    }
    alone = medians[0]
    return [
        {
            "case": f"--brokers {count}" if count else "one process",
            "entry B": size,
            "published/s": round(row["published"]),
            "x": row["published"] / alone["published"],
            "CPU us, brokers": row["publish_us"],
            "cost": row["publish_us"] / alone["publish_us"],
            "all": row["publish_all_us"],
            "consumed/s": round(row["consumed"]),
            "x ": row["consumed"] / alone["consumed"],
            "CPU us, brokers ": row["consume_us"],
            "cost ": row["consume_us"] / alone["consume_us"],
            "all ": row["consume_all_us"],
            "met": "-" if not count else "yes" if _is_met(row, alone) else "NO",
        }
        for count, row in medians.items()
    ]


def _is_met(row: Row, alone: Row) -> bool:
    return all(row[key] <= COST_MAX * alone[key] for key in ("publish_us", "consume_us"))


def _turn(bench: Bench, count: int, size: int) -> Row:
    with bench.product(gemingaBrokers=str(count)) as broker:
        places = _spread(broker, max(count, 1))
        before = cpu_of_servers(broker)
        published = load(
            "publish",
            port=broker.broker_port,
            ports=list(places.values()),
            topics=list(places),
            connections=TOPICS,
            in_flight=in_flight(size),
            frames=bench.frames(size, frame_count(size)),
            count=ENTRIES[size],
        )
        between = cpu_of_servers(broker)
        readers = [
            start_load(
                "consume",
                port=port,
                topics=[topic],
                subscription="bench",
                count=ENTRIES[size],
                permits=2_000,
                acks="cumulative",
                in_order=True,
                from_first=True,
            )
            for topic, port in places.items()
        ]
        consumed = [finish_load(reader) for reader in readers]
        after = cpu_of_servers(broker)
    total = TOPICS * ENTRIES[size]
    slowest_s = max(answer["seconds"] for answer in consumed)
    costs = {
        f"{what}{name}_us": (late[index] - early[index]) / total * 1e6
        for what, early, late in (("publish", before, between), ("consume", between, after))
        for index, name in enumerate(("", "_all"))
    }
    return {"published": published["whole_rate"], "consumed": total / slowest_s, **costs}


def _spread(broker: StandaloneProcess, brokers: int) -> dict[str, int]:
    """Topics and the ports where they are, the same number at each broker."""
    found: dict[str, int] = {}
    at: Counter[int] = Counter()
    for number in range(NAMES_MAX):
        topic = f"{TOPIC}-processes-{number}"
        told = json.loads(broker.request("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}"))
        port = urlsplit(told["brokerUrl"]).port
        assert port is not None
        if at[port] < TOPICS // brokers:
            at[port] += 1
            found[topic] = port
        if len(found) == TOPICS:
            return found
    raise BenchError(f"{NAMES_MAX} topics were asked for, and are at {len(at)} of {brokers} brokers")


def cpu_of_servers(broker: StandaloneProcess) -> tuple[float, float]:
    """CPU seconds of the brokers' processes, and of all the servers'."""
    parent = broker.cpu_seconds()
    of_children = sum(map(cpu_seconds_of, children(broker.pid)))
    return of_children or parent, parent + of_children


def children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text(encoding="ascii").split()
    ]


def cpu_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
