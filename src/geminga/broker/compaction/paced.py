"""Long work in the turns of those who catch up, so that publishers come through between them (``catch_up_turns``)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Final, TypeVar

from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
from geminga.model.errors import GemingaError
from geminga.runtime import Contained, Part
from geminga.runtime.ports import Clock

T = TypeVar("T")
#: Steps of one turn: also under simulation, where no time passes within one.
STEPS_PER_TURN: Final = 50


class PacedWork:
    """Of one task, one piece of work at a time. Hashes by identity."""

    __slots__ = ("_catch_up", "_end", "_part", "_steps", "_worked")

    def __init__(self, catch_up: CatchUpTurns, clock: Clock, part: Part | None) -> None:
        """``part``: fails with the work, if that has a defect."""
        self._catch_up = catch_up
        self._worked = clock.worked
        self._part = part
        #: What is done now, and who waits for its end.
        self._steps: Generator[None, None, Any] | None = None
        self._end: asyncio.Future[Any] | None = None

    async def do(self, steps: Generator[None, None, T]) -> T:
        """All the steps, in as many turns as it takes; what they come to."""
        end: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._steps, self._end = steps, end
        try:
            self._go_on()
            return await end
        finally:
            self._steps = self._end = None
            self._catch_up.leave(self)
            del end  # an error's frames have it

    def go(self, seconds: float) -> None:
        """See ``CatchingUp``."""
        with Contained(self._part, "a compaction"):
            self._turn(seconds)
            self._go_on()

    def _go_on(self) -> None:
        while self._end is not None and not self._end.done() and (seconds := self._catch_up.begin(self)) > 0:
            self._turn(seconds)

    def _turn(self, seconds: float) -> None:
        steps, end = self._steps, self._end
        if steps is None or end is None or end.done():
            return
        began_s = self._catch_up.began_s()
        ends_s = self._worked() + seconds
        is_sane = False
        try:
            for _ in range(STEPS_PER_TURN):
                next(steps)
                if self._worked() >= ends_s:
                    break
            is_sane = True
        except StopIteration as over:
            is_sane = True
            end.set_result(over.value)
        except GemingaError as error:
            is_sane = True
            end.set_exception(error)
        finally:
            self._catch_up.ended(began_s)
            if not is_sane:
                end.cancel()
            del end  # as in ``do``
