"""The bookie's configuration, under BookKeeper's key names; sizes are deliberately smaller than a JVM's.

Defaults that differ from BookKeeper's, and why: ``journalFlushWhenQueueEmpty`` is on (a group is whatever came
while the previous one was synced; with ``journalAdaptiveGroupWrites`` it waits all the same where that saves syncs);
``dbStorage_writeCacheMaxSizeMb`` is 128, of which 32 are used unless the disk is behind (two halves, each flushed
from 16 on: a broker on a laptop stays small); ``diskUsageThreshold`` is 0.99 as in ``standalone.conf``;
``journalMaxSizeMB`` bounds a file whose size is ``journalPreAllocSizeMB`` (four times that while groups are large).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from geminga.bookie.limits import JOURNAL_LARGE_FILE_FACTOR
from geminga.model.settings import setting

MEBIBYTE: Final = 1024 * 1024
#: Entry logs that a bookie keeps open: at least, and if nothing is said.
OPEN_LOGS_MIN: Final = 2
OPEN_LOGS_DEFAULT: Final = 64


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """Settings of one bookie. Sizes in MB may be fractions, which tests use to make files tiny."""

    journal_directory: str = setting("journalDirectory", "", "a path; empty: journal/ in the data directory")
    ledger_directory: str = setting("ledgerDirectories", "", "paths; empty: ledgers/ in the data directory")
    journal_max_size_mb: float = setting("journalMaxSizeMB", 2048.0, "MB > 0", minimum=0.001)
    journal_pre_alloc_size_mb: float = setting("journalPreAllocSizeMB", 16.0, "MB > 0", minimum=0.001)
    journal_sync_data: bool = setting("journalSyncData", True, "true or false; false loses entries at power loss")
    journal_flush_when_queue_empty: bool = setting("journalFlushWhenQueueEmpty", True, "true or false")
    journal_adaptive_group_writes: bool = setting("journalAdaptiveGroupWrites", True, "true or false")
    journal_max_group_wait_ms: float = setting("journalMaxGroupWaitMSec", 1.0, "milliseconds >= 0", minimum=0)
    journal_buffered_writes_threshold: int = setting(
        "journalBufferedWritesThreshold", 512 * 1024, "bytes > 0", minimum=1
    )
    write_cache_max_size_mb: float = setting("dbStorage_writeCacheMaxSizeMb", 128.0, "MB > 0", minimum=0.001)
    read_cache_max_size_mb: float = setting("dbStorage_readAheadCacheMaxSizeMb", 8.0, "MB >= 0", minimum=0)
    flush_interval_ms: int = setting("flushInterval", 60_000, "milliseconds > 0", minimum=1)
    #: BookKeeper's is 1 GiB. A log is read as a whole when the index is rebuilt, and goes as a whole.
    log_size_limit: int = setting("logSizeLimit", 128 * MEBIBYTE, "bytes > 0", minimum=1024)
    open_file_limit: int = setting(
        "openFileLimit",
        OPEN_LOGS_DEFAULT,
        f"entry logs kept open, >= {OPEN_LOGS_MIN}, or 0 for {OPEN_LOGS_DEFAULT}",
        minimum=0,
    )
    gc_wait_time_ms: int = setting("gcWaitTime", 900_000, "milliseconds > 0", minimum=1)
    #: BookKeeper has no such limit: it deletes whatever its metadata store does not list.
    quarantine_share: float = setting(
        "gemingaGarbageQuarantineShare", 0.2, "a share from 0 to 1, 1: never", minimum=0, maximum=1
    )
    #: For one start: what may have been lost is unknown from then on, never absent.
    accept_damaged_journal: bool = setting("gemingaAcceptDamagedJournal", False, "true or false")
    minor_compaction_threshold: float = setting(
        "minorCompactionThreshold", 0.2, "a share from 0 to 1", minimum=0, maximum=1
    )
    minor_compaction_interval_s: int = setting("minorCompactionInterval", 3600, "seconds > 0", minimum=1)
    major_compaction_threshold: float = setting(
        "majorCompactionThreshold", 0.8, "a share from 0 to 1", minimum=0, maximum=1
    )
    major_compaction_interval_s: int = setting("majorCompactionInterval", 86_400, "seconds > 0", minimum=1)
    disk_usage_threshold: float = setting("diskUsageThreshold", 0.99, "a share from 0 to 1", minimum=0, maximum=1)
    disk_check_interval_ms: int = setting("diskCheckInterval", 10_000, "milliseconds > 0", minimum=1)

    def __post_init__(self) -> None:
        # 0 stands in Apache's bookkeeper.conf: as many as the bookie finds right.
        kept_open = max(OPEN_LOGS_MIN, self.open_file_limit) if self.open_file_limit else OPEN_LOGS_DEFAULT
        object.__setattr__(self, "open_file_limit", kept_open)

    @property
    def journal_file_size_bytes(self) -> int:
        """Size a journal file is created with and rolls over at."""
        return int(min(self.journal_pre_alloc_size_mb, self.journal_max_size_mb) * MEBIBYTE)

    @property
    def journal_large_file_size_bytes(self) -> int:
        """The same where groups are large."""
        size_mb = self.journal_pre_alloc_size_mb * JOURNAL_LARGE_FILE_FACTOR
        return int(min(size_mb, self.journal_max_size_mb) * MEBIBYTE)

    @property
    def write_cache_half_bytes(self) -> int:
        """Size of one half of the write cache."""
        return int(self.write_cache_max_size_mb * MEBIBYTE / 2)

    @property
    def read_cache_bytes(self) -> int:
        """Size of the cache of entry log chunks."""
        return int(self.read_cache_max_size_mb * MEBIBYTE)


def of_part(config: BookieConfig, journal: str, ledgers: str, count: int) -> BookieConfig:
    """``config`` for one of ``count`` bookies, or parts of one, that share what it bounds."""
    return replace(
        config,
        journal_directory=journal,
        ledger_directory=ledgers,
        write_cache_max_size_mb=config.write_cache_max_size_mb / count,
        read_cache_max_size_mb=config.read_cache_max_size_mb / count,
        open_file_limit=max(OPEN_LOGS_MIN, config.open_file_limit // count),
    )
