"""The ledger client: replicated, append-only ledgers on bookies, as BookKeeper's client makes them."""

from geminga.bookkeeper.client import BookKeeper
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.bookkeeper.installation import Installation
from geminga.bookkeeper.ledger_handle import LedgerHandle
from geminga.bookkeeper.ledger_store import MetadataLiveLedgers
from geminga.bookkeeper.memory import LocalBookiePool, MemoryBookie
from geminga.model.bookie_port import Bookie, BookiePool, LacResult

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
