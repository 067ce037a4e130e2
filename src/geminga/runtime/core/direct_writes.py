"""Whether small writes may be made on the loop's own thread, judged by how long those before took.

A write into the page cache is a copy, but a file system may make it wait (a commit of its own, too many dirty pages).
One that took longer than :data:`SLOW_WRITE_S` sends those after it to their lane for a while, which doubles each time.
"""

from __future__ import annotations

from typing import Final

#: A write that held the loop for longer was slow: as long as a connection's turn may last. Seconds.
SLOW_WRITE_S: Final = 0.005
#: No write on the loop for so long after the first slow one, and at most, seconds.
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0


class DirectWrites:
    """See the module. Times are monotonic seconds."""

    __slots__ = ("_not_before", "_pause_s")

    def __init__(self) -> None:
        self._not_before = float("-inf")
        self._pause_s = PAUSE_FIRST_S

    def allows(self, now: float) -> bool:
        """Whether a write may be made on the loop now."""
        return now >= self._not_before

    def took(self, started: float, ended: float) -> None:
        """One was made. A pause as long as the last one without a slow write makes the next one short again."""
        if ended - started > SLOW_WRITE_S:
            self._not_before = ended + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        elif self._pause_s > PAUSE_FIRST_S and ended - self._not_before >= self._pause_s:
            self._pause_s = PAUSE_FIRST_S
