"""Readers beside a publisher: what one that catches up costs him, and that one at the tail costs no disk."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tools.standalone_process import StandaloneProcess

from bench.bookie_entries import metrics
from bench.bookie_publish import ONE, THREE, cluster, paced
from bench.entry_load import io_of
from bench.measure import FRAMES, TOPIC, Row, in_flight
from bench.servers import Bench, BenchError, finish_load, load, start_load

SIZE = 1024
RATE = 2_000
#: Stored before, and read while the publisher goes on: more than is read meanwhile.
BACKLOG_CONNECTIONS = 6
PERMITS = 2_000
#: p99 with a reader over p99 without.
GOAL = 1.5
BACKLOG, LIVE = f"{TOPIC}-backlog", f"{TOPIC}-live"


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


@contextlib.contextmanager
def _served(bench: Bench, name: str) -> Iterator[Served]:
    if name == "standalone, 1/1/1":
        with bench.product() as broker:
            yield Served(name, broker, ())
        return
    with cluster(bench, THREE if name.endswith("3/2/2") else ONE) as made:
        yield Served(name, made.broker, list(made.bookies.values()))


SYSTEMS = (
    "standalone, 1/1/1",
    "broker and 3 bookies as processes, 1/1/1",
    "broker and 3 bookies as processes, 3/2/2",
)


def isolation(bench: Bench) -> list[Row]:
    """Alone and beside a reader at full speed, in turns."""
    rows: list[Row] = []
    for name in SYSTEMS:
        with _served(bench, name) as served:
            _fill(bench, served)
            served.restart()
            alone, beside, read = [], [], []
            for turn in range(bench.rounds):
                alone.append(_paced(bench, served))
                with _reader(served, turn) as reader:
                    beside.append(_paced(bench, served))
                read.append(reader.rate)
        p99 = statistics.median(row["p99"] for row in alone), statistics.median(row["p99"] for row in beside)
        rows.append(
            {
                "system": name,
                "publisher": f"{SIZE:,} B, {RATE:,}/s",
                "p50 ms": statistics.median(row["p50"] for row in alone),
                "p99 ms": p99[0],
                "with reader: p50 ms": statistics.median(row["p50"] for row in beside),
                "p99 ms ": p99[1],
                "read/s": round(statistics.median(read)),
                "p99 x": p99[1] / p99[0],
                "goal": GOAL,
                "met": "yes" if p99[1] / p99[0] <= GOAL else "NO",
            }
        )
    return rows


def _fill(bench: Bench, served: Served) -> None:
    load(
        "publish",
        port=served.broker.broker_port,
        topics=[BACKLOG],
        connections=BACKLOG_CONNECTIONS,
        in_flight=in_flight(SIZE),
        frames=bench.frames(SIZE, FRAMES[SIZE]),
    )


def _paced(bench: Bench, served: Served) -> Row:
    return paced(bench, served.broker.broker_port, LIVE, SIZE, RATE, max(bench.seconds, 4.0))


class _Reading:
    rate = 0.0


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
    reading = _Reading()
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
    import json

    stats = json.loads(served.broker.request("GET", f"/admin/v2/{BACKLOG.replace('://', '/')}/stats"))
    count: int = stats["subscriptions"][f"reader-{turn}"]["msgOutCounter"]
    return count


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def tail(bench: Bench) -> list[Row]:
    """A consumer at the tail: what bookie and kernel counted meanwhile; and, that both count, one that catches up."""
    rows: list[Row] = []
    seconds = max(bench.seconds, 4.0)
    for name, settings in (
        ("the broker's cache", {}),
        ("no cache in the broker: from the bookie", {"managedLedgerCacheSizeMB": "0"}),
    ):
        # asyncio's own loop takes from sockets by recv, which rchar leaves out.
        with bench.product(gemingaEventLoop="asyncio", **settings) as broker:
            count = int(RATE * (seconds + bench.warmup_s))
            consumer = start_load(
                "consume",
                port=broker.broker_port,
                topics=[LIVE],
                subscription="tail",
                count=count,
                permits=PERMITS,
                acks="cumulative",
                in_order=True,
                announce=True,
            )
            assert consumer.stdout is not None
            consumer.stdout.readline()
            before, io = metrics(broker), io_of(broker.pid)
            paced(bench, broker.broker_port, LIVE, SIZE, RATE, seconds)
            finish_load(consumer)
            rows.append(_read_row(f"tail, {name}", count, broker, before, io))
            broker.stop()
            _drop_cached_pages(broker)
            broker.start()
            before, io = metrics(broker), io_of(broker.pid)
            load(
                "consume",
                port=broker.broker_port,
                topics=[LIVE],
                subscription="catch-up",
                count=count,
                permits=PERMITS,
                acks="cumulative",
                in_order=True,
            )
            rows.append(_read_row("catch-up after a restart, cold pages", count, broker, before, io))
    return rows


def _read_row(name: str, count: int, broker: StandaloneProcess, before: dict[str, float], io: dict[str, int]) -> Row:
    after, now = metrics(broker), io_of(broker.pid)
    from_disk = after["bookie_READ_BYTES"] - before["bookie_READ_BYTES"]
    is_tail = name.startswith("tail")
    # The broker itself reads a little else: /proc for its metrics, the clock's files.
    is_met = from_disk == 0 and now["read_bytes"] == io["read_bytes"] if is_tail else from_disk >= count * SIZE
    return {
        "reader": name,
        "messages": count,
        "asked of the bookie": round(after["bookie_READ_ENTRY_count"] - before["bookie_READ_ENTRY_count"]),
        "read from entry logs, bytes": round(from_disk),
        "read calls of the process, bytes": now["rchar"] - io["rchar"],
        "from the disk, bytes": now["read_bytes"] - io["read_bytes"],
        "goal": "0" if is_tail else "all",
        "met": "yes" if is_met else "NO",
    }


def _drop_cached_pages(broker: StandaloneProcess) -> None:
    """What the kernel has of the stopped broker's files."""
    for path in broker.data.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
