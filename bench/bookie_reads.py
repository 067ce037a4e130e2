"""Readers beside a publisher: what one that catches up costs him, and that one at the tail costs no disk."""

from __future__ import annotations

import os

from tools.standalone_process import StandaloneProcess

from bench.bookie_entries import metrics
from bench.bookie_publish import paced
from bench.entry_load import io_of
from bench.isolation import PERMITS, RATE, SIZE
from bench.measure import TOPIC, Row
from bench.servers import Bench, finish_load, load, start_load

LIVE = f"{TOPIC}-live"


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
            wanted: Row = {"topics": [LIVE], "count": count, "permits": PERMITS, "acks": "cumulative", "in_order": True}
            consumer = start_load("consume", port=broker.broker_port, subscription="tail", announce=True, **wanted)
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
            load("consume", port=broker.broker_port, subscription="catch-up", **wanted)
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
