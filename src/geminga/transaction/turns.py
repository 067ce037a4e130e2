"""Whose turn it is to be told how a transaction ended: one participant that hangs keeps no other waiting for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final
from weakref import WeakValueDictionary

#: Participants told at a time, by one coordinator, of those that answer soon.
TELLING_AT_ONCE: Final = 100
#: Ends that one participant is told at a time, until it answers: the others always have places left.
TELLING_ONE_AT_ONCE: Final = 50
#: Seconds after which one that did not answer yet counts no more: the others do not wait for it.
TELLING_SOON_S: Final = 1.0


class Turns:
    """Of one coordinator, see the module."""

    __slots__ = ("_all", "_each")

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(TELLING_AT_ONCE)
        #: By name, while any end of that participant has a turn or waits for one.
        self._each: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def take(self, whom: str, tell: Callable[[], Awaitable[None]]) -> None:
        """Tell ``whom`` when fewer than the limits are being told; raises what ``tell`` does."""
        own = self._each.get(whom)
        if own is None:
            own = self._each[whom] = asyncio.Semaphore(TELLING_ONE_AT_ONCE)
        async with own:
            await self._all.acquire()
            counted = ExitStack()
            counted.callback(self._all.release)
            timer = asyncio.get_running_loop().call_later(TELLING_SOON_S, counted.close)
            try:
                await tell()
            finally:
                timer.cancel()
                counted.close()
