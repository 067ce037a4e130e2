"""Whether the peer of a connection is still there: a PING on demand, and who waits for what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LivenessCheck:
    """Of one connection. All who ask while a PING is out hear the same answer."""

    __slots__ = ("_loop", "_timer", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[bool]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiters)

    def known(self, is_alive: bool) -> asyncio.Future[bool]:
        """An answer without a question."""
        future: asyncio.Future[bool] = self._loop.create_future()
        future.set_result(is_alive)
        return future

    def ask(self, ping: Callable[[], None], timed_out: Callable[[], None], timeout_s: float) -> asyncio.Future[bool]:
        """Whether the peer is heard of; ``timed_out`` is called if it is not within ``timeout_s`` of the PING."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._waiters.append(future)
        if len(self._waiters) == 1:
            self._timer = self._loop.call_later(timeout_s, self._timeout, timed_out)
            ping()
        return future

    def _timeout(self, timed_out: Callable[[], None]) -> None:
        self._timer = None
        if self._waiters:
            timed_out()

    def answer(self, is_alive: bool) -> None:
        """Something was heard, or the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(is_alive)
