"""The ledger client: replicated, append-only ledgers on bookies, as BookKeeper's client makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.bookkeeper.client import BookKeeper
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.bookkeeper.installation import Installation
from geminga.bookkeeper.ledger_store import MetadataLiveLedgers
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.model.bookie_port import Bookie, BookiePool, LacResult

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


def __getattr__(name: str) -> object:
    # Loaded where they are used: the one by the first ledger, the other by tests.
    if name == "LedgerHandle":
        from geminga.bookkeeper.ledger_handle import LedgerHandle

        return LedgerHandle
    if name == "MemoryBookie":
        from geminga.bookkeeper.memory import MemoryBookie

        return MemoryBookie
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
