"""How much of the loop's time those who catch up may have while others publish. Pure.

A reader that catches up always has something to do; whoever publishes has to get through between its turns, several
times a message, and needs a core for the client and for the disk as well. So while publishes come, catching up has a
share of the time: a bucket of seconds that fills at that share, and from which each turn takes what it lasted. Turns
are short, and between them the loop is idle, or others have it. With nobody who publishes there is no limit.

The bucket is a time's, not a count's: a large entry takes what it takes, and is made up for. As little is saved up,
there is no burst after a pause; and as what it owes is bounded too, there is always a next turn.
"""

from __future__ import annotations

from typing import Final

from geminga.model.errors import invariant

#: Publishes flow until so long after the last one, seconds.
FLOW_S: Final = 0.010
#: A turn while publishes flow, and while there are none, seconds.
TURN_S: Final = 0.000_15
QUIET_TURN_S: Final = 0.001
#: The longest turn while publishes flow: as long as it takes to have the share where others have longer ones.
LONG_TURN_S: Final = 0.005
#: What may be saved up: timers are no finer than a millisecond, and what passed until one rang is not lost.
SAVED_S: Final = 0.001
#: After so long there is a turn, whatever is owed.
WAIT_MAX_S: Final = 0.050


class CatchUpShare:
    """See the module. Times are of the monotonic clock, in seconds."""

    __slots__ = ("_at_s", "_level_s", "_published_s", "_share")

    def __init__(self, share: float) -> None:
        """``share``: of the time, above 0; 1: there is no limit."""
        self._share = share
        self._level_s = 0.0
        #: When the level was that.
        self._at_s = float("-inf")
        self._published_s = float("-inf")

    def published(self, now_s: float) -> None:
        """Somebody publishes."""
        self._published_s = now_s

    def is_limited(self, now_s: float) -> bool:
        """Whether publishes flow, and those who catch up have to leave something of the time."""
        return self._share < 1 and now_s - self._published_s < FLOW_S

    def turn_s(self, now_s: float) -> float:
        """How long a turn may last that begins now; 0: none may, see :meth:`wait_s`."""
        if not self.is_limited(now_s):
            return QUIET_TURN_S
        self._fill(now_s)
        if self._level_s <= 0:
            return 0.0
        # What came in while others had a long turn is used up at once: else many such would leave less than the share.
        return min(max(TURN_S, (self._level_s - SAVED_S) / (1 - self._share)), LONG_TURN_S)

    def asked(self, now_s: float) -> None:
        """Somebody wants a turn, and nobody did before: what that time brought is not saved up."""
        self._fill(now_s)
        self._level_s = min(self._level_s, SAVED_S)

    def wait_s(self, now_s: float) -> float:
        """Until a turn may begin; 0: now."""
        if not self.is_limited(now_s):
            return 0.0
        self._fill(now_s)
        # For a whole turn: one that ends before it has begun is worth nothing.
        return max(0.0, TURN_S - self._level_s) / self._share if self._level_s <= 0 else 0.0

    def took(self, now_s: float, seconds: float) -> None:
        """A turn, or a part of one, lasted so long and ends now."""
        if not self.is_limited(now_s):
            self._level_s, self._at_s = 0.0, now_s
            return
        self._fill(now_s)
        self._level_s = max(self._level_s - seconds, TURN_S - WAIT_MAX_S * self._share)

    def _fill(self, now_s: float) -> None:
        passed_s = now_s - self._at_s
        if passed_s > 0:
            self._at_s = now_s
            self._level_s = min(self._level_s + passed_s * self._share, SAVED_S + LONG_TURN_S)

    def check_invariants(self) -> None:
        """Neither too much saved nor too much owed."""
        invariant(self._level_s <= SAVED_S + LONG_TURN_S, "more is saved up than one turn takes")
        invariant(self._level_s >= TURN_S - WAIT_MAX_S * self._share, "more is owed than the longest wait brings")
