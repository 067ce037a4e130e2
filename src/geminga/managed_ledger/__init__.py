"""Managed ledgers: one endless log per topic over many ledgers, with cursors, cache, rollover and trim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.managed_ledger.factory import ManagedLedgerFactory
from geminga.managed_ledger.rules.persistence import Persistence
from geminga.managed_ledger.shared.config import ManagedLedgerConfig
from geminga.managed_ledger.shared.entry import AckDone, AppendDone, AppendResult, Entry

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


def __getattr__(name: str) -> object:
    # Loaded with the first that is opened: a broker without topics needs none.
    if name == "ManagedLedger":
        from geminga.managed_ledger.managed_ledger import ManagedLedger

        return ManagedLedger
    if name == "ManagedCursor":
        from geminga.managed_ledger.cursor.managed_cursor import ManagedCursor

        return ManagedCursor
    if name == "EntriesDone":
        from geminga.managed_ledger.cursor.cursor_reads import EntriesDone

        return EntriesDone
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
