"""Reads from the ledgers of one managed ledger: handles opened on demand, runs of entries read with one call.

What is read is charged to the factory's budget from the question until the answer was passed on: many that catch up at
the same time take turns. As nobody knows how large an entry is before it is read, a claim is for the largest possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from geminga.managed_ledger.log.shared_reads import Ask, SharedReads
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.ports import Ledger
from geminga.model.byte_budget import ByteBudget, Claim
from geminga.model.errors import LedgerClosedError, StorageError
from geminga.model.position import Position
from geminga.runtime import Contained, Part, again, spawn

#: Closed ledgers kept open for reading, per managed ledger; the one used longest ago is let go.
READ_HANDLES_MAX: Final = 8
#: Entries asked for with one call.
READ_RUN_ENTRIES_MAX: Final = 1000

OpenToRead = Callable[[LedgerInfo], Awaitable[Ledger]]
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

    __slots__ = (
        "_budget",
        "_entry_bytes_max",
        "_failures",
        "_handles",
        "_open_ledger",
        "_opening",
        "_part",
        "_withheld",
    )

    def __init__(
        self,
        open_ledger: OpenToRead,
        budget: ByteBudget,
        entry_bytes_max: int,
        part: Part | None = None,
        failures: dict[int, StorageError] | None = None,
        withheld: Mapping[int, StorageError] | None = None,
    ) -> None:
        """``budget``: of the bytes in flight; ``entry_bytes_max``: what one entry may have, as far as anybody knows;
        ``part`` is closed if a read breaks; ``failures`` gets the error of each ledger whose last read failed; a
        ledger of ``withheld`` is not read, that error is the answer."""
        self._withheld = withheld if withheld is not None else {}
        self._failures = failures if failures is not None else {}
        self._part = part
        self._open_ledger = open_ledger
        self._budget = budget
        self._entry_bytes_max = entry_bytes_max
        self._handles: dict[int, Ledger] = {}
        #: Reads waiting for a ledger that is being opened.
        self._opening: dict[int, list[Ask]] = {}

    def keep(self, handle: Ledger) -> None:
        """Use this handle for its ledger from now on."""
        self._handles.pop(handle.ledger_id, None)
        self._handles[handle.ledger_id] = handle
        while len(self._handles) > READ_HANDLES_MAX:
            del self._handles[next(iter(self._handles))]

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted, or lies elsewhere: the next read opens it anew."""
        self._handles.pop(ledger_id, None)

    def read(
        self,
        info: LedgerInfo,
        first: int,
        last: int,
        bytes_max: int,
        done: ReadDone,
        *,
        handle: Ledger | None,
        shared: SharedReads | None = None,
    ) -> Claim:
        """Payloads of entries ``first`` to ``last``, or of the first of them, at least one, with about ``bytes_max``.

        ``handle``: that of the open ledger. ``shared``: with others that read here. Returns the claim: released, a
        read that still waits for its turn is called off, and ``done`` is not called.
        """
        size_bytes = min(max(bytes_max, self._entry_bytes_max), info.size_bytes)

        def granted(claim: Claim) -> None:
            answer = partial(self._answer, info, claim, done)
            if info.ledger_id in self._withheld:
                asyncio.get_running_loop().call_soon(answer, again(self._withheld[info.ledger_id]))
            elif shared is not None:
                ask = Ask(first, last, bytes_max, answer)
                shared.ask(info.ledger_id, ask, partial(self._read, info, handle))
            else:
                self._read(info, handle, Ask(first, last, bytes_max, answer))

        return self._budget.claim(size_bytes, granted)

    def _read(self, info: LedgerInfo, open_ledger: Ledger | None, ask: Ask) -> None:
        ledger_id = info.ledger_id
        if open_ledger is not None and open_ledger.ledger_id == ledger_id:
            open_ledger.read(ask.first, ask.last, ask.done, bytes_max=ask.bytes_max)
            return
        handle = self._handles.pop(ledger_id, None)
        if handle is not None:
            self._handles[ledger_id] = handle
            handle.read(ask.first, ask.last, ask.done, bytes_max=ask.bytes_max)
            return
        waiting = self._opening.get(ledger_id)
        if waiting is not None:
            waiting.append(ask)
            return
        self._opening[ledger_id] = [ask]
        spawn(self._open(info), name=f"open-ledger-{ledger_id}", part=self._part)

    async def _open(self, info: LedgerInfo) -> None:
        ledger_id = info.ledger_id
        error: StorageError | None = None
        handle: Ledger | None = None
        try:
            handle = await self._open_ledger(info)
            info.opened_ms = handle.metadata.created_ms or 0
            self.keep(handle)
        except StorageError as failure:
            error = again(failure)
        finally:
            waiting = self._opening.pop(ledger_id, [])
        for first, last, bytes_max, done in waiting:
            if handle is not None:
                handle.read(first, last, done, bytes_max=bytes_max)
            elif error is not None:
                # Each has his own, who raises it.
                done(again(error))

    def _answer(self, info: LedgerInfo, claim: Claim, done: ReadDone, result: Sequence[bytes] | StorageError) -> None:
        """Pass an answer on; then its bytes are in flight no more."""
        if isinstance(result, StorageError):
            if info.offload_context:
                # It may be gone from where it was opened.
                self.forget(info.ledger_id)
            if not isinstance(result, LedgerClosedError):
                self._failures[info.ledger_id] = again(result)
        elif self._failures:
            self._failures.pop(info.ledger_id, None)
        if claim.is_held:  # else it was called off while the bookies had it
            claim.resize(0 if isinstance(result, StorageError) else sum(map(len, result)))
        try:
            # The bookies answer: what fails in here is not their failure.
            with Contained(self._part, "a read"):
                done(result)
        finally:
            claim.release()
