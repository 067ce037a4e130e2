"""A publisher's latencies beside a reader that catches up at full speed: on a bookie by itself, then through brokers.

On a machine of few cores the reader's own process, and what servers do for it, take processor time that the publisher's
process and the servers wait for, whatever they do. How much that is shows a control: the publisher with no reader,
beside processes that have nothing to do with any of it. One uses as much processor time as the reader's client did;
others, as much as the servers did beyond what they use without a reader.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tools.standalone_process import StandaloneProcess

from bench.bookie_entries import bookie, entry_load, start_entry_load
from bench.bookie_publish import ONE, THREE, cluster, paced
from bench.measure import FRAMES, TOPIC, Row, in_flight
from bench.servers import Bench, BenchError, load, start_load

SIZE = 1024
RATE = 2_000
#: Stored before, and read while the publisher goes on: more than is read meanwhile.
BACKLOG_CONNECTIONS = 4
#: Of a bookie alone: what is stored, entries and bytes of each read (as a broker asks), and reads under way.
STORED = 200_000
READ_ENTRIES = 100
READ_BYTES_MAX = 5 * 1024 * 1024
READS_IN_FLIGHT = 2
PERMITS = 2_000
#: Shortest measurement of a turn, seconds.
SECONDS_MIN = 4.0
#: p99 with a reader over p99 without.
GOAL = 1.5
BACKLOG, LIVE = f"{TOPIC}-backlog", f"{TOPIC}-live"
BOOKIE = "a bookie's process, without a broker"
SYSTEMS = (
    "standalone, 1/1/1",
    "broker and 3 bookies as processes, 1/1/1",
    "broker and 3 bookies as processes, 3/2/2",
)
_TICKS = os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A broker, and how to make its caches cold."""

    name: str
    broker: StandaloneProcess
    bookies: Sequence[StandaloneProcess]

    def restart(self) -> None:
        """The broker, so that nothing is in its cache, and bookies of their own."""
        self.broker.stop()
        for process in self.bookies:
            process.stop()
            process.start()
        self.broker.start()


@dataclass(slots=True)
class Turns:
    """What was seen in the turns of one system."""

    alone: list[Row] = field(default_factory=list)
    beside: list[Row] = field(default_factory=list)
    control: list[Row] = field(default_factory=list)
    #: Messages the reader got a second.
    read: list[float] = field(default_factory=list)

    def row(self, name: str) -> Row:
        """Medians."""
        p99, with_reader, with_control = (
            statistics.median(row["p99"] for row in rows) for rows in (self.alone, self.beside, self.control)
        )
        return {
            "system": name,
            "p50 ms": statistics.median(row["p50"] for row in self.alone),
            "p99 ms": p99,
            "with reader: p50": statistics.median(row["p50"] for row in self.beside),
            "p99 ms ": with_reader,
            "read/s": round(statistics.median(self.read)),
            "p99 x": with_reader / p99,
            "goal": GOAL,
            "met": "yes" if with_reader / p99 <= GOAL else "NO",
            "same CPU by others: cores": statistics.median(row["cores"] for row in self.control),
            "p99 ms  ": with_control,
            "p99 x ": with_control / p99,
        }


def isolation(bench: Bench, wanted: str = "") -> list[Row]:
    """Alone, beside a reader at full speed, and beside others that use as much of the processor, in turns.

    ``wanted``: only systems whose name contains this, or one of several joined by "or".
    """
    texts = wanted.split(" or ")
    names = [name for name in (BOOKIE, *SYSTEMS) if any(text in name for text in texts)]
    if not names:
        raise BenchError(f"no system is called so: {wanted!r}; there are: {BOOKIE}; {'; '.join(SYSTEMS)}")
    return [_on_a_bookie(bench) if name == BOOKIE else _through_a_broker(bench, name) for name in names]


def _through_a_broker(bench: Bench, name: str) -> Row:
    turns = Turns()
    with _served(bench, name) as served:
        load(
            "publish",
            port=served.broker.broker_port,
            topics=[BACKLOG],
            connections=BACKLOG_CONNECTIONS,
            in_flight=in_flight(SIZE),
            frames=bench.frames(SIZE, FRAMES[SIZE]),
        )
        served.restart()

        def publish() -> Row:
            return paced(bench, served.broker.broker_port, LIVE, SIZE, RATE, max(bench.seconds, SECONDS_MIN))

        servers = [served.broker.pid, *(process.pid for process in served.bookies)]
        for turn in range(bench.rounds):
            _turn(turns, servers, publish, lambda turn=turn: _reader(served, turn))
    return turns.row(name)


