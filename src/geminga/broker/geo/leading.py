"""A topic that stores nothing, and moves to another cluster: its clients are led there once it can be used there.

Consumers before producers, so that little is published there that nobody hears. Nothing is kept of the move: the topic
is led away anew whenever it is loaded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from geminga.broker.geo.migration import (
    AGAIN_FIRST_MS,
    AGAIN_MAX_MS,
    CHECK_MS,
    TOLD_A_TURN,
    lead_consumers,
    lead_producers,
)
from geminga.model.errors import GemingaError, TopicMovedError
from geminga.runtime import Turns, get_logger, spawn, wait_ms

if TYPE_CHECKING:
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.parts import OtherPlace

_log = get_logger(__name__)


class Leading:
    """See the module; :class:`geminga.broker.topic.parts.LedAway`."""

    __slots__ = ("_is_there", "_prepare", "_task", "_topic", "place")

    def __init__(self, topic: Topic, place: OtherPlace, prepare: Callable[[], Awaitable[None]]) -> None:
        """``prepare``: make over there what the topic needs. Raises GemingaError."""
        self._topic = topic
        self.place = place
        self._prepare = prepare
        self._is_there = False
        self._task = spawn(self._run(), name=f"lead clients of {topic.name} away", part=topic)

    def check(self) -> None:
        """As of the port."""
        if self._is_there:
            place = self.place
            raise TopicMovedError(
                f"Topic {self._topic.name} moved to another cluster", place.broker_url, place.broker_url_tls
            )

    def end(self) -> None:
        """As of the port."""
        self._task.cancel()

    async def _run(self) -> None:
        again_ms, told = AGAIN_FIRST_MS, ""
        while not self._is_there:
            try:
                await self._prepare()
                self._is_there = True
            except GemingaError as error:
                if told != f"{error}":
                    told = f"{error}"
                    _log.warning("%s does not move yet: %s", self._topic.name, error)
                await wait_ms(again_ms)
                again_ms = min(2 * again_ms, AGAIN_MAX_MS)
        while True:
            # Some may have been let in before, and come only now.
            turns = Turns(self._topic.services.runtime.clock, steps_max=TOLD_A_TURN)
            for subscription in [*self._topic.subscriptions.values()]:
                await lead_consumers(turns, subscription.consumers, self.place)
            await lead_producers(turns, self._topic.attendance.all(), self.place)
            await wait_ms(CHECK_MS)
