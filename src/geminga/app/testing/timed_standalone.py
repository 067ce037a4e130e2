"""``TimedStandalone``: a broker whose clock a test moves: time to live, delays and retention without waiting.

Its loop and its clock tell the real time and what the test added; so every timer that falls due within what is added
fires at once. Clients live in real time.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from geminga.app.servers.embedded import Standalone
from geminga.app.servers.standalone import StandaloneServer
from geminga.model.errors import ConfigurationError, LocalError

#: Connections stay: nothing comes over them in the time that is added. Ten years, in seconds.
KEEP_ALIVE_S: Final = 10 * 365 * 86_400
#: Real seconds that the broker's loop has to take the new time.
MOVE_S_MAX: Final = 30.0


class MovedClock:
    """The system's clocks, and what was added to them; shared by a loop and its broker."""

    __slots__ = ("moved_s",)

    def __init__(self) -> None:
        #: Seconds that were added.
        self.moved_s = 0.0

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic() + self.moved_s

    def worked(self) -> float:
        """Seconds that the calling thread had a processor: nothing is added."""
        return time.thread_time()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + int(self.moved_s * 1000)


class MovedLoop(asyncio.SelectorEventLoop):
    """A loop whose timers go by a :class:`MovedClock`."""

    def __init__(self, clock: MovedClock) -> None:
        super().__init__()
        self._moved_clock = clock

    def time(self) -> float:
        """Seconds of the moved clock."""
        return self._moved_clock.monotonic()


class TimedStandalone(Standalone):
    """A :class:`geminga.Standalone` whose clock moves when :meth:`advance` is called, and goes on by itself otherwise.

    Arguments are those of Standalone. Raises ConfigurationError for ``gemingaEventLoop=uvloop``, whose timers go by the
    system's clock alone.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, object] | None = None,
        *,
        broker_port: int = 0,
        web_port: int = 0,
        bookies: int | None = None,
    ) -> None:
        given = {"keepAliveIntervalSeconds": KEEP_ALIVE_S, **(config or {})}
        if given.get("gemingaEventLoop") == "uvloop":
            raise ConfigurationError("gemingaEventLoop=uvloop: a clock that moves needs the loop of asyncio")
        super().__init__(data_dir, given, broker_port=broker_port, web_port=web_port, bookies=bookies)
        self._clock = MovedClock()

    def advance(self, by: timedelta | float) -> None:
        """Let so much time pass for the broker: seconds, or a timedelta. Back when all that is due has begun.

        Timers that repeat fire once, however often they would have. What they begin (deleting, delivering) goes on
        behind it: wait for what you expect to see. Raises LocalError for less than nothing, and for a broker that does
        not run.
        """
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if not 0 <= seconds < math.inf:
            raise LocalError(f"advance({by}): time goes forward: expected seconds, or a timedelta, of 0 or more")
        self._running()
        loop = self._loop
        assert loop is not None
        done = threading.Event()

        def move() -> None:
            self._clock.moved_s += seconds
            # Behind every timer that is due now: timers fire in the order of their times.
            loop.call_later(0, done.set)

        loop.call_soon_threadsafe(move)
        if not done.wait(MOVE_S_MAX):
            raise LocalError(f"the broker did not take the new time within {MOVE_S_MAX} s")

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return MovedLoop(self._clock)

    def _new_server(self) -> StandaloneServer:
        return StandaloneServer(
            self._config, self._data_dir, on_fatal=self._on_fatal, pid=os.getpid(), clock=self._clock
        )
