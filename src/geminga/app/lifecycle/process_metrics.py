"""What ``/metrics`` tells of the process and the bookies in it, under BookKeeper's names where it has one."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from geminga.model.histogram import Quantiles
from geminga.runtime import descriptor_limit

if TYPE_CHECKING:
    from geminga.bookie import LocalBookie
    from geminga.model.exposition import Labels, Source

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


def process_beans() -> Mapping[str, Mapping[str, float]]:
    """What the process tells of itself, by what it is about, for who asks as one asks a Java program for its MBeans."""
    beans: dict[str, Mapping[str, float]] = {
        "geminga:type=Process": process_metrics(),
        "geminga:type=Threading": {"ThreadCount": threading.active_count()},
    }
    for generation, counts in enumerate(gc.get_stats()):
        beans[f"geminga:type=GarbageCollector,name=generation-{generation}"] = counts
    return beans


def bookies_metrics(bookies: Mapping[str, LocalBookie], monotonic: Callable[[], float]) -> list[tuple[Labels, Source]]:
    """The metrics of each bookie with its labels: none where it is alone, else its name."""
    labels: list[Labels] = [()] if len(bookies) == 1 else [(("bookie", name),) for name in bookies]
    return [
        each
        for own, bookie in zip(labels, bookies.values(), strict=True)
        for each in ((own, status_of(bookie)), (own, part_metrics(bookie, monotonic)))
    ]


def parts_metrics(parts: Sequence[LocalBookie], monotonic: Callable[[], float]) -> list[tuple[Labels, Source]]:
    """The metrics of the pairs of directories of one bookie: with the pair's number where there are several."""
    labels: list[Labels] = (
        [()] if len(parts) == 1 else [(("pair", str(number)),) for number in range(1, len(parts) + 1)]
    )
    return [(own, part_metrics(part, monotonic)) for own, part in zip(labels, parts, strict=True)]


def status_of(bookie: _HasState) -> Source:
    """Whether it takes entries."""
    return lambda: {"bookie_SERVER_STATUS": 1 if bookie.is_writable else 0}


def directories_metrics(parts: Sequence[LocalBookie]) -> Source:
    """The disks of a bookie's ledger directories, as BookKeeper tells of them: percent, and how many take entries."""

    def read() -> Mapping[str, float]:
        values: dict[str, float] = {
            "bookie_ledger_num_dirs": len(parts),
            "bookie_ledger_writable_dirs": sum(part.is_writable for part in parts),
        }
        for part in parts:
            if part.room.disk_usage is not None:
                name = re.sub(r"[^A-Za-z0-9_]", "_", part.storage.directory)
                values[f"bookie_ledger_dir_{name}_usage"] = 100 * part.room.disk_usage
        return values

    return read


def part_metrics(bookie: LocalBookie, monotonic: Callable[[], float]) -> Source:
    """Counters and latencies (ms) of a bookie in this process."""

    counted: dict[int, int] = {}

    def read() -> Mapping[str, float | Quantiles]:
        stats, journal, now_s = bookie.stats, bookie.journal, monotonic()
        storage, added = bookie.storage, journal.add_latency.quantiles(now_s, QUANTILES)
        taken = stats.read_latency.quantiles(now_s, QUANTILES)
        return {
            **_reads_and_garbage(bookie),
            "bookie_entries_count": _entry_count(bookie, counted),
            "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE": journal.waiting_groups,
            # Nothing stands between a request and what is timed here, but for what *_BLOCKED tell.
            "bookkeeper_server_ADD_ENTRY_REQUEST": added,
            "bookkeeper_server_READ_ENTRY_REQUEST": taken,
            "bookkeeper_server_ADD_ENTRY_IN_PROGRESS": journal.unwritten_entries + bookie.waiting_adds,
            "bookkeeper_server_READ_ENTRY_IN_PROGRESS": bookie.reader.waiting_reads,
            "bookie_journal_JOURNAL_ADD_ENTRY": added,
            "bookie_journal_JOURNAL_SYNC": journal.sync_latency.quantiles(now_s, QUANTILES),
            "bookie_journal_JOURNAL_WRITE_BYTES": journal.bytes_written,
            "bookie_journal_JOURNAL_QUEUE_SIZE": journal.waiting_entries,
            # An add is over when the journal has it.
            "bookkeeper_server_ADD_ENTRY": added,
            "bookkeeper_server_ADD_ENTRY_BLOCKED": bookie.waiting_adds,
            "bookkeeper_server_READ_ENTRY": taken,
            "bookie_ledgers_count": len(storage.states.master_keys),
            "bookie_write_cache_size": storage.cache.filling_bytes + storage.cache.flushing_bytes,
            "bookie_write_cache_count": storage.cache.entry_count,
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


def _reads_and_garbage(bookie: LocalBookie) -> Mapping[str, float]:
    """The caches reads go through, and what collecting garbage gave back.

    BookKeeper 4.17 counts under ``_TOTAL`` what older ones, and boards made for them, call ``_COUNT``: both are here.
    """
    stats, reader, logs = bookie.stats, bookie.reader, bookie.storage.logs.sizes
    values: dict[str, float] = {
        "bookie_write_cache_hits": stats.read_entries - stats.write_cache_misses,
        "bookie_write_cache_misses": stats.write_cache_misses,
        "bookie_read_cache_hits": stats.read_cache_hits,
        "bookie_read_cache_misses": stats.read_cache_misses,
        "bookie_read_cache_size": reader.cached_bytes,
        "bookie_read_cache_count": reader.cached_entries,
        "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES": sum(logs.values()),
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES": stats.reclaimed_by_compaction_bytes,
        "bookie_RECLAIMED_DELETION_SPACE_BYTES": stats.reclaimed_by_deletion_bytes,
    }
    for name, count in (
        ("bookie_ACTIVE_ENTRY_LOG", len(logs)),
        ("bookie_ACTIVE_LEDGER", len(bookie.storage.states.master_keys)),
        ("bookie_DELETED_LEDGER", stats.deleted_ledgers),
        ("bookie_MINOR_COMPACTION", stats.minor_compactions),
        ("bookie_MAJOR_COMPACTION", stats.major_compactions),
    ):
        values[f"{name}_TOTAL"] = values[f"{name}_COUNT"] = count
    return values


def _entry_count(bookie: LocalBookie, counted: dict[int, int]) -> int:
    """Entries in the write cache and in entry logs, where those of deleted ledgers are until the logs are compacted.

    ``counted``: runs of the index by number, which do not change once they have one; what is gone is dropped from it.
    """
    runs = bookie.storage.index.runs
    known = {run.run_id: counted[run.run_id] if run.run_id in counted else sum(run.counts) for run in runs}
    counted.clear()
    counted.update((run_id, count) for run_id, count in known.items() if run_id)
    return bookie.storage.cache.entry_count + sum(known.values())


class _HasState(Protocol):
    @property
    def is_writable(self) -> bool: ...
