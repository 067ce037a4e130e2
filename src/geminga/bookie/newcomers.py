"""Whether a ledger that is heard of for the first time exists: ids of the future are nobody's to take.

A ledger's metadata are written before its first entry is sent. So what adds to, or fences, a ledger that is unknown
here, under an id that the metadata store had not given out when last looked, is held back until the store is asked: a
stranger's is refused and nothing of it is kept, since the ledger that gets the id later would be refused for it, for
ever. Ids that were given out are not asked for; of those the garbage collection knows whether they exist.

Where the store can not tell (it is away, or keeps no counter), what is held is let in: that a ledger takes entries
does not hang on the metadata store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from geminga.bookie.ports import LiveLedgers
from geminga.model.errors import NoSuchLedgerError, StorageError
from geminga.runtime import SparseWarnings, get_logger, spawn
from geminga.runtime.ports import Clock

#: Ledgers that are asked for one by one until the counter is read again: whoever has a new id waits no longer.
ASKED_AT_ONCE_MAX: Final = 64
#: Seconds that the store has to answer.
ASK_S: Final = 1.0

#: Called once: with why it is refused, or with None, and then the ledger is :meth:`Newcomers.is_named`.
GoOn = Callable[[StorageError | None], None]

_log = get_logger(__name__)


class Newcomers:
    """Requests for ledgers that may not exist."""

    __slots__ = ("_admitted", "_below", "_held", "_is_asking", "_ledgers", "_warnings")

    def __init__(self, ledgers: LiveLedgers, clock: Clock) -> None:
        self._ledgers = ledgers
        #: No id from here on had been given out; None: the store does not tell.
        self._below: int | None = None
        #: Of those above, let in just now.
        self._admitted: set[int] = set()
        #: By ledger, in order of arrival: bounded by what the callers have in flight.
        self._held: dict[int, list[GoOn]] = {}
        self._is_asking = False
        self._warnings = SparseWarnings(_log, clock.monotonic)

    async def start(self) -> None:
        """Before the first request: what has been given out."""
        try:
            self._below = await self._ledgers.next_ledger_id()
        except StorageError:
            self._below = 0

    def is_named(self, ledger_id: int) -> bool:
        """Whether nothing has to be asked."""
        return self._below is None or ledger_id < self._below or ledger_id in self._admitted

    def hold(self, ledger_id: int, go_on: GoOn) -> None:
        """Call ``go_on`` later, in order for each ledger."""
        self._held.setdefault(ledger_id, []).append(go_on)
        if not self._is_asking:
            self._is_asking = True
            spawn(self._ask(), name="bookie-newcomers")

    def close(self, error: StorageError) -> None:
        """Refuse what is held."""
        self._refuse(tuple(self._held), error)

    async def _ask(self) -> None:
        try:
            while self._held:
                try:
                    async with asyncio.timeout(ASK_S):
                        await self._look()
                except (StorageError, TimeoutError) as error:
                    why = str(error) or f"no answer of the metadata store within {ASK_S:g} s"
                    _log.warning("whether a new ledger exists can not be told now, its entries are taken: %s", why)
                    self._admit(tuple(self._held))
        finally:
            self._is_asking = False

    async def _look(self) -> None:
        """One round. Raises StorageError."""
        below = await self._ledgers.next_ledger_id()
        if below is not None and self._below is not None:
            # A store that goes back takes no id back.
            below = max(below, self._below)
        self._below = below
        self._admit([ledger_id for ledger_id in self._held if self.is_named(ledger_id)])
        unnamed = tuple(islice(self._held, ASKED_AT_ONCE_MAX))
        if not unnamed:
            return
        # Who makes ledgers may choose their ids, and the counter may have been read where it lags.
        found = await self._ledgers.existing(unnamed)
        if found is None:
            self._admit(unnamed)
            return
        self._admit([ledger_id for ledger_id in unnamed if ledger_id in found])
        for ledger_id in unnamed:
            if ledger_id not in found:
                error = NoSuchLedgerError(f"ledger {ledger_id} does not exist: its id has not been given out")
                self._warnings.warn(f"somebody uses a ledger that does not exist, and is refused: {error}")
                self._refuse((ledger_id,), error)

    def _admit(self, ledger_ids: Iterable[int]) -> None:
        for ledger_id in ledger_ids:
            self._admitted.add(ledger_id)
            for go_on in self._held.pop(ledger_id, ()):
                go_on(None)
            # Known from here on, unless it was refused for another reason; then it is asked for again.
            self._admitted.discard(ledger_id)

    def _refuse(self, ledger_ids: Iterable[int], error: StorageError) -> None:
        for ledger_id in ledger_ids:
            for go_on in self._held.pop(ledger_id, ()):
                go_on(error)
