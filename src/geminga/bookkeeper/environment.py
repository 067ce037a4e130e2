"""What all handles of one ledger client share."""

from __future__ import annotations

from collections.abc import Callable

from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.model.bookie_port import BookiePool


class LedgerEnvironment:
    """Metadata, bookies and the randomness of placement."""

    __slots__ = ("below", "bookies", "ledgers")

    def __init__(self, ledgers: LedgerStore, bookies: BookiePool, below: Callable[[int], int]) -> None:
        self.ledgers = ledgers
        self.bookies = bookies
        #: Draws from [0, n).
        self.below = below
