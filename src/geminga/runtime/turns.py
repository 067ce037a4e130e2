"""Long work in several turns of the loop, so that others are served in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

from geminga.runtime.ports import Clock
from geminga.runtime.waiting import next_turn

S = TypeVar("S")
T = TypeVar("T")
#: Seconds of one turn.
TURN_S_MAX: Final = 0.005
#: Steps of one turn: also under simulation, where no time passes within one.
TURN_STEPS_MAX: Final = 2000


class Turns:
    """Asked before every step: ``if turns.is_over(): await turns.next()``."""

    __slots__ = ("_clock", "_ends_s", "_steps", "_steps_max", "_turn_s", "count")

    def __init__(self, clock: Clock, *, steps_max: int = TURN_STEPS_MAX, turn_s: float = TURN_S_MAX) -> None:
        self._clock = clock
        self._steps_max = steps_max
        self._turn_s = turn_s
        self._steps = 0
        self._ends_s = clock.monotonic() + turn_s
        #: Turns begun.
        self.count = 1

    def is_over(self) -> bool:
        """Whether the step at hand belongs to the next turn."""
        self._steps += 1
        return self._steps > self._steps_max or self._clock.monotonic() >= self._ends_s

    async def through(self, steps: Generator[None, None, T]) -> T:
        """What steps come to, in as many turns as they take."""
        while True:
            if self.is_over():
                await self.next()
            try:
                next(steps)
            except StopIteration as end:
                found: T = end.value
                return found

    async def with_each(self, step: Callable[[S], object], those: Iterable[S]) -> None:
        """A step with each of those that there are now, in as many turns as they take; at once with all that are left
        where who asked is called off, or a step fails."""
        left = deque(those)
        try:
            while left:
                if self.is_over():
                    await self.next()
                step(left.popleft())
        finally:
            for each in left:
                step(each)

    async def next(self) -> None:
        """Let everything else that is ready run once."""
        await next_turn()
        self.count += 1
        self._steps = 1
        self._ends_s = self._clock.monotonic() + self._turn_s
