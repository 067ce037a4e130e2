"""Long work that an administrator asked for: one step after the other, in several turns of the loop, until a stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.model.errors import UnavailableError
from geminga.runtime import Turns

if TYPE_CHECKING:
    from geminga.broker.service import Broker


class AdminSteps:
    """Awaited before every step, each of which leaves a state that the same request, sent again, goes on from."""

    __slots__ = ("_broker", "_turns")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turns = Turns(broker.runtime.clock)

    async def next(self) -> None:
        """Raises UnavailableError once the broker is about to stop."""
        if self._turns.is_over():
            await self._turns.next()
        if self._broker.is_stopping:
            raise UnavailableError("the broker is stopping: send the request again when it is back")
