"""A publish rate: connections that publish to a topic, or to the broker, faster are not read for a while.

What came is never refused and keeps its order: it is stored, and its connection waits until it is paid for. As in
Pulsar all that a connection brings waits with it, also what is for other topics. A connection on which somebody
publishes under a rate takes no more commands in one turn than there is room for, so that what one read brought does not
overdraw the rate by much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from geminga.broker.core.rate_limit import NS_PER_S, Rate, Throttle
from geminga.runtime import Contained, Part


class RatedPublishes(Protocol):
    """What is published on a connection."""

    def publish_is_rated(self) -> None:
        """A topic that is published to on it has another rate from now on."""
        ...

    def hold_for_rate(self, throttle: PublishThrottle, /) -> None:
        """Do not read until :meth:`free_of_rate`."""
        ...

    def free_of_rate(self, throttle: PublishThrottle, /) -> None:
        """This rate has room again."""
        ...


class PublishThrottle:
    """See the module. Hashes by identity."""

    __slots__ = ("_core", "_monotonic", "_part", "_timer", "bytes_in", "messages_in", "times")

    def __init__(self, rate: Rate, monotonic: Callable[[], float], part: Part) -> None:
        """``part``: whose failure it is if its timer breaks."""
        self._core: Throttle[RatedPublishes] = Throttle(rate, int(monotonic() * NS_PER_S))
        self._monotonic = monotonic
        self._part = part
        self._timer: asyncio.TimerHandle | None = None
        #: How often a connection was held.
        self.times = 0
        #: What it counted.
        self.messages_in = self.bytes_in = 0

    @property
    def rate(self) -> Rate:
        """What it allows."""
        return self._core.rate

    @property
    def waiting_count(self) -> int:
        """Connections that wait."""
        return self._core.waiting_count

    def entries_left(self) -> int:
        """How many entries there is room for, at least 1: whoever asks may go on."""
        return max(1, self._core.entries_left(self._now_ns()))

    def published(self, publishes: RatedPublishes, entries: int, messages: int, size_bytes: int) -> None:
        """Entries came with ``publishes``: its connection waits if that was all there is, or more."""
        now_ns = self._now_ns()
        self.messages_in += messages
        self.bytes_in += size_bytes
        self._core.take(entries, messages, size_bytes, now_ns)
        if not self._core.entries_left(now_ns):
            self._core.wait(publishes)
            self.times += 1
            publishes.hold_for_rate(self)
            self._arm(now_ns)

    def change(self, rate: Rate) -> None:
        """Go on at another rate, of the same kinds: what is there, or owed, stays."""
        now_ns = self._now_ns()
        self._core.rate = rate
        self._core.change(rate.messages, rate.size_bytes, now_ns)
        if self._timer is not None:
            # Who waits may go on sooner.
            self._timer.cancel()
            self._timer = None
            self._arm(now_ns)

    def forget(self, publishes: RatedPublishes, /) -> None:
        """Their connection is gone."""
        self._core.leave(publishes)

    def close(self) -> None:
        """The rate holds no more: everybody goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for publishes in self._core.everybody():
            publishes.free_of_rate(self)

    def _now_ns(self) -> int:
        return int(self._monotonic() * NS_PER_S)

    def _arm(self, now_ns: int) -> None:
        if self._timer is None and self._core.waiting_count:
            delay_s = (self._core.wait_ns(now_ns) + 1000) / NS_PER_S
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        with Contained(self._part, "a publish rate", is_last=True):
            now_ns = self._now_ns()
            for publishes in self._core.several(now_ns):
                publishes.free_of_rate(self)
            self._arm(now_ns)
