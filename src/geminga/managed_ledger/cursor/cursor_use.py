"""When a cursor was last used, and when it last moved: what the expiry of subscriptions and statistics go by."""

from __future__ import annotations

from geminga.runtime.ports import Clock


class CursorUse:
    """See the module."""

    __slots__ = ("_clock", "_last_active_ms", "_moved_s", "is_in_use")

    def __init__(self, clock: Clock, last_active_ms: int = 0) -> None:
        """``last_active_ms``: what is recorded of it, ms since the epoch; 0: it starts to count now."""
        self._clock = clock
        #: Whether somebody consumes through it.
        self.is_in_use = False
        self._last_active_ms = last_active_ms or clock.wall_ms()
        #: On the monotonic clock, which does not step.
        self._moved_s: float | None = None

    @property
    def last_active_ms(self) -> int:
        """When it was last in use, ms since the epoch: now, while it is."""
        return self._clock.wall_ms() if self.is_in_use else self._last_active_ms

    def begin(self) -> None:
        """Somebody consumes through it."""
        self.is_in_use = True

    def end(self) -> None:
        """Nobody does any more."""
        self._last_active_ms = self.last_active_ms
        self.is_in_use = False

    def note(self) -> None:
        """It was used just now."""
        self._last_active_ms = self._clock.wall_ms()

    @property
    def moved_ms(self) -> int:
        """When the mark-delete position last moved, ms since the epoch; 0: not since it was opened."""
        if self._moved_s is None:
            return 0
        return self._clock.wall_ms() - int((self._clock.monotonic() - self._moved_s) * 1000)

    def on_moved(self) -> None:
        """The mark-delete position moved."""
        self._moved_s = self._clock.monotonic()
