"""A node's clocks over the loop's virtual time: monotonic, and a wall clock that tests may set, jump and drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Wall time at virtual second 0: 2024-01-01T00:00:00Z, milliseconds.
EPOCH_MS: Final = 1_704_067_200_000


class SimClock:
    """The ``Clock`` port. Wall time = epoch + elapsed x (1 + drift) + jumps."""

    __slots__ = ("_drift_ppm", "_drifted_ms", "_drifted_since_s", "_jumped_ms", "_time")

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._jumped_ms = 0
        self._drift_ppm = 0.0
        self._drifted_ms = 0.0
        self._drifted_since_s = time()

    def monotonic(self) -> float:
        """Virtual seconds; never goes back."""
        return self._time()

    def worked(self) -> float:
        """The same: no time passes while anybody works."""
        return self._time()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as this node believes."""
        return EPOCH_MS + int(self._time() * 1000 + self._drift_until_now_ms()) + self._jumped_ms

    def jump(self, milliseconds: int) -> None:
        """Step the wall clock forward, or back if negative."""
        self._jumped_ms += milliseconds

    def set_drift(self, parts_per_million: float) -> None:
        """From now on the wall clock gains (or loses) this many microseconds a second."""
        self._drifted_ms = self._drift_until_now_ms()
        self._drifted_since_s = self._time()
        self._drift_ppm = parts_per_million

    def _drift_until_now_ms(self) -> float:
        return self._drifted_ms + (self._time() - self._drifted_since_s) * self._drift_ppm / 1000
