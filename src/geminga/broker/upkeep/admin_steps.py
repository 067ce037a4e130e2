"""Long work that an administrator asked for: one step after the other, in several turns of the loop, until a stop."""

from __future__ import annotations

from collections.abc import Callable

from geminga.model.errors import UnavailableError
from geminga.runtime import Clock, Turns


class AdminSteps:
    """Awaited before every step, each of which leaves a state that the same request, sent again, goes on from."""

    __slots__ = ("_is_stopping", "_turns")

    def __init__(self, clock: Clock, is_stopping: Callable[[], bool]) -> None:
        self._is_stopping = is_stopping
        self._turns = Turns(clock)

    async def next(self) -> None:
        """Raises UnavailableError once the broker is about to stop."""
        if self._turns.is_over():
            await self._turns.next()
        if self._is_stopping():
            raise UnavailableError("the broker is stopping: send the request again when it is back")
