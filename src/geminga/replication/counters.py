"""What auto-recovery has done, as plain numbers that are read when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga.model.histogram import Quantiles


@dataclass(slots=True)
class ReplicationCounters:
    """Since the process started."""

    #: Looks for ledgers of lost bookies, and ledgers that one of them marked.
    audits: int = 0
    ledgers_marked: int = 0
    #: Looks at which entries each bookie has, and answers that could not be had then.
    full_checks: int = 0
    unknown_answers: int = 0
    #: Marks that ended, fragments that moved, and attempts that failed.
    ledgers_replicated: int = 0
    fragments_replicated: int = 0
    failed_attempts: int = 0
    #: Ledgers that were recovered because their last fragment had lost a bookie.
    ledgers_recovered: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    #: Steps in which they were.
    batches_copied: int = 0
    #: Copies that did not match their digest and were not spread.
    damaged_copies: int = 0
    #: Entries that no bookie could give.
    unreadable_entries: int = 0

    def metrics(self) -> Mapping[str, float | Quantiles]:
        """For ``/metrics``, under BookKeeper's names where it has one."""
        copied = Quantiles((), self.batches_copied, self.bytes_copied)
        return {
            "auditor_AUDIT_BOOKIES_count": self.audits,
            "auditor_CHECK_ALL_LEDGERS_count": self.full_checks,
            # BookKeeper's is of values, whose count is what boards show: each ledger is one of 1.
            "auditor_NUM_UNDER_REPLICATED_LEDGERS": Quantiles((), self.ledgers_marked, self.ledgers_marked),
            "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED": self.ledgers_replicated,
            "replication_worker_fragments_replicated": self.fragments_replicated,
            "replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER": self.failed_attempts,
            "replication_worker_ledgers_recovered": self.ledgers_recovered,
            # Whatever was read was written: the copier counts a batch when the new bookie has it.
            "replication_worker_NUM_ENTRIES_READ": self.entries_copied,
            "replication_worker_NUM_ENTRIES_WRITTEN": self.entries_copied,
            "replication_worker_NUM_BYTES_READ": copied,
            "replication_worker_NUM_BYTES_WRITTEN": copied,
            "replication_worker_damaged_copies": self.damaged_copies,
            "replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION": self.unreadable_entries,
        }
