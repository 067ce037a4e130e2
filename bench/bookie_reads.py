"""Readers beside a publisher: what one that catches up costs him, and that one at the tail costs no disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tools.standalone_process import StandaloneProcess

from bench.bookie_entries import bookie, entry_load, metrics, start_entry_load
from bench.bookie_publish import ONE, THREE, cluster, paced
from bench.entry_load import io_of
from bench.measure import FRAMES, TOPIC, Row, in_flight
from bench.servers import Bench, BenchError, finish_load, load, start_load

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
    """Alone and beside a reader at full speed, in turns: on a bookie by itself, then through brokers."""
    rows: list[Row] = [_on_a_bookie(bench)]
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
        rows.append(_isolation_row(name, alone, beside, read))
    return rows


def _isolation_row(name: str, alone: list[Row], beside: list[Row], read: list[float]) -> Row:
    p99 = statistics.median(row["p99"] for row in alone), statistics.median(row["p99"] for row in beside)
    return {
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


def _on_a_bookie(bench: Bench) -> Row:
    """Adds of one client and batch reads of another, as brokers make them."""
    alone, beside, read = [], [], []
    options = {"size": SIZE, "rate": RATE, "seconds": max(bench.seconds, 4.0), "warmup_s": bench.warmup_s}
    with bookie(bench) as process:
        entry_load("wire", port=process.port, version=2, size=SIZE, count=STORED, in_flight=1000)
        process.stop()
        process.start()
        for turn in range(bench.rounds):
            ledgers = range(10 + 2 * turn, 12 + 2 * turn)
            alone.append(entry_load("paced", port=process.port, ledger_id=ledgers[0], **options))
            reader = start_entry_load(
                "read",
                port=process.port,
                entries=STORED,
                batch=READ_ENTRIES,
                bytes_max=READ_BYTES_MAX,
                in_flight=READS_IN_FLIGHT,
            )
            try:
                assert reader.stdout is not None
                reader.stdout.readline()
                beside.append(entry_load("paced", port=process.port, ledger_id=ledgers[1], **options))
            finally:
                lines = _end(reader).strip().splitlines()
            told = json.loads(lines[-1])
            if "error" in told:
                raise BenchError(told["error"])
            read.append(told["read"] / told["seconds"])
    return _isolation_row("a bookie's process, without a broker", alone, beside, read)


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
    stats = json.loads(served.broker.request("GET", f"/admin/v2/{BACKLOG.replace('://', '/')}/stats"))
    count: int = stats["subscriptions"][f"reader-{turn}"]["msgOutCounter"]
    return count


def _end(process: subprocess.Popen[str]) -> str:
    """Kill it; what it said."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    return process.communicate()[0]


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
