"""The bound on bytes that clients and brokers were sent and have not taken, over all connections of a proxy. Pure.

An end whose buffer is over its mark is counted with what is in it. Where all of them are more than the limit, the one
that has been over its mark longest is to be cut off: who takes what it is sent is over it for moments. One alone may
have more at once, a large answer, and is cut off if it is sent still more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

#: Bytes at ends that are over their marks.
UNTAKEN_BYTES_MAX: Final = 256 * 1024 * 1024


class UntakenRoom:
    """See the module."""

    __slots__ = ("_ends", "_limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int = UNTAKEN_BYTES_MAX) -> None:
        self._limit_bytes = limit_bytes
        #: Longest over its mark first: bytes, and what cuts it off.
        self._ends: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self.size_bytes = 0

    def hold(self, end: Hashable, size_bytes: int, cut_off: Callable[[], None]) -> None:
        """So much is in its buffer, which is over its mark. May cut off others, or this one."""
        before = self._ends.get(end, (0, cut_off))[0]
        self._ends[end] = (size_bytes, cut_off)
        self.size_bytes += size_bytes - before
        while self.size_bytes > self._limit_bytes and (len(self._ends) > 1 or 0 < before < size_bytes):
            oldest = next(iter(self._ends))
            slow = self._ends[oldest][1]
            self.free(oldest)
            slow()

    def free(self, end: Hashable) -> None:
        """It took most of it, or is gone."""
        size_bytes, _ = self._ends.pop(end, (0, None))
        self.size_bytes -= size_bytes
