"""Reads from the ledgers of one managed ledger: handles opened on demand, runs of entries read with one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.runtime import spawn

if TYPE_CHECKING:
    from geminga.managed_ledger.core.positions import LedgerInfo

#: Closed ledgers kept open for reading, per managed ledger; the one used longest ago is let go.
READ_HANDLES_MAX: Final = 8
#: Entries asked for with one call.
READ_RUN_ENTRIES_MAX: Final = 1000

ReadDone = Callable[[Sequence[bytes] | StorageError], None]


class Run(NamedTuple):
    """Consecutive entries of one ledger."""

    ledger_id: int
    first: int
    last: int


def runs_of(positions: Iterable[Position]) -> list[Run]:
    """The fewest runs that cover ``positions``, in order."""
    runs: list[Run] = []
    for ledger_id, entry_id in sorted(set(positions)):
        previous = runs[-1] if runs else None
        if (
            previous is not None
            and previous.ledger_id == ledger_id
            and previous.last + 1 == entry_id
            and entry_id - previous.first < READ_RUN_ENTRIES_MAX
        ):
            runs[-1] = Run(ledger_id, previous.first, entry_id)
        else:
            runs.append(Run(ledger_id, entry_id, entry_id))
    return runs


class LedgerReads:
    """Open handles of closed ledgers, least recently used first."""

    __slots__ = ("_bookkeeper", "_handles", "_opening")

    def __init__(self, bookkeeper: BookKeeper) -> None:
        self._bookkeeper = bookkeeper
        self._handles: dict[int, LedgerHandle] = {}
        #: Reads waiting for a ledger that is being opened.
        self._opening: dict[int, list[tuple[int, int, ReadDone]]] = {}

    def keep(self, handle: LedgerHandle) -> None:
        """Use this handle for its ledger from now on."""
        self._handles.pop(handle.ledger_id, None)
        self._handles[handle.ledger_id] = handle
        while len(self._handles) > READ_HANDLES_MAX:
            del self._handles[next(iter(self._handles))]

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        self._handles.pop(ledger_id, None)

    def read(self, info: LedgerInfo, first: int, last: int, done: ReadDone) -> None:
        """Payloads of entries ``first`` to ``last`` of a ledger that is not the open one."""
        ledger_id = info.ledger_id
        handle = self._handles.pop(ledger_id, None)
        if handle is not None:
            self._handles[ledger_id] = handle
            handle.read(first, last, done)
            return
        waiting = self._opening.get(ledger_id)
        if waiting is not None:
            waiting.append((first, last, done))
            return
        self._opening[ledger_id] = [(first, last, done)]
        spawn(self._open(ledger_id), name=f"open-ledger-{ledger_id}")

    async def _open(self, ledger_id: int) -> None:
        error: StorageError | None = None
        handle: LedgerHandle | None = None
        try:
            # With recovery: closing a ledger that a crash left open, a no-op for all others.
            handle = await self._bookkeeper.open_ledger(ledger_id, recover=True)
            self.keep(handle)
        except StorageError as failure:
            error = failure
        finally:
            waiting = self._opening.pop(ledger_id, [])
        for first, last, done in waiting:
            if handle is not None:
                handle.read(first, last, done)
            elif error is not None:
                done(error)
