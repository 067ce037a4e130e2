"""``Arrivals``: who waits for messages of a consumer, and who only wants to know that something happened.

Whoever is woken takes from the queue itself, and one that was woken and cancelled wakes the next: nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Arrivals:
    """Of one consumer."""

    __slots__ = ("_loop", "_waiters", "_watchers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Each is woken for one message.
        self._waiters: deque[asyncio.Future[None]] = deque()
        #: All are woken, and take nothing.
        self._watchers: list[asyncio.Future[None]] = []

    @property
    def are_awaited(self) -> bool:
        """Whether anybody waits for a message, or for something to happen."""
        return bool(self._waiters or self._watchers)

    def arrived(self, count: int) -> None:
        """So many messages did."""
        if self._waiters or self._watchers:
            self.wake(count)

    def wake(self, count: int) -> None:
        """Everybody who watches, and up to ``count`` of those who wait."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)
        waiters = self._waiters
        while waiters and count > 0:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def wake_all(self) -> None:
        """Everybody."""
        self.wake(len(self._waiters))

    async def watch(self) -> None:
        """Until something arrived or was passed over, whoever takes it."""
        watcher: asyncio.Future[None] = self._loop.create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    async def wait(self) -> None:
        """Until something arrived that may be taken, or everybody is woken."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake(1)  # it was our turn: the next one's now
            raise
        finally:
            if not waiter.done() or waiter.cancelled():
                self._forget(waiter)

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        try:
            self._waiters.remove(waiter)
        except ValueError:
            pass
