"""Managed ledgers: one endless log per topic over many ledgers, with cursors, cache, rollover and trim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.managed_ledger.factory import ManagedLedgerFactory
from geminga.managed_ledger.rules.persistence import Persistence
from geminga.managed_ledger.shared.config import ManagedLedgerConfig
from geminga.managed_ledger.shared.entry import AckDone, AppendDone, AppendResult, Entry
from geminga.model.late_names import late_names

if TYPE_CHECKING:
    from geminga.managed_ledger.cursor.cursor_reads import EntriesDone
    from geminga.managed_ledger.cursor.managed_cursor import ManagedCursor
    from geminga.managed_ledger.managed_ledger import ManagedLedger

__all__ = [
    "AckDone",
    "AppendDone",
    "AppendResult",
    "EntriesDone",
    "Entry",
    "ManagedCursor",
    "ManagedLedger",
    "ManagedLedgerConfig",
    "ManagedLedgerFactory",
    "Persistence",
]

# Loaded with the first that is opened: a broker without topics needs none.
__getattr__ = late_names(
    __name__,
    {
        "EntriesDone": "geminga.managed_ledger.cursor.cursor_reads",
        "ManagedCursor": "geminga.managed_ledger.cursor.managed_cursor",
        "ManagedLedger": "geminga.managed_ledger.managed_ledger",
    },
)
