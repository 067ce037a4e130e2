"""The longest turn of a loop: CPU time of this thread that one callback, or one step of a task, took."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from geminga.runtime import next_turn, spawn


class TurnProbe:
    """As a context: what runs on an asyncio loop within it is measured."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.what = ""
        self._run: Any = None

    def __enter__(self) -> Self:
        self._run = run = asyncio.Handle._run
        gc.collect()
        gc.disable()  # a collection of what the tests before left is no turn of ours

        def measured(handle: asyncio.Handle) -> None:
            name = repr(handle) if self.longest_s < 0 else ""
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            if took > self.longest_s:
                self.longest_s = took
                self.what = name or repr(handle)

        asyncio.Handle._run = measured  # type: ignore[method-assign]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]
        gc.enable()


class OtherTurns:
    """Somebody else in a loop, who does nothing but take turns."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        while True:
            self.count += 1
            await next_turn()


@contextmanager
def other_turns() -> Iterator[OtherTurns]:
    """Turns that somebody else gets meanwhile."""
    turns = OtherTurns()
    task = spawn(turns.take(), name="other")
    try:
        yield turns
    finally:
        task.cancel()
