"""When filters that failed are asked again: later each time, and for all subscriptions alike. Pure.

A filter that takes too long costs a process its budget each time. Who shares it would each pay for that, so what one
subscription found out holds for all that name the same filters.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: The first wait, and the longest.
RETRY_FIRST_MS: Final = 1000
RETRY_MAX_MS: Final = 300_000
#: Chains of filters whose troubles are remembered; the one that may be asked again first is forgotten.
TROUBLES_MAX: Final = 1000

Names = tuple[str, ...]


def wait_ms(failures: int) -> int:
    """How long to wait after so many failures in a row, at least one."""
    return int(min(RETRY_FIRST_MS << min(max(failures, 1) - 1, 20), RETRY_MAX_MS))


class Trouble(NamedTuple):
    """What came of asking filters, the last times."""

    failures: int
    #: Not before this, on the clock of who asks, in ms.
    until_ms: int
    reason: str


class FilterTroubles:
    """Which chains of filters are not to be asked now. Times are in ms on a clock that never goes back."""

    __slots__ = ("_troubles",)

    def __init__(self) -> None:
        self._troubles: dict[Names, Trouble] = {}

    def of(self, names: Names, now_ms: int) -> Trouble | None:
        """Why these are not asked now; None: they are."""
        found = self._troubles.get(names)
        return found if found is not None and now_ms < found.until_ms else None

    def all(self) -> dict[Names, Trouble]:
        """Chains whose last answer was a failure."""
        return dict(self._troubles)

    def failed(self, names: Names, reason: str, now_ms: int) -> int:
        """They took too long, or broke their process; how long they are not asked, ms."""
        before = self._troubles.pop(names, None)
        failures = 1 if before is None else before.failures + 1
        if len(self._troubles) >= TROUBLES_MAX:
            first = min(self._troubles, key=lambda each: self._troubles[each].until_ms)
            del self._troubles[first]
        delay_ms = wait_ms(failures)
        self._troubles[names] = Trouble(failures, now_ms + delay_ms, reason)
        return delay_ms

    def answered(self, names: Names) -> None:
        """They gave an answer in time."""
        self._troubles.pop(names, None)

    def forget(self) -> None:
        """Somebody changed them: ask all again."""
        self._troubles.clear()
