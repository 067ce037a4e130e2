"""What auto-recovery has done, as plain numbers that are read when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass


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
    #: Copies that did not match their digest and were not spread.
    damaged_copies: int = 0
    #: Entries that no bookie could give.
    unreadable_entries: int = 0
