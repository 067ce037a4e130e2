"""How long to wait before the next attempt: doubling, with jitter downwards, and a mandatory stop."""

from __future__ import annotations

from typing import Final

#: Pulsar's clients take off up to a tenth of each delay, so that they do not all come back at once.
JITTER_SHARE: Final = 0.1

INITIAL_MS_DEFAULT: Final = 100
MAXIMUM_MS_DEFAULT: Final = 60_000


class Backoff:
    """Delays of one series of attempts.

    ``mandatory_stop_ms``: one attempt is made at this time after the first delay was asked for, however long the
    delay would be by then (0: none), so that a caller with a timeout tries once more shortly before it.
    """

    __slots__ = ("_initial_ms", "_mandatory_stop_done", "_mandatory_stop_ms", "_maximum_ms", "_next_ms", "_started_ms")

    def __init__(
        self,
        initial_ms: int = INITIAL_MS_DEFAULT,
        maximum_ms: int = MAXIMUM_MS_DEFAULT,
        mandatory_stop_ms: int = 0,
    ) -> None:
        self._initial_ms = initial_ms
        self._maximum_ms = maximum_ms
        self._mandatory_stop_ms = mandatory_stop_ms
        self._next_ms = initial_ms
        #: When the series began; -1 before.
        self._started_ms = -1.0
        self._mandatory_stop_done = False

    def next_ms(self, now_ms: float, random: float) -> float:
        """Milliseconds to wait from ``now_ms`` (any monotonic clock); ``random`` in [0, 1) gives the jitter."""
        delay_ms: float = self._next_ms
        self._next_ms = min(self._next_ms * 2, self._maximum_ms)
        if not self._mandatory_stop_done and self._mandatory_stop_ms:
            if self._started_ms < 0:
                self._started_ms = now_ms
            elapsed_ms = now_ms - self._started_ms
            if elapsed_ms + delay_ms > self._mandatory_stop_ms:
                delay_ms = max(self._initial_ms, self._mandatory_stop_ms - elapsed_ms)
                self._mandatory_stop_done = True
        return max(self._initial_ms, delay_ms - delay_ms * JITTER_SHARE * random)

    def reset(self) -> None:
        """An attempt succeeded: the next series starts small again."""
        self._next_ms = self._initial_ms
        self._started_ms = -1.0
        self._mandatory_stop_done = False
