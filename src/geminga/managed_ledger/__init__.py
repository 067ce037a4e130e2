"""Managed ledgers: one endless log per topic over many ledgers, with cursors, cache, rollover and trim."""

from geminga.managed_ledger.config import ManagedLedgerConfig
from geminga.managed_ledger.core.persistence import Persistence
from geminga.managed_ledger.cursor_reads import EntriesDone
from geminga.managed_ledger.entry import AckDone, AppendDone, AppendResult, Entry
from geminga.managed_ledger.factory import ManagedLedgerFactory
from geminga.managed_ledger.managed_cursor import ManagedCursor
from geminga.managed_ledger.managed_ledger import ManagedLedger
from geminga.managed_ledger.services import Defects

__all__ = [
    "AckDone",
    "AppendDone",
    "AppendResult",
    "Defects",
    "EntriesDone",
    "Entry",
    "ManagedCursor",
    "ManagedLedger",
    "ManagedLedgerConfig",
    "ManagedLedgerFactory",
    "Persistence",
]
