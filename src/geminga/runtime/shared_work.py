"""Work that gives all who ask the same, and that many may ask for at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedWork(Generic[T]):
    """Done once at a time: who asks while it is under way shares the next with all others who do.

    So what one gets was begun after one asked, and however many ask, there are two at most.
    """

    __slots__ = ("_asking", "_begun", "_lock", "_result", "_work")

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._lock = asyncio.Lock()
        #: How often.
        self._begun = 0
        #: Of which beginning, for those who wait.
        self._result: tuple[int, T] | None = None
        self._asking = 0

    async def get(self) -> T:
        """What it gives. Raises what it raises: others who wait try again."""
        asked = self._begun
        self._asking += 1
        try:
            async with self._lock:
                if self._result is None or self._result[0] <= asked:
                    self._result = None
                    self._begun += 1
                    self._result = self._begun, await self._work()
                return self._result[1]
        finally:
            self._asking -= 1
            if not self._asking:
                self._result = None
