"""Looking at metadata when there is news of it, and once in a round, since news may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from geminga.runtime import Contained, Part, spawn

#: Milliseconds between two looks that nobody asked for.
ROUND_MS: Final = 10_000
#: ... and after one that failed.
RETRY_MS: Final = 500


class Rounds:
    """See the module; one look at a time."""

    __slots__ = ("_due", "_is_ending", "_look", "_name", "_part", "_task")

    def __init__(self, look: Callable[[], Awaitable[bool]], name: str, *, part: Part | None = None) -> None:
        """``look`` says whether all was seen; else it is called again after a moment. It raises nothing."""
        self._look = look
        self._name = name
        self._part = part
        self._due = asyncio.Event()
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with a look."""
        self._due.set()
        self._task = spawn(self._run(), name=self._name, part=self._part)

    def look_soon(self) -> None:
        """There is news."""
        self._due.set()

    async def end(self) -> None:
        """No more looks; on return none is under way."""
        self._is_ending = True
        self._due.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        wait_ms = 0
        while True:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            if self._is_ending:
                return
            wait_ms = RETRY_MS
            # What breaks in one look is looked at again.
            with Contained(self._part, self._name, is_last=True):
                if await self._look():
                    wait_ms = ROUND_MS
