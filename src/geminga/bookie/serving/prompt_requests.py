"""Requests of one connection that do not wait for the turns of others, as long as its client takes their answers.

A few bytes ask for an entry of megabytes, or for a look through all that a ledger has. Whoever sends thousands of such
requests at once, or takes no answers, has his wait here: what is answered and not taken is bounded, and so is the work
that is done before others have their turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from geminga.bookie.serving import limits


class PromptRequests:
    """Those of one connection. What waits is bounded by what a connection may have unanswered."""

    __slots__ = ("_is_going_on", "_left", "_loop", "_may_answer", "_under_way", "_waiting")

    def __init__(self, may_answer: Callable[[], bool]) -> None:
        """``may_answer``: whether the client takes its answers; :meth:`go_on` is called when that changes."""
        self._loop = asyncio.get_running_loop()
        self._may_answer = may_answer
        self._waiting: deque[tuple[object, Callable[[], None], int]] = deque()
        #: Ids of the requests that were begun and are not answered; whoever carries one out holds it.
        self._under_way: set[int] = set()
        #: Of the work that may be done in this turn of the loop.
        self._left = limits.PROMPT_TURN_COST_MAX
        self._is_going_on = False

    def begin(self, request: object, carry_out: Callable[[], None], cost: int = 1) -> None:
        """Carry it out now, or when those before it are answered and taken; :meth:`over` when it is answered."""
        self._waiting.append((request, carry_out, cost))
        self.go_on()

    def over(self, request: object) -> None:
        """It is answered. Nothing if it was none of these."""
        if self._under_way:
            self._under_way.discard(id(request))
            if self._waiting:
                self.go_on()

    def go_on(self) -> None:
        """Carry out what waits, as far as may be."""
        if self._is_going_on:
            return
        self._is_going_on = True
        waiting, under_way = self._waiting, self._under_way
        try:
            while waiting and self._left > 0 and len(under_way) < limits.PROMPT_UNDER_WAY_MAX and self._may_answer():
                request, carry_out, cost = waiting.popleft()
                if self._left == limits.PROMPT_TURN_COST_MAX:
                    self._loop.call_soon(self._next_turn)
                self._left -= cost
                under_way.add(id(request))
                carry_out()
        finally:
            self._is_going_on = False

    def forget(self) -> int:
        """The connection went: drop what waits; how many those are. What comes later holds back nobody."""
        count = len(self._waiting)
        self._waiting.clear()
        # A method of the connection, which holds this: a cycle that only the collector would end.
        self._may_answer = _nobody_gets_it
        return count

    def _next_turn(self) -> None:
        self._left = limits.PROMPT_TURN_COST_MAX
        self.go_on()


def _nobody_gets_it() -> bool:
    return True
