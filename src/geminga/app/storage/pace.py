"""How fast a backup is copied: so many bytes a second by all that copy for it at once."""

from __future__ import annotations

from geminga.replication.core.pacing import ByteRate
from geminga.runtime import wait_ms
from geminga.runtime.ports import Clock


class Pace:
    """Holds back who has copied too much. ``bytes_per_s``: 0 is no limit."""

    __slots__ = ("_clock", "_rate")

    def __init__(self, clock: Clock, bytes_per_s: int = 0) -> None:
        self._clock = clock
        self._rate = ByteRate(bytes_per_s)

    async def copied(self, size_bytes: int) -> None:
        """Wait until what was copied, with these bytes, is no more than the rate allows."""
        seconds = self._rate.take(size_bytes, self._clock.monotonic())
        if seconds > 0:
            await wait_ms(seconds * 1000)
