"""What entry filters do not want sent now, on Shared and Key_Shared: the filters are asked again after a while.

``dispatcherEntryFilterRescheduledMessageDelay`` later it joins what is to be sent again. On Key_Shared everything of
the same key waits with it. Loaded with the first such verdict.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from geminga.broker.core.dispatch.shared import SharedDispatcher
from geminga.model import Position
from geminga.runtime import Contained, Part

#: So many wait at most; nothing else is read until the first of them are due.
RESCHEDULED_MAX: Final = 10_000


def _nothing() -> None:
    """Nobody is woken."""


class Rescheduled:
    """See the module. Times are those of the loop."""

    __slots__ = ("_comes_again", "_core", "_part", "_timer", "_waiting", "_wake")

    def __init__(
        self,
        core: SharedDispatcher[Any],
        part: Part,
        wake: Callable[[], None],
        comes_again: Callable[[], None] = _nothing,
    ) -> None:
        """``wake`` is called when some may be sent again, before that ``comes_again``. ``part``: whose failure it is if
        that breaks."""
        self._core = core
        self._part = part
        self._wake = wake
        self._comes_again = comes_again
        #: When it is due, the entry, the hash of its key.
        self._waiting: deque[tuple[float, Position, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no more are taken."""
        return len(self._waiting) >= RESCHEDULED_MAX

    def add(self, entries: Sequence[tuple[Position, int]], delay_ms: int) -> None:
        """These, with the hashes of their keys, wait so long."""
        due = asyncio.get_running_loop().time() + delay_ms / 1000
        for position, sticky_hash in entries:
            self._core.rest(position, sticky_hash)
            self._waiting.append((due, position, sticky_hash))
        self._arm()

    def close(self) -> None:
        """Nothing is postponed any more: all of it may be sent now."""
        self._wake = _nothing
        self._release(float("inf"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        with Contained(self._part, "what filters postponed"):
            self._release(asyncio.get_running_loop().time())
            self._arm()
            self._wake()

    def _release(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, position, sticky_hash = self._waiting.popleft()
            self._comes_again()
            self._core.rested(position, sticky_hash)
