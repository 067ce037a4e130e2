"""The ``Threads`` port under simulation: refuses, or runs inline where a test allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from geminga.sim.errors import SimEscapeError

T = TypeVar("T")


class SimThreads:
    """Real threads would break determinism. ``inline=True`` calls at once and completes in a later step."""

    __slots__ = ("inline",)

    def __init__(self, *, inline: bool = False) -> None:
        #: Whether functions are run on the loop's thread instead of refused.
        self.inline = inline

    def call(self, lane: str, function: Callable[[], T]) -> Awaitable[T]:
        """Run ``function`` inline; raises SimEscapeError unless allowed."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        results: list[T] = []

        def finished(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(results[0])
            else:
                future.set_exception(error)

        self.submit(lane, lambda: results.append(function()), finished)
        return future

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Like :meth:`call`, with a callback."""
        if not self.inline:
            raise SimEscapeError(f"thread {lane!r} asked for under simulation")
        error: BaseException | None = None
        try:
            function()
        except BaseException as raised:  # as a real lane: carried to the completion
            error = raised
        asyncio.get_running_loop().call_soon(done, error)
        del error  # its frames are this one's, too

    async def close(self) -> None:
        """Nothing to end."""
