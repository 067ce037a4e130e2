"""How fast a topic is copied to one other cluster: ``replicatorDispatchRate``, and what its resource group may copy.

Each replicator has the rate (of topic, namespace or broker) for itself, the group's is shared by all replicators of its
topics; an entry counts as one, as in Pulsar. What is read and passed over counts for nothing. A changed rate holds
within :data:`LOOK_MS_MAX` for who waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.core.rate_limit import Rate
from geminga.broker.policies.core.rate_rows import REPLICATOR_DISPATCH_RATE
from geminga.broker.subscription.throttling import DispatchThrottle

if TYPE_CHECKING:
    from geminga.broker.topic.parts import PartTopic

#: Who waits looks again after this time at least: whether the rate is another, or its link failed.
LOOK_MS_MAX: Final = 1000


class CopyRate:
    """The rate of one replicator, whatever it is now."""

    __slots__ = ("_rate", "_throttle", "_topic")

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self._rate: Rate | None = None
        self._throttle: DispatchThrottle | None = None

    def room(self, entries: int, size_bytes: int) -> tuple[int, int]:
        """Entries and bytes that may be read now, at most those; (0, 0): none, see :meth:`wait_ms`."""
        throttle, group = self._now(), self._topic.throttles.copying
        for one in (throttle, group):
            if one is not None:
                allowed, messages, bytes_left = one.left(one.now_ns())
                # An entry counts as one message; one that is larger than what is left passes, and is owed.
                entries, size_bytes = min(entries, messages, allowed), min(size_bytes, bytes_left)
                if not allowed:
                    one.times += one is group
                    return 0, 0
        return entries, size_bytes

    def wait_ms(self) -> float:
        """When there may be room again."""
        throttles = (self._now(), self._topic.throttles.copying)
        waits = [1 + one.wait_ns(one.now_ns()) / 1_000_000 for one in throttles if one is not None]
        return min(LOOK_MS_MAX, max(waits, default=0))

    def sent(self, size_bytes: int) -> None:
        """An entry of so many bytes was sent."""
        for one in (self._throttle, self._topic.throttles.copying):
            if one is not None:
                one.take(1, 1, size_bytes, one.now_ns())

    def _now(self) -> DispatchThrottle | None:
        rate = self._topic.rules[REPLICATOR_DISPATCH_RATE]
        if rate != self._rate:
            self._rate = rate
            clock = self._topic.services.runtime.clock
            published = self._topic.publishing.totals
            self._throttle = (
                None if rate is None else DispatchThrottle("Replicator", rate, clock.monotonic, self._topic, published)
            )
        return self._throttle
