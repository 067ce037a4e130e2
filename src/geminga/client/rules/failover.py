"""When a client leaves its cluster for another one, and when it goes back to the first. Pure; times in seconds.

As Java's ``AutoClusterFailover``: a cluster is left when it has not answered for a while, a secondary one also when the
primary has answered again for a while.
"""

from __future__ import annotations


class FailoverRules:
    """Clusters by number, the primary is 0."""

    __slots__ = ("_back_since_s", "_down_since_s", "_failover_delay_s", "_switch_back_delay_s", "current")

    def __init__(self, failover_delay_s: float, switch_back_delay_s: float) -> None:
        self._failover_delay_s = failover_delay_s
        self._switch_back_delay_s = switch_back_delay_s
        #: Used now.
        self.current = 0
        self._down_since_s: float | None = None
        self._back_since_s: float | None = None

    def looked(self, *, answers: bool, now_s: float) -> None:
        """The current one was asked."""
        if answers:
            self._down_since_s = None
        elif self._down_since_s is None:
            self._down_since_s = now_s

    def looked_at_primary(self, *, answers: bool, now_s: float) -> None:
        """The primary was asked while another is used."""
        if not answers:
            self._back_since_s = None
        elif self._back_since_s is None:
            self._back_since_s = now_s

    def goes_back(self, now_s: float) -> bool:
        """Whether the primary has answered for long enough, or answers while the current one is given up."""
        since_s = self._back_since_s
        if self.current == 0 or since_s is None:
            return False
        return now_s - since_s >= self._switch_back_delay_s or self.is_given_up(now_s)

    def is_given_up(self, now_s: float) -> bool:
        """Whether the current one has not answered for long enough."""
        return self._down_since_s is not None and now_s - self._down_since_s >= self._failover_delay_s

    def switched(self, number: int) -> None:
        """Another one is used from now on."""
        self.current = number
        self._down_since_s = self._back_since_s = None

    def next_look_s(self, now_s: float, interval_s: float) -> float:
        """Seconds until the next look: the interval, or less where a delay is over before."""
        ends = [interval_s]
        if self._down_since_s is not None and now_s - self._down_since_s < self._failover_delay_s:
            ends.append(self._down_since_s + self._failover_delay_s - now_s)
        if self._back_since_s is not None and now_s - self._back_since_s < self._switch_back_delay_s:
            ends.append(self._back_since_s + self._switch_back_delay_s - now_s)
        return min(ends)
