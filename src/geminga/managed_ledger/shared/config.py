"""Settings of managed ledgers and cursors, with Pulsar's keys."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.managed_ledger.rules.persistence import Persistence
from geminga.model.errors import ConfigurationError
from geminga.model.settings import setting


@dataclass(frozen=True, slots=True)
class ManagedLedgerConfig:
    """Defaults are Pulsar's, those of its standalone.conf for the quorums; the cache is our own small choice."""

    ensemble_size: int = setting("managedLedgerDefaultEnsembleSize", 1, "bookies >= 1", minimum=1)
    write_quorum: int = setting("managedLedgerDefaultWriteQuorum", 1, "bookies >= 1", minimum=1)
    ack_quorum: int = setting("managedLedgerDefaultAckQuorum", 1, "bookies >= 1", minimum=1)
    max_entries_per_ledger: int = setting("managedLedgerMaxEntriesPerLedger", 50_000, "entries >= 1", minimum=1)
    max_size_per_ledger_mb: int = setting("managedLedgerMaxSizePerLedgerMbytes", 2048, "MiB >= 1", minimum=1)
    min_rollover_minutes: int = setting("managedLedgerMinLedgerRolloverTimeMinutes", 10, "minutes >= 0", minimum=0)
    max_rollover_minutes: int = setting("managedLedgerMaxLedgerRolloverTimeMinutes", 240, "minutes >= 1", minimum=1)
    cursor_max_entries_per_ledger: int = setting(
        "managedLedgerCursorMaxEntriesPerLedger", 50_000, "entries >= 1", minimum=1
    )
    cursor_rollover_seconds: int = setting(
        "managedLedgerCursorRolloverTimeInSeconds", 14_400, "seconds >= 1", minimum=1
    )
    #: How often a cursor is persisted while nobody waits for it, per second. Twice, and not once as in Pulsar: begun
    #: half a second after an acknowledgment at the latest, the write has as long again to be durable within a second.
    mark_delete_rate_limit: float = setting(
        "managedLedgerDefaultMarkDeleteRateLimit", 2.0, "writes a second 0-1000; 0: no limit", minimum=0, maximum=1000
    )
    #: However low that rate is, a cursor is persisted so often.
    cursor_flush_seconds: int = setting("managedLedgerCursorPositionFlushSeconds", 60, "seconds >= 1", minimum=1)
    #: Acknowledged entries as bitmaps; false: as plain ranges, for comparison.
    ack_bitmaps: bool = setting("managedLedgerUnackedRangesOpenCacheSetEnabled", True, "true or false")
    #: Acknowledgment state kept in memory, all cursors together; what is more lies on disk only. Geminga's own key.
    cursor_memory_mb: float = setting("gemingaCursorMemoryLimitMB", 64.0, "MiB > 0", minimum=0.01)
    max_ranges_in_metadata: int = setting(
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore", 1000, "ranges 0-10000", minimum=0, maximum=10_000
    )
    #: How much of a cursor's state is written in Pulsar's own fields, too, where brokers share the metadata. Ours is
    #: whole without them.
    max_ranges_in_entry: int = setting(
        "managedLedgerMaxUnackedRangesToPersist", 10_000, "ranges 0-100000", minimum=0, maximum=100_000
    )
    max_batches_in_entry: int = setting(
        "managedLedgerMaxBatchDeletedIndexToPersist", 10_000, "batches 0-100000", minimum=0, maximum=100_000
    )
    bit_sets_in_entry: bool = setting("managedLedgerPersistIndividualAckAsLongArray", True, "true or false")
    #: Recently appended entries kept for tail readers, all topics together (Pulsar: a fifth of direct memory).
    cache_size_mb: int = setting("managedLedgerCacheSizeMB", 32, "MiB >= 0", minimum=0)
    #: Bytes being read from bookies and not yet passed on, all topics together; one read always goes on.
    #: 0: no limit, as is Pulsar's default.
    reads_in_flight_mb: int = setting("managedLedgerMaxReadsInFlightSizeInMB", 32, "MiB >= 0; 0: no limit", minimum=0)
    #: Of the time, what those who catch up may have while others publish; 1: all they want. Geminga's own key.
    catch_up_share: float = setting(
        "gemingaCatchUpShare", 0.5, "a part of the time, 0.05 to 1", minimum=0.05, maximum=1
    )
    cache_eviction_ms: int = setting(
        "managedLedgerCacheEvictionTimeThresholdMillis", 1000, "milliseconds >= 1", minimum=1
    )

    # ---- the lake
    offload_driver: str = setting("managedLedgerOffloadDriver", "", "filesystem, S3, aws-s3, or nothing")
    offload_threshold_bytes: int = setting(
        "managedLedgerOffloadAutoTriggerSizeThresholdBytes", -1, "bytes >= 0; -1: not by size", minimum=-1
    )
    offload_threshold_s: int = setting(
        "managedLedgerOffloadThresholdInSeconds", -1, "seconds >= 0; -1: not by age", minimum=-1
    )
    offload_deletion_lag_ms: int = setting(
        "managedLedgerOffloadDeletionLagMs", 4 * 3600 * 1000, "milliseconds >= 0; -1: never", minimum=-1
    )
    offload_read_priority: str = setting(
        "managedLedgerDataReadPriority",
        "tiered-storage-first",
        "tiered-storage-first or bookkeeper-first",
        choices=("tiered-storage-first", "bookkeeper-first"),
    )
    offload_directory: str = setting("fileSystemURI", "", "file:///path or an absolute path")
    offload_bucket: str = setting("managedLedgerOffloadBucket", "", "the name of a bucket")
    offload_region: str = setting("managedLedgerOffloadRegion", "", "a region")
    offload_endpoint: str = setting("managedLedgerOffloadServiceEndpoint", "", "http(s)://host:port")
    offload_s3_bucket: str = setting("s3ManagedLedgerOffloadBucket", "", "the name of a bucket")
    offload_s3_region: str = setting("s3ManagedLedgerOffloadRegion", "", "a region")
    offload_s3_endpoint: str = setting("s3ManagedLedgerOffloadServiceEndpoint", "", "http(s)://host:port")
    #: What comes before the topics' directories in a bucket. Geminga's own key.
    lake_prefix: str = setting("gemingaLakePrefix", "", "a prefix of keys in the bucket")
    #: Ledgers that are offloaded or restored at the same time.
    offload_threads: int = setting("managedLedgerOffloadMaxThreads", 2, "threads 1-64", minimum=1, maximum=64)
    #: Reads from the lake at the same time.
    lake_readers: int = setting("managedLedgerOffloadReadThreads", 2, "threads 1-64", minimum=1, maximum=64)
    #: Row groups that were read from the lake and are kept in memory, all topics together. Geminga's own key.
    lake_cache_mb: int = setting("gemingaLakeCacheMB", 64, "MiB >= 0", minimum=0)

    def persistence(self) -> Persistence:
        """How managed ledgers are stored without a policy. Raises ConfigurationError if the quorums do not fit."""
        try:
            return Persistence(self.ensemble_size, self.write_quorum, self.ack_quorum, self.mark_delete_rate_limit)
        except ValueError as error:
            raise ConfigurationError(f"managedLedgerDefaultEnsembleSize, WriteQuorum, AckQuorum: {error}") from error
