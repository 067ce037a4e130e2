"""``Reporting``: the statistics of one consumer, and their line in the log after each interval."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from geminga.client._consuming.subscription import Subscription
from geminga.client.rules.stats import ConsumerStats, StatsRecorder, summary
from geminga.runtime import Clock, get_logger

_log = get_logger(__name__)

_MS: Final = 1000


class Prefetched(Protocol):
    """Where messages wait to be received."""

    @property
    def count(self) -> int:
        """How many do."""
        ...


class Unsent(Protocol):
    """Where acknowledgments wait to be sent."""

    @property
    def pending_acks(self) -> int:
        """How many do."""
        ...


class Reporting:
    """See the module. Runs on the client's loop, from the start."""

    __slots__ = (
        "_clock",
        "_counters",
        "_interval_s",
        "_loop",
        "_name",
        "_prefetched",
        "_recorder",
        "_timer",
        "_unsent",
    )

    def __init__(
        self, clock: Clock, subscription: Subscription, topic: str, prefetched: Prefetched, unsent: Unsent
    ) -> None:
        """``topic``: what was subscribed to, as text."""
        interval_ms = subscription.options.stats_interval_ms
        self._clock = clock
        self._counters = subscription.counters
        self._name = f"{topic}, subscription {subscription.name}"
        self._prefetched = prefetched
        self._unsent = unsent
        self._loop = asyncio.get_running_loop()
        self._interval_s = interval_ms / _MS
        self._recorder = StatsRecorder(interval_ms, self._now_ms())
        self._timer: asyncio.TimerHandle | None = None
        if interval_ms:
            self._timer = self._loop.call_later(self._interval_s, self._on_interval)

    def stats(self) -> ConsumerStats:
        """Counters since the start, and rates of the last interval."""
        return self._recorder.stats(
            self._counters, prefetched_messages=self._prefetched.count, pending_acks=self._unsent.pending_acks
        )

    def close(self) -> None:
        """No more lines."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_interval(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._on_interval)
        if self._recorder.tick(self._counters, self._now_ms()) and (self._recorder.has_news or self._prefetched.count):
            _log.info("%s: %s", self._name, summary(self.stats()))

    def _now_ms(self) -> float:
        return self._clock.monotonic() * _MS
