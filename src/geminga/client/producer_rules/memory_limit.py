"""The client's limit on bytes that wait for receipts, shared by all its producers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryLimit:
    """Counts bytes. A reservation may pass the limit once, the next one has to wait: no message is too big for it."""

    __slots__ = ("_waiters", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        #: 0: no limit.
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiters: deque[Callable[[], None]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be reserved now."""
        return self.used_bytes >= self.limit_bytes > 0

    def reserve(self, size_bytes: int) -> None:
        """Count bytes in; the caller looked at :attr:`is_full` before."""
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Count bytes out; wakes those who wait once there is room."""
        self.used_bytes -= size_bytes
        if self._waiters and not self.is_full:
            waiters, self._waiters = self._waiters, deque()
            for wake in waiters:
                wake()

    def on_room(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once when there is room."""
        self._waiters.append(wake)
