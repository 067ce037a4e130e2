"""Publishing onto one bookie and onto several, beside the bare floor: each system takes its turn on the same disk.

The floor writes each message once, to a file; a broker with 3/2/2 has it written by two bookies, and both have to be
durable before the receipt. Standalones have their bookies inside; in a cluster broker, bookies and ZooKeeper are
processes of their own, all on this machine: what that costs is in ``CPU us``, of all servers' processes together.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tools.chaos.cluster import Cluster
from tools.standalone_process import StandaloneProcess

from bench.measure import FRAMES, TOPIC, Row, in_flight
from bench.servers import Bench, load

SIZES = (100, 1024)
CONNECTIONS = 16
#: Of the paced rows.
RATE = 1_000
SESSION_MS = 10_000
BOOKIES = 3
ONE, THREE = (1, 1, 1), (3, 2, 2)


class System(NamedTuple):
    """What is measured: where messages go, and whose processor time it costs."""

    name: str
    port: int
    processes: Sequence[StandaloneProcess]

    def cpu_seconds(self) -> float:
        """Of its servers so far."""
        return sum(process.cpu_seconds() for process in self.processes)


def settings_of(quorums: tuple[int, int, int]) -> dict[str, str]:
    """A broker's."""
    names = ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum")
    return {name: str(value) for name, value in zip(names, quorums, strict=True)}


@contextlib.contextmanager
def cluster(bench: Bench, quorums: tuple[int, int, int], bookies: int = BOOKIES, **settings: str) -> Iterator[Cluster]:
    """ZooKeeper, bookies and a broker as processes; ZooKeeper syncs its log as well."""
    with bench.directory("cluster") as directory:
        made = Cluster(
            directory,
            bookies=bookies,
            session_ms=SESSION_MS,
            broker_settings={"gemingaEventLoop": bench.loop, **settings_of(quorums), **bench.settings, **settings},
            bookie_settings={"gemingaEventLoop": bench.loop},
            sync=True,
        )
        try:
            made.start()
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def systems(bench: Bench) -> Iterator[list[System]]:
    """All of them, each at rest while another is measured."""
    with contextlib.ExitStack() as stack:
        found = [System("bare floor", stack.enter_context(bench.floor()), ())]
        one = stack.enter_context(bench.product(**settings_of(ONE)))
        found.append(System("standalone, 1/1/1", one.broker_port, [one]))
        three = stack.enter_context(bench.product(gemingaBookies=str(BOOKIES), **settings_of(THREE)))
        found.append(System(f"standalone of {BOOKIES} bookies, 3/2/2", three.broker_port, [three]))
        for quorums in (ONE, THREE):
            made = stack.enter_context(cluster(bench, quorums))
            name = f"broker and {BOOKIES} bookies as processes, {'/'.join(map(str, quorums))}"
            found.append(System(name, made.broker.broker_port, [made.broker, *made.bookies.values()]))
        yield found


def in_turns(bench: Bench, found: Sequence[System], measure: Callable[[System], Row]) -> dict[str, Row]:
    """Medians of ``rounds`` turns, by system."""
    seen: dict[str, list[Row]] = {}
    for _ in range(bench.rounds):
        for system in found:
            seen.setdefault(system.name, []).append(measure(system))
    return {
        name: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]} for name, turns in seen.items()
    }


def publish(bench: Bench) -> list[Row]:
    """Rates of each size, then latencies at a rate that all can keep."""
    rows: list[Row] = []
    with systems(bench) as found:
        for size in SIZES:
            medians = in_turns(bench, found, lambda system, size=size: _fast(bench, system, size))
            floor = medians["bare floor"]["rate"]
            one = {name: row["rate"] for name, row in medians.items() if name.endswith("1/1/1")}
            for name, row in medians.items():
                beside = one.get(name.replace("3/2/2", "1/1/1").replace(f" of {BOOKIES} bookies", ""))
                rows.append(
                    {
                        "system": name,
                        "load": f"{size:,} B, {CONNECTIONS} connections",
                        "messages/s": round(row["rate"]),
                        "to floor": row["rate"] / floor,
                        "to 1/1/1": row["rate"] / beside if beside else "-",
                        "CPU us": round(row["cpu_us"], 1) or "-",
                        "p50 ms": "-",
                        "p99 ms": "-",
                    }
                )
        medians = in_turns(bench, found, lambda system: _paced(bench, system))
    for name, row in medians.items():
        rows.append(
            {
                "system": name,
                "load": f"{SIZES[0]:,} B, {RATE:,}/s",
                "messages/s": RATE,
                "to floor": "-",
                "to 1/1/1": "-",
                "CPU us": round(row["cpu_us"], 1) or "-",
                "p50 ms": row["p50"],
                "p99 ms": row["p99"],
            }
        )
    return rows


def _fast(bench: Bench, system: System, size: int) -> Row:
    before = system.cpu_seconds()
    answer = load(
        "publish",
        port=system.port,
        topics=[f"{TOPIC}-quorums-{size}"],
        connections=CONNECTIONS,
        in_flight=in_flight(size),
        frames=bench.frames(size, FRAMES[size]),
        seconds=bench.seconds,
        warmup_s=bench.warmup_s,
    )
    cpu = system.cpu_seconds() - before
    return {"rate": answer["rate"], "cpu_us": cpu / answer["receipts"] * 1e6}


def _paced(bench: Bench, system: System) -> Row:
    before = system.cpu_seconds()
    answer = paced(bench, system.port, f"{TOPIC}-quorums-paced", SIZES[0], RATE)
    cpu = system.cpu_seconds() - before
    return {"p50": answer["p50"], "p99": answer["p99"], "cpu_us": cpu / answer["sends"] * 1e6}


def paced(bench: Bench, port: int, topic: str, size: int, rate: int, seconds: float = 0.0) -> Row:
    """Latencies of sends at a fixed rate, counted from when each was due."""
    seconds = seconds or bench.seconds
    answer = load(
        "paced",
        port=port,
        topics=[topic],
        frames=bench.frames(size, FRAMES[size]),
        rate=rate,
        seconds=seconds,
        warmup_s=bench.warmup_s,
    )
    return {**answer, "sends": int(rate * (seconds + bench.warmup_s))}
