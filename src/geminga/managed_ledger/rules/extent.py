"""How far a log reaches: what is stored of it, and how much of that may be read. Pure."""

from __future__ import annotations

from geminga.managed_ledger.rules.positions import LedgerList
from geminga.model.position import LATEST, Position


class Extent:
    """The newest entry that is stored, and the log as readers see it: cut at the read limit, if there is one."""

    __slots__ = ("_limit", "last_confirmed_position", "ledgers", "readable", "readable_position")

    def __init__(self, ledgers: LedgerList) -> None:
        """``ledgers``: the list; who changes it says so here."""
        self.ledgers = ledgers
        #: The newest entry that is stored; entry id -1 if there is none.
        self.last_confirmed_position = ledgers.last_position
        #: The log as far as readers go, and its newest entry: ``ledgers`` itself without a limit.
        self.readable, self.readable_position = ledgers, self.last_confirmed_position
        self._limit = LATEST

    @property
    def is_limited(self) -> bool:
        """Whether there is anything stored that may not be read now."""
        return self.readable is not self.ledgers

    def confirmed(self, last: Position) -> bool:
        """Entries up to ``last`` are stored; whether more can be read."""
        self.last_confirmed_position = last
        if last <= self._limit:
            self.readable_position = last
            return True
        return self.readable is self.ledgers and self.cut()

    def limit(self, position: Position) -> bool:
        """Readers stop at ``position``, whatever is stored behind it; LATEST, as at first: they do not. Whether more
        can be read."""
        self._limit = position
        return self.cut()

    def recovered(self) -> None:
        """Recovery found where a ledger of the list ends; it may have more entries than were confirmed to us."""
        self.last_confirmed_position = max(self.last_confirmed_position, self.ledgers.last_position)
        self.cut()

    def listed(self) -> None:
        """The list says where the log ends: ledgers left it, or it was opened."""
        self.last_confirmed_position = self.ledgers.last_position
        self.cut()

    def cut(self) -> bool:
        """Find anew where readers stop; whether that is further on than before."""
        before, last = self.readable_position, self.last_confirmed_position
        if last <= self._limit:
            self.readable, self.readable_position = self.ledgers, last
        else:
            self.readable = self.ledgers.cut(self._limit)
            self.readable_position = self.readable.last_position
        return self.readable_position > before and self.readable_position.entry_id >= 0
