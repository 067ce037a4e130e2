"""The system's clocks behind the ``Clock`` port."""

from __future__ import annotations

import time


class SystemClock:
    """``time.monotonic``, ``time.thread_time`` and ``time.time``."""

    __slots__ = ()

    #: The C function itself: one call less than a method (hot paths stamp batches).
    monotonic = staticmethod(time.monotonic)

    #: The same of the time that this thread had a processor.
    worked = staticmethod(time.thread_time)

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000
