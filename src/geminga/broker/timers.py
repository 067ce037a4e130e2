"""Work that the broker repeats: one timer for each kind, all of them stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from geminga.runtime import spawn

#: Does what is due and returns the seconds until the next time.
Work = Callable[[], Coroutine[None, None, float]]


class Timers:
    """See the module."""

    __slots__ = ("_handles", "_is_closed")

    def __init__(self) -> None:
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._is_closed = False

    def repeat(self, name: str, after_s: float, work: Work) -> None:
        """Do ``work`` after ``after_s`` seconds, and then as often as it says; never twice at a time."""
        if self._is_closed:
            return

        async def run() -> None:
            self.repeat(name, await work(), work)

        self._handles[name] = asyncio.get_running_loop().call_later(after_s, lambda: spawn(run(), name=name))

    def close(self) -> None:
        """Stop; what runs now comes to its end."""
        self._is_closed = True
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
