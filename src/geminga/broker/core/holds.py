"""How long something that broke stays closed, so that clients who come back at once do not make it a loop.

A first failure is over after a moment; each further one that follows soon doubles the time, up to a bound. Pure.
"""

from __future__ import annotations

from typing import Final

#: Milliseconds for which what broke once stays closed.
HOLD_FIRST_MS: Final = 1_000
#: ... and what breaks again and again.
HOLD_MAX_MS: Final = 60_000
#: After so many milliseconds without a failure the next one counts as the first.
FORGET_MS: Final = 600_000
#: Names remembered; the one that broke longest ago goes first.
NAMES_MAX: Final = 10_000


class Holds:
    """Names of what broke, and until when each is held; times are milliseconds of a clock that does not go back."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        #: Name -> (how long it is held, when that ends); in the order of the failures.
        self._held: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def broke(self, name: str, now_ms: int) -> int:
        """``name`` broke now; for how many milliseconds from now it is held."""
        before = self._held.pop(name, None)
        hold_ms = HOLD_FIRST_MS
        if before is not None and now_ms - before[1] < FORGET_MS:
            # What fails while it is held was under way before: it is the same failure.
            hold_ms = before[0] if now_ms < before[1] else min(2 * before[0], HOLD_MAX_MS)
        self._held[name] = (hold_ms, now_ms + hold_ms)
        if len(self._held) > NAMES_MAX:
            del self._held[next(iter(self._held))]
        return hold_ms

    def left_ms(self, name: str, now_ms: int) -> int:
        """For how many milliseconds ``name`` is still held; 0: it is not."""
        held = self._held.get(name)
        return 0 if held is None else max(0, held[1] - now_ms)
