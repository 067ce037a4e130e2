"""Rates from counters, computed when somebody asks."""

from __future__ import annotations

from typing import Final

#: A rate is computed anew when the last one is at least this old, seconds.
RATE_WINDOW_MIN_S: Final = 1.0


class Rates:
    """Changes per second of a fixed set of counters."""

    __slots__ = ("_counters", "_rates", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        self._counters: tuple[int, ...] = ()
        self._rates: tuple[float, ...] = ()

    def update(self, now: float, counters: tuple[int, ...]) -> tuple[float, ...]:
        """The rates between an earlier call and this one, in the order of ``counters``; zeros the first time."""
        if self._since is None:
            self._since, self._counters, self._rates = now, counters, (0.0,) * len(counters)
        elapsed = now - self._since
        if elapsed >= RATE_WINDOW_MIN_S:
            # A counter goes back when what it counted is gone: nothing is known of this time then.
            self._rates = tuple(max(0, new - old) / elapsed for new, old in zip(counters, self._counters, strict=True))
            self._since, self._counters = now, counters
        return self._rates
