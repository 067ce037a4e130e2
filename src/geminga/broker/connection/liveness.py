"""Whether the peer of a connection is still there: a PING on demand, and who waits for what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LivenessCheck:
    """Of one connection. All who ask while a PING is out hear the same answer."""

    __slots__ = ("_loop", "_timer", "_waiters", "is_under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Whether anybody waits; looked at whenever something is heard of the peer.
        self.is_under_way = False
        self._waiters: list[asyncio.Future[bool]] = []
        self._timer: asyncio.TimerHandle | None = None

    def known(self, is_alive: bool) -> asyncio.Future[bool]:
        """An answer without a question."""
        future: asyncio.Future[bool] = self._loop.create_future()
        future.set_result(is_alive)
        return future

    def ask(self, ping: Callable[[], None], timed_out: Callable[[], None], timeout_s: float) -> asyncio.Future[bool]:
        """Whether the peer is heard of; ``timed_out`` is called if it is not within ``timeout_s`` of the PING."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._waiters.append(future)
        if not self.is_under_way:
            self.is_under_way = True
            self._timer = self._loop.call_later(timeout_s, self._timeout, timed_out)
            ping()
        return future

    def _timeout(self, timed_out: Callable[[], None]) -> None:
        self._timer = None
        if self.is_under_way:
            timed_out()

    def answer(self, is_alive: bool) -> None:
        """Something was heard, or the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_under_way = False
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(is_alive)
