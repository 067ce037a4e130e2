"""Whose turn it is to read and send: so many replicators at the same time, of all other clusters and of each of them.

So is what the log is told of a cluster: with ten thousand topics that are not copied there it would have as many lines.

Who asks another cluster for something meanwhile steps aside: a cluster that does not answer holds its own turns, and
nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

#: Replicators that read and send at the same time.
READS_AT_ONCE: Final = 16
#: The same to one cluster, those that stepped aside included: what each has read is in memory, 1 MiB at most.
READS_AT_ONCE_TO_ONE: Final = 16
#: Lines of the log about topics that are not copied to one cluster, in so many seconds.
LINES_MAX: Final = 20
LINES_S: Final = 60.0


class ClusterTurns:
    """Turns of those that copy to one cluster."""

    __slots__ = ("_all", "_lines", "_own", "_since_s")

    def __init__(self, all_turns: asyncio.Semaphore) -> None:
        """``all_turns``: those of all clusters together."""
        self._all = all_turns
        self._own = asyncio.Semaphore(READS_AT_ONCE_TO_ONE)
        #: Lines that were asked for since then.
        self._lines = 0
        self._since_s = -LINES_S

    def lines_left(self, now_s: float) -> int:
        """Lines that the log may have now, the one that is asked for included; 0: the first that it may not."""
        if now_s - self._since_s >= LINES_S:
            self._lines, self._since_s = 0, now_s
        self._lines += 1
        return LINES_MAX + 1 - self._lines

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Turn]:
        """A turn, when it comes."""
        async with self._own:
            await self._all.acquire()
            turn = Turn(self._all)
            try:
                yield turn
            finally:
                turn.end()


class Turn:
    """One that was taken."""

    __slots__ = ("_all", "_is_held")

    def __init__(self, all_turns: asyncio.Semaphore) -> None:
        self._all = all_turns
        self._is_held = True

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Others read and send meanwhile. What is raised within ends the turn: it is not waited for again."""
        self.end()
        yield
        await self._all.acquire()
        self._is_held = True

    def end(self) -> None:
        """Once."""
        if self._is_held:
            self._is_held = False
            self._all.release()
