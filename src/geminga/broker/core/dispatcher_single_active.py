"""Exclusive and Failover: one active consumer gets everything, in log order.

Who is active (Pulsar's ``AbstractDispatcherSingleActiveConsumer``): consumers are sorted by priority level, then by
name; among those of the best level, the partition's index picks one, so that the partitions of a topic spread over
the consumers; without partitions (or with ``activeConsumerFailoverConsistentHashing``) a hash ring of their names
does, by the hash of the topic's name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from geminga.broker.core.consumer_state import ConsumerState
from geminga.model import invariant
from geminga.model.errors import ConsumerBusyError

#: Points of each consumer on the ring (Pulsar's CONSUMER_CONSISTENT_HASH_REPLICAS).
RING_POINTS: Final = 100

C = TypeVar("C", bound=ConsumerState)


class SingleActiveDispatcher(Generic[C]):
    """Chooses the active consumer and how much to read for it."""

    __slots__ = ("_hash_of", "_is_exclusive", "_partition_index", "_topic_hash", "active", "consumers")

    def __init__(
        self, *, is_exclusive: bool, partition_index: int, topic: str, hash_of: Callable[[bytes], int]
    ) -> None:
        """``partition_index`` is -1 to choose by the ring of names."""
        self._is_exclusive = is_exclusive
        self._partition_index = partition_index
        self._hash_of = hash_of
        self._topic_hash = hash_of(topic.encode())
        #: The consumer that is sent messages; None only while there are no consumers.
        self.active: C | None = None
        #: All consumers, in the order in which they are candidates.
        self.consumers: list[C] = []

    def add(self, consumer: C) -> bool:
        """A consumer joins; True if that changed who is active. ConsumerBusyError for a second Exclusive one."""
        if self._is_exclusive and self.consumers:
            raise ConsumerBusyError("Exclusive consumer is already connected")
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: (c.priority_level, c.name))
        return self._choose()

    def remove(self, consumer: C) -> bool:
        """A consumer leaves; True if that changed who is active."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        return self._choose()

    def entries_wanted(self, entries_max: int) -> int:
        """How many entries to read for the active consumer now; 0: none."""
        active = self.active
        if active is None or not active.can_receive():
            return 0
        return active.entries_wanted(entries_max)

    def _choose(self) -> bool:
        before = self.active
        self.active = self._pick() if self.consumers else None
        invariant(self.active is not None or not self.consumers, "consumers without an active one")
        return self.active is not before

    def _pick(self) -> C:
        best = self.consumers[0].priority_level
        candidates = [c for c in self.consumers if c.priority_level == best]
        if len(candidates) == 1:
            return candidates[0]
        if self._partition_index >= 0:
            return candidates[self._partition_index % len(candidates)]
        # As in Pulsar, a point that two names share belongs to the later name.
        ring = {self._hash_of(f"{c.name}{i}".encode()): c for c in candidates for i in range(RING_POINTS)}
        points = sorted(ring)
        index = bisect_left(points, self._topic_hash)
        return ring[points[index if index < len(points) else 0]]
