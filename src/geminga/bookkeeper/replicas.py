"""How reads reach replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from geminga.model.bookie_port import Availability

if TYPE_CHECKING:
    from geminga.model.bookie_port import BookiePool


#: Seconds that a bookie whose answer was late is asked behind others: each read would wait for it first.
LATE_S: Final = 30.0
#: An error that comes after so many seconds is none of the bookie's answers: who asks it gave it up.
UNANSWERED_S: Final = 3.0


class Replicas:
    """How a client's reads reach replicas: the bookies, and what all its reads share."""

    __slots__ = ("_late", "is_sticky", "now", "pool", "speculative_calls", "speculative_s")

    def __init__(
        self, pool: BookiePool, now: Callable[[], float], *, speculative_s: float = 0.0, is_sticky: bool = True
    ) -> None:
        """``now``: monotonic, seconds. ``speculative_s``: after so long another replica is asked as well; 0: never."""
        self.pool = pool
        self.now = now
        self.speculative_s = speculative_s
        self.is_sticky = is_sticky
        #: Without an answer now.
        self.speculative_calls = 0
        #: Bookies whose answer was late, and until when that counts.
        self._late: dict[str, float] = {}

    def was_late(self, bookie_id: str) -> None:
        """It did not answer a read in time."""
        now_s = self.now()
        self._late = {one: until_s for one, until_s in self._late.items() if until_s > now_s}
        self._late[bookie_id] = now_s + LATE_S

    def rank(self, bookie_id: str) -> int:
        """Who is asked first, as far as was seen: 0, then who was late, then who is out of reach."""
        if self.pool.get(bookie_id).availability is Availability.DOWN:
            return 2
        return int(bookie_id in self._late and self._late[bookie_id] > self.now())
