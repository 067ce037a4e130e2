"""A bookie under entries alone: what reaches the disk, and what the wire costs.

``large_entries``: 4 GB of 128 KiB, 1/1/1, beside what the disk takes in one stream in the same run. A bookie writes
each entry twice, to its journal (which the receipt waits for) and to an entry log: all bytes are counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tools.chaos.cluster import BookieProcess
from tools.standalone_process import ROOT, StandaloneProcess

from bench.entry_load import io_of
from bench.measure import FRAMES, TOPIC, Row
from bench.servers import Bench, environment, finish_load, load

LARGE = 128 * 1024
LARGE_BYTES = 4_000_000_000
LARGE_IN_FLIGHT = 64
#: Of the disk's own rate.
LARGE_GOAL = 0.4
#: Sequential writes with an fdatasync each: what the journal's largest group is, and what a disk likes better.
STREAMS = ((4 << 20, "4 MiB"), (64 << 20, "64 MiB"))
STREAM_BYTES = 2_000_000_000
#: Entries of one connection that are encoded beforehand, by size; and how many are under way.
WIRE = {100: (200_000, 1000), 1024: (150_000, 1000), LARGE: (3_000, LARGE_IN_FLIGHT)}


def start_entry_load(mode: str, **options: Any) -> subprocess.Popen[str]:
    """A load on bookies."""
    command = [sys.executable, "-m", "bench.entry_load", json.dumps({"mode": mode, **options}, default=str)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    )


def entry_load(mode: str, **options: Any) -> Row:
    """Run one to its end."""
    return finish_load(start_entry_load(mode, **options))


class AloneBookie(BookieProcess):
    """``geminga bookie`` without a cluster."""

    def command(self) -> list[str]:
        """The command line."""
        words = super().command()
        at = words.index("--metadata")
        return words[:at] + words[at + 2 :]


@contextlib.contextmanager
def bookie(bench: Bench) -> Iterator[BookieProcess]:
    """A fresh one, as a process."""
    settings, told = {"gemingaEventLoop": bench.loop}, environment(bench.source)
    with (
        bench.directory("bookie") as directory,
        AloneBookie(directory / "data", log=directory / "log", settings=settings, environment=told) as process,
    ):
        yield process


def stream_rate(bench: Bench, sync_bytes: int, total: int = STREAM_BYTES) -> float:
    """Bytes a second of one file written from its begin to its end, durable after every ``sync_bytes``."""
    path = bench.scratch / "stream"
    data = os.urandom(4 << 20)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        started, offset = time.perf_counter(), 0
        while offset < total:
            offset += os.pwrite(file, data, offset)
            if offset % sync_bytes == 0:
                os.fdatasync(file)
        os.fdatasync(file)
        return offset / (time.perf_counter() - started)
    finally:
        os.close(file)
        path.unlink()


def large_entries(bench: Bench, total: int = LARGE_BYTES) -> list[Row]:
    """The disk before and after, a bookie inside, one over the wire, and a broker."""
    streams: dict[str, list[float]] = {name: [] for _, name in STREAMS}

    def stream() -> None:
        for sync_bytes, name in STREAMS:
            streams[name].append(stream_rate(bench, sync_bytes, total // 2))

    stream()
    cases = [("ledger client, bookie in the process", _inside(bench, total))]
    stream()
    cases.append(("ledger client, bookie as a process (v3)", _over_the_wire(bench, total)))
    cases.append(("standalone, through the broker", _through_a_broker(bench, total)))
    stream()
    disk = max(statistics.median(rates) for rates in streams.values())
    rows: list[Row] = [
        {
            "what": f"the disk, one stream, fdatasync every {name}",
            "entries MB/s": statistics.median(rates) / 1e6,
            "to disk": statistics.median(rates) / disk,
            "journal MB": "-",
            "entry logs MB": "-",
            "all written MB": round(total / 2e6),
            "flushes": "-",
            "CPU us": "-",
            "goal": "-",
            "met": "-",
        }
        for name, rates in streams.items()
    ]
    for name, case in cases:
        share = case["bytes_rate"] / disk
        has_goal = case is cases[0][1]
        rows.append(
            {
                "what": name,
                "entries MB/s": case["bytes_rate"] / 1e6,
                "to disk": share,
                "journal MB": _megabytes(case, "journal_bytes"),
                "entry logs MB": _megabytes(case, "log_bytes"),
                "all written MB": _megabytes(case, "process_bytes"),
                "flushes": case.get("flushes", "-"),
                "CPU us": round(case["cpu_us"]),
                "goal": LARGE_GOAL if has_goal else "-",
                "met": "-" if not has_goal else ("yes" if share >= LARGE_GOAL and case["flushes"] >= 3 else "NO"),
            }
        )
    return rows


def _megabytes(case: Row, key: str) -> int | str:
    return round(case[key] / 1e6) if key in case else "-"


def _inside(bench: Bench, total: int) -> Row:
    with bench.directory("inside") as directory:
        return entry_load(
            "inside", directory=directory, size=LARGE, in_flight=LARGE_IN_FLIGHT, bytes=total, loop=bench.loop
        )


def _over_the_wire(bench: Bench, total: int) -> Row:
    with bookie(bench) as process:
        cpu, before = process.cpu_seconds(), io_of(process.pid)
        answer = entry_load(
            "client",
            bookies=process.ready["bookieId"],
            quorums=(1, 1, 1),
            size=LARGE,
            in_flight=LARGE_IN_FLIGHT,
            bytes=total,
            loop=bench.loop,
        )
        answer["cpu_us"] = (process.cpu_seconds() - cpu) / answer["entries"] * 1e6
        answer["process_bytes"] = io_of(process.pid)["write_bytes"] - before["write_bytes"]
        return answer


def metrics(broker: StandaloneProcess) -> dict[str, float]:
    """Of ``/metrics``, those without labels but the cluster's, by name."""
    values: dict[str, float] = {}
    for line in broker.request("GET", "/metrics").decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name.partition("{")[0]] = values.get(name.partition("{")[0], 0.0) + float(value)
    return values


