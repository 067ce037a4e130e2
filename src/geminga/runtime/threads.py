"""Blocking calls on named threads: the ``Threads`` port over :class:`~geminga.runtime.lanes.Lanes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from geminga.runtime.lanes import Lanes

T = TypeVar("T")


class LaneThreads:
    """One daemon thread per lane, in order of submission (SQLite connections belong to one thread)."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes = Lanes("geminga")

    def call(self, lane: str, function: Callable[[], T]) -> Awaitable[T]:
        """Run ``function`` on ``lane``; its result or exception is the awaitable's."""
        return self._lanes.call(lane, function)

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run ``function`` on ``lane``, then ``done`` on the loop's thread."""
        self._lanes.submit(lane, function, (), lambda _, error: done(error))

    async def close(self) -> None:
        """Finish what was submitted, end the threads."""
        await self._lanes.close()
