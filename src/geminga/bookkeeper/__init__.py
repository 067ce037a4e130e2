"""The ledger client: replicated, append-only ledgers on bookies, as BookKeeper's client makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.bookkeeper.client import BookKeeper
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.bookkeeper.installation import Installation
from geminga.bookkeeper.ledger_store import MetadataLiveLedgers
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.model.bookie_port import Bookie, BookiePool, LacResult
from geminga.model.late_names import late_names

if TYPE_CHECKING:
    from geminga.bookkeeper.ledger_handle import LedgerHandle
    from geminga.bookkeeper.memory import MemoryBookie

__all__ = [
    "BookKeeper",
    "BookKeeperConfig",
    "Bookie",
    "BookiePool",
    "Installation",
    "LacResult",
    "LedgerHandle",
    "LocalBookiePool",
    "MemoryBookie",
    "MetadataLiveLedgers",
]

# Loaded where they are used: the one by the first ledger, the other by tests.
__getattr__ = late_names(
    __name__,
    {
        "LedgerHandle": "geminga.bookkeeper.ledger_handle",
        "MemoryBookie": "geminga.bookkeeper.memory",
    },
)
