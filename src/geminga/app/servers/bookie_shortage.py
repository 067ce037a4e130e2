"""Whether there are enough bookies for new ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.model.bookie_port import Availability, BookiePool

_log = get_logger(__name__)


class BookieShortage:
    """Whether there are as many bookies as a new ledger needs: told in the log when that changes, and to who asks.

    By the ensemble size that topics have unless a policy says otherwise.
    """

    def __init__(self, bookies: BookiePool, ensemble_size: int) -> None:
        self._bookies = bookies
        self._wanted = ensemble_size
        #: What was told last.
        self._is_short = False
        self._is_closed = False
        bookies.watch(self._changed)

    async def close(self) -> None:
        """Bookies go from here on because the broker does."""
        self._is_closed = True

    def story(self) -> str:
        """What is wanted and what is there; empty if that is enough."""
        available = self._bookies.available()
        if len(available) >= self._wanted:
            return ""
        names = f" ({', '.join(available)})" if available else ""
        others = self._bookies.read_only()
        full = f" (read-only, of a full disk or as they were started: {', '.join(others)})" if others else ""
        return (
            f"managedLedgerDefaultEnsembleSize={self._wanted}, and {len(available)} bookies take entries{names}: what "
            f"needs a new ledger fails until there are more{full}"
        )

    def look(self) -> None:
        """Tell the log if it is another now than was told."""
        story = self.story()
        if self._is_closed or bool(story) == self._is_short:
            return
        self._is_short = bool(story)
        if story:
            _log.warning("%s", story)
        else:
            _log.warning("%d bookies take entries: enough for new ledgers", len(self._bookies.available()))

    def _changed(self, _bookie_id: str, _now: Availability) -> None:
        self.look()
