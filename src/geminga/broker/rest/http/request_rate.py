"""How many HTTP requests a second are answered at all (``httpRequestsLimitEnabled``); loaded where it is set.

As in Pulsar: one rate for everybody, a second's worth at once after a pause, and what is beyond it is refused (429).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from geminga.broker.core.rate_limit import NS_PER_S, TokenBucket

#: Never refused, for they cost nothing and who is not answered takes the process for dead. Pulsar refuses them, too.
EXEMPT: Final = frozenset({"/status.html", "/health"})


class RequestRate:
    """Of one process."""

    __slots__ = ("_bucket", "_monotonic", "refused_count")

    def __init__(self, per_s: float, monotonic: Callable[[], float]) -> None:
        """``per_s``: requests a second, above 0; fewer than one, too."""
        self._monotonic = monotonic
        rate = max(1, int(per_s))
        self._bucket = TokenBucket(rate, round(NS_PER_S * rate / per_s), self._now_ns())
        self.refused_count = 0

    def admits(self, path: str) -> bool:
        """Whether a request for ``path`` is answered now; it is counted."""
        if path in EXEMPT:
            return True
        now_ns = self._now_ns()
        if self._bucket.left(now_ns) <= 0:
            self.refused_count += 1
            return False
        self._bucket.take(1, now_ns)
        return True

    def metrics(self) -> Mapping[str, float]:
        """Samples for ``/metrics``, by Pulsar's name."""
        return {"pulsar_broker_http_rejected_requests_total": self.refused_count}

    def _now_ns(self) -> int:
        return int(self._monotonic() * NS_PER_S)
