"""The turns of one answer: those that become long are made one after the other.

Clients decide how many subscriptions, producers and consumers a topic has. While an answer is made in several turns its
values are in memory, some hundred bytes each: a thousand requests at a time would hold a thousand times all of them.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

from geminga.runtime import Clock, Turns

#: Steps (subscriptions, producers, consumers, pieces of JSON) of an answer that is made beside others.
STEPS_BESIDE_MAX: Final = 128
#: Of one whose JSON is written in one piece.
STEPS_OF_SHORT_MAX: Final = 16


class AnswerTurns(Turns):
    """To be entered; from its first step too many on it has the place of long answers, once it is free."""

    __slots__ = ("_has_place", "_place", "_taken")

    def __init__(self, clock: Clock, place: asyncio.Lock) -> None:
        super().__init__(clock)
        self._place = place
        self._has_place = False
        self._taken = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._has_place:
            self._has_place = False
            self._place.release()

    def is_over(self) -> bool:
        """As :meth:`Turns.is_over`; also where the step at hand is one too many for an answer beside others."""
        self._taken += 1
        return super().is_over() or self._is_waiting

    async def next(self) -> None:
        """As :meth:`Turns.next`, when this answer may be as long as it is."""
        if self._is_waiting:
            await self._place.acquire()
            self._has_place = True
        await super().next()

    @property
    def are_few(self) -> bool:
        """Whether what was made until now can be written at once."""
        return self._taken <= STEPS_OF_SHORT_MAX

    @property
    def _is_waiting(self) -> bool:
        return self._taken > STEPS_BESIDE_MAX and not self._has_place
