"""When a journal group waits for more records although the disk is free.

A sync costs the same for one record as for twenty, some 60 us of CPU time beside the disk's own. Waiting saves syncs
where records keep coming whatever becomes of those before them (an open loop, densely); where each producer sends its
next record when it has the receipt of the last one (a closed loop), waiting for one that can not come saves nothing
and slows everybody down. So a group waits only if all of these hold:

- records come so densely that several are to be expected within the longest wait (:data:`ARRIVALS_MIN`);
- it is small (:data:`ENTRIES_ENOUGH`);
- fewer records are in it than were unanswered lately when a group became durable. With k producers in a closed loop
  those are k and never more: one alone never waits, several wait for each other and for nobody else. In an open loop
  more have come during each sync than before it, so the number grows until the time is up;
- the group before began less than the longest wait ago: groups are spaced, and a record after a quiet moment goes on
  at once;
- waiting is not known to make producers slower. It is compared again and again with a few groups that do not wait;
  if fewer records came with waiting (:data:`SLOWER_SHARE`), there is none for a while, which doubles each time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Records expected within the longest wait, below which it is not worth it: 3,000/s with 1 ms.
ARRIVALS_MIN: Final = 3
#: With so many entries a group is cheap enough for each of them.
ENTRIES_ENOUGH: Final = 32
#: Groups over which the rate of records is measured; so many go without waiting to compare with.
FREE_GROUPS: Final = 32
#: Groups with waiting, first and later, before that is compared again.
HELD_GROUPS_FIRST: Final = 32
HELD_GROUPS: Final = 512
#: Waiting slows producers down if less than this share of the records came that came without.
SLOWER_SHARE: Final = 0.85
#: How long there is no waiting once it was found to slow producers down, at first and at most, seconds.
REST_FIRST_S: Final = 1.0
REST_MAX_S: Final = 60.0
#: A longer pause between two groups is left out of a rate, in waits: nobody sent anything, waiting or not.
PAUSE_MAX_WAITS: Final = 5
#: Weight of the newest group in the running average of unanswered records.
_NEWEST: Final = 0.25
#: Added to that average before it is cut to a whole number: it comes near those that always come, never quite there.
#: One more who comes now and then is not waited for.
_ROUNDING: Final = 0.25


class GroupPacing:
    """See the module. Times are monotonic seconds."""

    __slots__ = (
        "_expected",
        "_free_rate",
        "_groups_left",
        "_held_groups",
        "_last",
        "_may_hold",
        "_pause_max_s",
        "_recent",
        "_records",
        "_rest_s",
        "_rest_until",
        "_seconds",
        "_total",
        "_wait_s",
    )

    def __init__(self, wait_s: float) -> None:
        """``wait_s``: the longest wait, from the begin of the group before."""
        self._wait_s = wait_s
        self._pause_max_s = PAUSE_MAX_WAITS * wait_s
        #: The newest groups: when each began, and its records; the sum of these.
        self._recent: deque[tuple[float, int]] = deque()
        self._total = 0
        self._last = float("-inf")
        #: Running average of the records unanswered when a group became durable, itself included.
        self._expected = 0.0
        #: Whether the present stretch of groups may wait, how many groups of it are left, its length and its records.
        self._may_hold = False
        self._groups_left = FREE_GROUPS
        self._seconds = 0.0
        self._records = 0
        #: Records per second of the stretch without waiting before this one.
        self._free_rate = 0.0
        #: Length of the next stretch with waiting.
        self._held_groups = HELD_GROUPS_FIRST
        self._rest_s = REST_FIRST_S
        self._rest_until = float("-inf")

    def wait_s(self, now: float, records: int, entries: int) -> float:
        """How much longer a group with so many records and entries may wait; 0: it goes to the disk now."""
        if not self._may_hold or entries >= ENTRIES_ENOUGH or records >= int(self._expected + _ROUNDING):
            return 0.0
        left = self._last + self._wait_s - now
        return left if left > 0 and self._is_dense(now) else 0.0

    def _is_dense(self, now: float) -> bool:
        return self._total * self._wait_s >= ARRIVALS_MIN * (now - self._recent[0][0])

    def begun(self, now: float, records: int) -> None:
        """A group goes to the disk."""
        if now - self._last <= self._pause_max_s:
            self._seconds += now - self._last
        self._last = now
        recent = self._recent
        recent.append((now, records))
        self._total += records
        if len(recent) > FREE_GROUPS:
            self._total -= recent.popleft()[1]
        self._groups_left -= 1
        if self._groups_left <= 0:
            self._next_stretch(now)
            self._seconds, self._records = 0.0, 0
        self._records += records

    def durable(self, unanswered: int) -> None:
        """A group is on stable storage; ``unanswered`` records, it included, have no answer yet."""
        self._expected += (unanswered - self._expected) * _NEWEST

    def _next_stretch(self, now: float) -> None:
        """As many groups as were wanted have begun: judge them, and say what holds for the next ones."""
        rate = self._records / self._seconds if self._seconds > 0 else 0.0
        if not self._may_hold:
            self._free_rate = rate
            self._may_hold = now >= self._rest_until and self._is_dense(now)
        else:
            self._may_hold = False
            if rate < self._free_rate * SLOWER_SHARE:
                self._rest_until = now + self._rest_s
                self._rest_s = min(2 * self._rest_s, REST_MAX_S)
                self._held_groups = HELD_GROUPS_FIRST
            else:
                self._rest_s = REST_FIRST_S
                self._held_groups = HELD_GROUPS
        self._groups_left = self._held_groups if self._may_hold else FREE_GROUPS
