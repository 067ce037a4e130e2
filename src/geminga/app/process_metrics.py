"""What ``/metrics`` tells of the process and the bookies in it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from geminga.model.histogram import Quantiles
from geminga.runtime import descriptor_limit

if TYPE_CHECKING:
    from geminga.bookie import LocalBookie

#: What a metric is: a number, or quantiles of it.
Value = float | Quantiles
#: As BookKeeper has them.
QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STARTED_S: Final = time.time()


def process_metrics() -> Mapping[str, float]:
    """CPU seconds, memory, open files; what this system does not tell is left out."""
    times = os.times()
    values = {"process_cpu_seconds_total": times.user + times.system, "process_start_time_seconds": _STARTED_S}
    limit = descriptor_limit()
    if limit is not None:
        values["process_max_fds"] = limit
    try:
        with open("/proc/self/statm", "rb") as file:
            fields = file.read().split()
        values["process_virtual_memory_bytes"] = int(fields[0]) * _PAGE_BYTES
        values["process_resident_memory_bytes"] = int(fields[1]) * _PAGE_BYTES
        values["process_open_fds"] = len(os.listdir("/proc/self/fd"))
    except OSError:
        pass
    return values


def bookies_metrics(
    bookies: Mapping[str, LocalBookie], monotonic: Callable[[], float]
) -> list[tuple[tuple[tuple[str, str], ...], Callable[[], Mapping[str, Value]]]]:
    """The metrics of each bookie with its labels: none where it is alone, else its name."""
    if len(bookies) == 1:
        return [((), bookie_metrics(bookie, monotonic)) for bookie in bookies.values()]
    return [((("bookie", name),), bookie_metrics(bookie, monotonic)) for name, bookie in bookies.items()]


def bookie_metrics(bookie: LocalBookie, monotonic: Callable[[], float]) -> Callable[[], Mapping[str, Value]]:
    """Counters and latencies (ms) of a bookie in this process, under BookKeeper's names where it has one."""

    def read() -> Mapping[str, Value]:
        stats, journal, now_s = bookie.stats, bookie.journal, monotonic()
        return {
            "bookie_journal_JOURNAL_ADD_ENTRY": journal.add_latency.quantiles(now_s, QUANTILES),
            "bookie_journal_JOURNAL_SYNC": journal.sync_latency.quantiles(now_s, QUANTILES),
            "bookie_journal_JOURNAL_WRITE_BYTES": journal.bytes_written,
            "bookkeeper_server_READ_ENTRY": stats.read_latency.quantiles(now_s, QUANTILES),
            "bookie_SERVER_STATUS": 1 if bookie.is_writable else 0,
            "bookie_WRITE_BYTES": stats.added_bytes,
            "bookie_ADD_ENTRY_count": stats.added_entries,
            "bookie_READ_ENTRY_count": stats.read_entries,
            "bookie_READ_BYTES": stats.read_bytes,
            "bookie_flush_count": stats.flushes,
            "bookie_flushed_bytes": stats.flushed_bytes,
            "bookie_compacted_bytes": stats.compacted_bytes,
            "bookie_removed_entry_logs": stats.removed_logs,
            "bookie_deleted_ledger_count": stats.deleted_ledgers,
            "bookie_quarantined_ledgers": stats.quarantined_ledgers,
            "bookie_damaged_chunks": stats.damaged_chunks,
            "bookie_disk_full_count": stats.disk_full_count,
        }

    return read
