"""How often one consumer may subscribe in one period: Pulsar's ``SubscribeRateLimiter``.

A consumer is who it is by its address (without port), its name and its id on its connection, so that one that
reconnects in a loop is told apart from thousands that come once. Periods follow each other; with each all counts begin
anew. Time is passed in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from geminga.broker.core.rate_limit import PERIOD_MAX_S

#: Consumers counted in one period. Beyond it the first to come is forgotten, and may come again.
CONSUMERS_MAX: Final = 10_000


class SubscribeRate(NamedTuple):
    """``times``, at least 1, per period."""

    times: int
    period_s: int


class ConsumerIdentity(NamedTuple):
    """Who is counted."""

    host: str
    name: str
    consumer_id: int


def subscribe_rate_of(times: int, period_s: int) -> SubscribeRate | None:
    """A rate from what is stored, where less than 1 says "no limit"."""
    return SubscribeRate(times, min(max(1, period_s), PERIOD_MAX_S)) if times > 0 else None


class SubscribeCounts:
    """See the module."""

    __slots__ = ("_counts", "_since_s", "rate")

    def __init__(self, rate: SubscribeRate, now_s: float) -> None:
        self.rate = rate
        self._since_s = now_s
        self._counts: dict[ConsumerIdentity, int] = {}

    def admit(self, who: ConsumerIdentity, now_s: float) -> bool:
        """Whether ``who`` may subscribe now; counted if so."""
        if not 0 <= now_s - self._since_s < self.rate.period_s:
            self._since_s = now_s
            self._counts = {}
        count = self._counts.get(who, 0)
        if count >= self.rate.times:
            return False
        if not count and len(self._counts) >= CONSUMERS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[who] = count + 1
        return True

    @property
    def consumers_count(self) -> int:
        """How many were counted in this period."""
        return len(self._counts)
