"""Turns of those who catch up, one after the other, so that publishers come through between them.

Who reads at the tail asks nobody. Who reads what lies behind takes a turn for each batch it hands on: at once if there
is time for it in this turn of the loop and nobody waits, else when those before it had theirs. How long all of them
together may take says ``core.catch_up_share``.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from geminga.managed_ledger.rules.catch_up_share import TURN_S, CatchUpShare
from geminga.runtime.ports import Clock

#: Batches handed on in one turn of the loop: also under simulation, where no time passes within one.
BATCHES_MAX: Final = 64
#: With less than this left a turn is over: few entries at a time cost more each.
WORTH_S: Final = TURN_S / 4
#: Timers of the loop are no finer.
TIMER_MIN_S: Final = 0.001


class CatchingUp(Protocol):
    """Who waits for a turn. Hashes by identity."""

    def go(self, seconds: float) -> None:
        """It has one, of so many seconds."""
        ...


class CatchUpTurns:
    """See the module. One for all managed ledgers of a process."""

    __slots__ = ("_batches", "_left_s", "_monotonic", "_pass", "_share", "_waiting", "_worked", "seconds")

    def __init__(self, clock: Clock, share: float) -> None:
        self._monotonic = clock.monotonic
        #: Turns are measured by this: what others of the machine had of the processor meanwhile is not the reader's.
        self._worked = clock.worked
        self._share = CatchUpShare(share)
        #: In the order of their coming. A dict, to take one out of the middle.
        self._waiting: dict[CatchingUp, None] = {}
        #: What ends this turn of the loop, or the time in which there is none.
        self._pass: asyncio.Handle | None = None
        #: Seconds and batches that are left in this turn of the loop.
        self._left_s = 0.0
        self._batches = 0
        #: Spent on catching up so far.
        self.seconds = 0.0

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def published(self) -> None:
        """Entries were appended."""
        self._share.published(self._monotonic())

    @property
    def is_limited(self) -> bool:
        """Whether publishes flow."""
        return self._share.is_limited(self._monotonic())

    def begin(self, reader: CatchingUp) -> float:
        """Seconds that it may take now; 0: ``go`` is called later, unless it leaves."""
        if not self._waiting:
            if self._pass is None:
                self._share.asked(self._monotonic())
            if (seconds := self._left()) > 0:
                return seconds
        self._waiting[reader] = None
        self._schedule()
        return 0.0

    def leave(self, reader: CatchingUp) -> None:
        """It wants no turn any more."""
        self._waiting.pop(reader, None)

    def began_s(self) -> float:
        """What :meth:`ended` wants to have."""
        return self._worked()

    def ended(self, began_s: float) -> float:
        """A batch was handed on; how many seconds it took."""
        took_s = self._worked() - began_s
        self._left_s -= took_s
        self._batches -= 1
        self.seconds += took_s
        self._share.took(self._monotonic(), took_s)
        return took_s

    def close(self) -> None:
        """Nobody reads any more."""
        self._waiting.clear()
        if self._pass is not None:
            self._pass.cancel()
            self._pass = None

    def _left(self) -> float:
        """What may still be taken in this turn of the loop."""
        if self._pass is None:
            self._left_s = self._share.turn_s(self._monotonic())
            if self._left_s <= 0:
                return 0.0
            self._batches = BATCHES_MAX
            self._pass = asyncio.get_running_loop().call_soon(self._next)
        return self._left_s if self._batches > 0 and self._left_s >= WORTH_S else 0.0

    def _schedule(self) -> None:
        if self._pass is not None:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._share.wait_s(self._monotonic())
        self._left_s, self._batches = 0.0, 0
        if wait_s > 0:
            self._pass = loop.call_later(max(wait_s, TIMER_MIN_S), self._next)
        else:
            self._pass = loop.call_soon(self._next)

    def _next(self) -> None:
        """The loop's next turn, or the time has come."""
        self._pass = None
        while self._waiting:
            seconds = self._left()
            if seconds <= 0:
                self._schedule()
                return
            reader = next(iter(self._waiting))
            del self._waiting[reader]
            # Should it break, the others have the next turn of the loop: it is asked for by now.
            reader.go(seconds)
