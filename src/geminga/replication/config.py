"""Auto-recovery's settings, with BookKeeper's key names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.model.settings import setting


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """See ``docs/replication.md``."""

    #: Whether a standalone of several bookies restores copies by itself.
    auto_recovery_daemon_enabled: bool = setting("autoRecoveryDaemonEnabled", True, "true or false")
    #: Between two looks for ledgers of bookies that are not registered.
    auditor_periodic_bookie_check_interval_s: int = setting(
        "auditorPeriodicBookieCheckInterval", 86_400, "seconds >= 0, 0: never", minimum=0
    )
    #: Between two looks at which entries each bookie has.
    auditor_periodic_check_interval_s: int = setting(
        "auditorPeriodicCheckInterval", 604_800, "seconds >= 0, 0: never", minimum=0
    )
    #: How long one bookie that went is waited for; the value in the metadata store counts, once there is one.
    lost_bookie_recovery_delay_s: int = setting("lostBookieRecoveryDelay", 0, "seconds >= 0", minimum=0)
    #: How long a writer has to replace a lost bookie itself, before its ledger is recovered.
    open_ledger_rereplication_grace_period_ms: int = setting(
        "openLedgerRereplicationGracePeriod", 30_000, "milliseconds >= 0", minimum=0
    )
    #: How long a ledger that could not be restored is left alone, at most.
    lock_release_of_failed_ledger_grace_period_ms: int = setting(
        "lockReleaseOfFailedLedgerGracePeriod", 300_000, "milliseconds >= 0", minimum=0
    )
    #: After an error of the metadata store.
    rw_rereplicate_backoff_ms: int = setting("rwRereplicateBackoffMs", 5_000, "milliseconds >= 1", minimum=1)
    #: Entries that are copied at once.
    rereplication_entry_batch_size: int = setting(
        "rereplicationEntryBatchSize", 10, "entries, 1-10000", minimum=1, maximum=10_000
    )
    #: Bytes that one worker copies in a second.
    replication_rate_by_bytes: int = setting("replicationRateByBytes", -1, "bytes a second, -1: no limit", minimum=-1)
    #: Whether marks say when they were made.
    store_mark_time: bool = setting("storeSystemTimeAsLedgerUnderreplicatedMarkTime", True, "true or false")
