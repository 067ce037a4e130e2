"""How many messages a consumer hands out before the loop gets a turn.

Messages that wait in the prefetch queue are handed out without the loop: an application that never waits for anything
else would keep it from everything, from reading the next entries and from sending the permits for them too. So there
is a turn for the loop after :data:`TURN_MESSAGES_MAX` messages at the latest, and sooner if the application takes its
time: a turn is halved when it took longer than :data:`TURN_MS_MAX`, and grows again while it took less than half of
that.
"""

from __future__ import annotations

from typing import Final

#: Messages handed out in a row.
TURN_MESSAGES_MAX: Final = 500
#: Milliseconds they may take as a rule.
TURN_MS_MAX: Final = 10
#: The first turn: nothing is known of the application.
TURN_MESSAGES_FIRST: Final = 32


class Turns:
    """Of one consumer. Times are seconds of a clock that does not go back."""

    __slots__ = ("_began_s", "left", "size")

    def __init__(self, now_s: float) -> None:
        #: Messages of one turn.
        self.size = TURN_MESSAGES_FIRST
        #: Messages left of the one under way; 0 or less: the loop is to have its turn.
        self.left = self.size
        self._began_s = now_s

    def end(self, now_s: float) -> None:
        """The application had its turn."""
        took_ms = (now_s - self._began_s) * 1000
        if took_ms > TURN_MS_MAX:
            self.size = max(1, self.size // 2)
        elif took_ms * 2 < TURN_MS_MAX:
            self.size = min(TURN_MESSAGES_MAX, self.size * 2)

    def begin(self, now_s: float) -> None:
        """The loop had its turn."""
        self.left = self.size
        self._began_s = now_s