def _on_a_bookie(bench: Bench) -> Row:
    """Adds of one client and batch reads of another, as brokers make them."""
    turns = Turns()
    seconds = max(bench.seconds, SECONDS_MIN)
    options = {"size": SIZE, "rate": RATE, "seconds": seconds, "warmup_s": bench.warmup_s}
    with bookie(bench) as process:
        entry_load("wire", port=process.port, version=2, size=SIZE, count=STORED, in_flight=1000)
        process.stop()
        process.start()
        ledger_ids = iter(range(10, 10 + 3 * bench.rounds))

        def publish() -> Row:
            return entry_load("paced", port=process.port, ledger_id=next(ledger_ids), **options)

        for _ in range(bench.rounds):
            _turn(turns, [process.pid], publish, lambda: _bookie_reader(process.port))
    return turns.row(BOOKIE)


def _turn(
    turns: Turns,
    servers: Sequence[int],
    publish: Callable[[], Row],
    read: Callable[[], contextlib.AbstractContextManager[_Reading]],
) -> None:
    """All three, one after the other."""
    before, at = _cpu_seconds(servers), time.perf_counter()
    turns.alone.append(publish())
    idle_cores = (_cpu_seconds(servers) - before) / (time.perf_counter() - at)
    with read() as reader:
        pids = [reader.pid]
        before, of_reader, at = _cpu_seconds(servers), _cpu_seconds(pids), time.perf_counter()
        turns.beside.append(publish())
        seconds = time.perf_counter() - at
        cores = (_cpu_seconds(servers) - before) / seconds - idle_cores, (_cpu_seconds(pids) - of_reader) / seconds
    turns.read.append(reader.rate)
    with _others(cores):
        turns.control.append({**publish(), "cores": sum(cores)})


@contextlib.contextmanager
def _others(cores: Sequence[float]) -> Iterator[None]:
    """Processes that use so much of the processor, one or more for each of ``cores``."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for each in cores:
            count = max(1, math.ceil(each))
            processes += [start_load("burn", share=min(1.0, max(0.0, each) / count)) for _ in range(count)]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            _end(process)


@contextlib.contextmanager
def _served(bench: Bench, name: str) -> Iterator[Served]:
    if name == "standalone, 1/1/1":
        with bench.product() as broker:
            yield Served(name, broker, ())
        return
    with cluster(bench, THREE if name.endswith("3/2/2") else ONE) as made:
        yield Served(name, made.broker, list(made.bookies.values()))


@dataclass(slots=True)
class _Reading:
    pid: int
    #: Messages a second, once it has ended.
    rate: float = 0.0


@contextlib.contextmanager
def _bookie_reader(port: int) -> Iterator[_Reading]:
    process = start_entry_load(
        "read", port=port, entries=STORED, batch=READ_ENTRIES, bytes_max=READ_BYTES_MAX, in_flight=READS_IN_FLIGHT
    )
    reading = _Reading(process.pid)
    lines: list[str] = []
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield reading
    finally:
        lines = _end(process).strip().splitlines()
    told = json.loads(lines[-1])
    if "error" in told:
        raise BenchError(told["error"])
    reading.rate = told["read"] / told["seconds"]


@contextlib.contextmanager
def _reader(served: Served, turn: int) -> Iterator[_Reading]:
    """A consumer from the first message on, at full speed for as long as this lasts."""
    total = BACKLOG_CONNECTIONS * FRAMES[SIZE]
    process = start_load(
        "consume",
        port=served.broker.broker_port,
        topics=[BACKLOG],
        subscription=f"reader-{turn}",
        count=total,
        permits=PERMITS,
        acks="cumulative",
        in_order=False,
        from_first=True,
        announce=True,
    )
    reading = _Reading(process.pid)
    try:
        assert process.stdout is not None
        if "subscribed" not in (line := process.stdout.readline()):
            raise BenchError(line)
        started, before = time.perf_counter(), _read_so_far(served, turn)
        yield reading
        if process.poll() is not None:
            raise BenchError("the reader was at the end before the publisher was")
        reading.rate = (_read_so_far(served, turn) - before) / (time.perf_counter() - started)
    finally:
        _end(process)


def _read_so_far(served: Served, turn: int) -> int:
    stats = json.loads(served.broker.request("GET", f"/admin/v2/{BACKLOG.replace('://', '/')}/stats"))
    count: int = stats["subscriptions"][f"reader-{turn}"]["msgOutCounter"]
    return count


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time of these processes so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def _end(process: subprocess.Popen[str]) -> str:
    """Kill it; what it said."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    return process.communicate()[0]
