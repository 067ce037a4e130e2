"""Work that the broker repeats: one timer for each kind, all of them stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from geminga.runtime import Contained, Part, spawn

#: Does what is due and returns the seconds until the next time.
Work = Callable[[], Coroutine[None, None, float]]


class Timers:
    """See the module."""

    __slots__ = ("_handles", "_is_closed", "_part")

    def __init__(self, part: Part | None = None) -> None:
        """``part`` hears of what the work did not expect; it is done again all the same."""
        self._part = part
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._is_closed = False

    def repeat(self, name: str, after_s: float, work: Work) -> None:
        """Do ``work`` after ``after_s`` seconds, and then as often as it says; never twice at a time."""
        if self._is_closed:
            return

        async def run() -> None:
            next_s = after_s
            with Contained(self._part, name):
                next_s = await work()
            self.repeat(name, next_s, work)

        def start() -> None:
            spawn(run(), name=name, part=self._part)

        self._handles[name] = asyncio.get_running_loop().call_later(after_s, start)

    def close(self) -> None:
        """Stop; what runs now comes to its end."""
        self._is_closed = True
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