def _through_a_broker(bench: Bench, total: int) -> Row:
    with bench.product() as broker:
        cpu, before, io = broker.cpu_seconds(), metrics(broker), io_of(broker.pid)
        frames = FRAMES[LARGE]
        answer = load(
            "publish",
            port=broker.broker_port,
            topics=[f"{TOPIC}-large"],
            connections=max(1, round(total / LARGE / frames)),
            in_flight=LARGE_IN_FLIGHT,
            frames=bench.frames(LARGE, frames),
        )
        after = metrics(broker)
        return {
            "bytes_rate": answer["whole_rate"] * LARGE,
            "cpu_us": (broker.cpu_seconds() - cpu) / answer["receipts"] * 1e6,
            "journal_bytes": _grown(before, after, "bookie_journal_JOURNAL_WRITE_BYTES"),
            "log_bytes": _grown(before, after, "bookie_flushed_bytes"),
            "process_bytes": io_of(broker.pid)["write_bytes"] - io["write_bytes"],
            "flushes": round(_grown(before, after, "bookie_flush_count")),
        }


def _grown(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return after[name] - before[name]


def wire(bench: Bench) -> list[Row]:
    """Adds to a bookie in the process, and to one behind a connection, by version; one entry a request everywhere."""
    rows: list[Row] = []
    for size, (count, in_flight) in WIRE.items():
        seen: dict[str, list[Row]] = {}
        for turn in range(bench.rounds):
            for name in ("inside", "wire v3", "wire v2", "client"):
                seen.setdefault(name, []).append(_wire_turn(bench, name, turn, size, count, in_flight))
        inside = statistics.median(case["rate"] for case in seen["inside"])
        for name, cases in seen.items():
            rate = statistics.median(case["rate"] for case in cases)
            rows.append(
                {
                    "bookie": WAYS[name],
                    "entry B": size,
                    "in flight": in_flight,
                    "adds/s": round(rate),
                    "MB/s": rate * size / 1e6,
                    "to inside": rate / inside,
                    "bookie's CPU us": round(statistics.median(case["cpu_us"] for case in cases), 1),
                }
            )
    return rows


WAYS = {
    "inside": "in the process, with its ledger client",
    "wire v3": "process, requests made beforehand, version 3",
    "wire v2": "process, requests made beforehand, version 2",
    "client": "process, our ledger client",
}


def _wire_turn(bench: Bench, name: str, turn: int, size: int, count: int, in_flight: int) -> Row:
    common = {"size": size, "in_flight": in_flight, "bytes": size * count, "loop": bench.loop}
    if name == "inside":
        with bench.directory("inside") as directory:
            return entry_load("inside", directory=directory, **common)
    with bookie(bench) as process:
        before = process.cpu_seconds()
        if name == "client":
            answer = entry_load("client", bookies=process.ready["bookieId"], quorums=(1, 1, 1), **common)
        else:
            answer = entry_load("wire", port=process.port, version=int(name[-1]), count=count, **common)
        answer["cpu_us"] = (process.cpu_seconds() - before) / answer["entries"] * 1e6
        return answer
