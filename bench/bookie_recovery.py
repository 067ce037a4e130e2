"""Auto-recovery at work: how fast copies of a lost bookie are made anew, and what a publisher feels of it."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import threading
import time

from tools.chaos.cluster import Cluster
from tools.chaos.copies import Look

from bench.bookie_publish import SESSION_MS, THREE, cluster, paced
from bench.measure import FRAMES, TOPIC, Row, in_flight
from bench.servers import Bench, BenchError, load

BOOKIES = 4
RATE = 1_000
PUBLISHED = 1024
#: What is stored: bytes of an entry, and entries.
STORED = {1024: 40_000, 128 * 1024: 3_000}
#: ``rereplicationEntryBatchSize``: the default, which is BookKeeper's, and more.
AT_ONCE = (10, 100)
PATIENCE_S = 150.0
#: Of the publisher, while copies are made: those that end before that does count.
SEGMENT_S = 2.0
LIVE = f"{TOPIC}-live"


def recovery(bench: Bench) -> list[Row]:
    """By size of the entries, and by how many are copied at once: a bookie of four goes while a publisher goes on."""
    return [_recovery(bench, size, entries, at_once) for size, entries in STORED.items() for at_once in AT_ONCE]


def _recovery(bench: Bench, size: int, entries: int, at_once: int) -> Row:
    # Some ledgers, and nothing of them goes.
    kept = {
        "managedLedgerMaxEntriesPerLedger": str(entries // 8),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    with cluster(bench, THREE, BOOKIES, **kept) as made:
        load(
            "publish",
            port=made.broker.broker_port,
            topics=[f"{TOPIC}-stored"],
            connections=1,
            in_flight=in_flight(size),
            frames=bench.frames(size, FRAMES[size]),
            count=entries,
        )
        alone = paced(bench, made.broker.broker_port, LIVE, PUBLISHED, RATE, 6.0)
        made.start_autorecovery(
            {
                "openLedgerRereplicationGracePeriod": 1000,
                "gemingaEventLoop": bench.loop,
                "rereplicationEntryBatchSize": at_once,
            }
        )
        look = Look(made.metadata_uri, SESSION_MS)
        before = asyncio.run(look.at_fragments())
        victim = max(made.bookies.values(), key=lambda one: before.of_bookie[str(one.ready["bookieId"])])
        victim_id = str(victim.ready["bookieId"])
        lacking_entries = asyncio.run(look.entries_of(victim_id))
        victim.kill()
        cpu = _cpu(made)
        shutil.rmtree(victim.data)
        times = _Times(look, victim_id)
        times.gone.wait(PATIENCE_S)
        segments: list[Row] = []
        while not times.is_over:
            segment = paced(bench, made.broker.broker_port, LIVE, PUBLISHED, RATE, SEGMENT_S)
            if not (times.is_over and segments):
                segments.append(segment)
        times.thread.join()
        if times.error is not None:
            raise BenchError(times.error)
        copies = asyncio.run(look.at_copies())
        if copies.lacking:
            raise BenchError(f"{copies.lacking} entries lack a copy")
        copied = lacking_entries * size
        seconds = times.ended - times.began
        p99 = statistics.median(segment["p99"] for segment in segments)
        return {
            "entry B": size,
            "at once": at_once,
            "copied MB": round(copied / 1e6),
            "entries": lacking_entries,
            "fragments": before.of_bookie[victim_id],
            "seconds": seconds,
            "MB/s": copied / 1e6 / seconds,
            "entries/s": round(lacking_entries / seconds),
            "CPU s": round(_cpu(made) - cpu, 1),
            "publish p50 ms": alone["p50"],
            "p99 ms": alone["p99"],
            "meanwhile: p50 ms": statistics.median(segment["p50"] for segment in segments),
            "p99 ms ": p99,
            "p99 x": p99 / alone["p99"],
        }


def _cpu(made: Cluster) -> float:
    beside = () if made.autorecovery is None else (made.autorecovery,)
    return sum(process.cpu_seconds() for process in (*beside, *made.bookies.values()) if process.is_running)


class _Times:
    """When the lost bookie was seen to be lost, and when the last fragment was restored; on a thread."""

    def __init__(self, look: Look, bookie_id: str) -> None:
        self.began = self.ended = 0.0
        self.error: str | None = None
        self.gone = threading.Event()
        self.thread = threading.Thread(target=self._wait, args=(look, bookie_id))
        self.thread.start()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self.thread.is_alive()

    def _wait(self, look: Look, bookie_id: str) -> None:
        try:
            asyncio.run(look.until_gone(bookie_id, PATIENCE_S))
            self.began = time.perf_counter()
            self.gone.set()
            asyncio.run(look.until_unnamed(bookie_id, lambda _: None, PATIENCE_S))
            self.ended = time.perf_counter()
        except TimeoutError:
            self.error = f"not restored within {PATIENCE_S:.0f} s"
        finally:
            self.gone.set()
