"""Counters of a bookie: plain ints, read at scrape time."""

from __future__ import annotations

from geminga.model.histogram import Latencies


class BookieStats:
    """Everything counts from the start of the process."""

    __slots__ = (
        "added_bytes",
        "added_entries",
        "chunk_reads",
        "compacted_bytes",
        "damaged_chunks",
        "deleted_ledgers",
        "disk_full_count",
        "flushed_bytes",
        "flushes",
        "major_compactions",
        "merges",
        "minor_compactions",
        "quarantined_ledgers",
        "read_bytes",
        "read_cache_hits",
        "read_cache_misses",
        "read_entries",
        "read_latency",
        "reclaimed_by_compaction_bytes",
        "reclaimed_by_deletion_bytes",
        "removed_logs",
        "write_cache_misses",
    )

    def __init__(self) -> None:
        self.added_entries = 0
        self.added_bytes = 0
        self.read_entries = 0
        #: Entries that were read and not in the write cache; and of those that lie in entry logs, whose chunk was in
        #: memory and whose was not.
        self.write_cache_misses = 0
        self.read_cache_hits = 0
        self.read_cache_misses = 0
        #: Of each entry: as long as the read it was part of.
        self.read_latency = Latencies()
        #: preads of entry logs, and the bytes they read.
        self.chunk_reads = 0
        self.read_bytes = 0
        self.flushes = 0
        self.flushed_bytes = 0
        self.merges = 0
        #: Live bytes copied by compaction.
        self.compacted_bytes = 0
        self.removed_logs = 0
        #: Rounds that were due by time, with the threshold of which.
        self.minor_compactions = 0
        self.major_compactions = 0
        #: Bytes of entry logs that are gone: of those whose live rest was moved, without it; of those without any.
        self.reclaimed_by_compaction_bytes = 0
        self.reclaimed_by_deletion_bytes = 0
        self.deleted_ledgers = 0
        #: Ledgers kept now although the metadata store does not list them: it looks as if it had lost them.
        self.quarantined_ledgers = 0
        #: Chunks that failed their checksum when read.
        self.damaged_chunks = 0
        #: How often the bookie became read-only for want of space.
        self.disk_full_count = 0
