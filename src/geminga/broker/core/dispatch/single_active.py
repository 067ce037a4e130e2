"""Exclusive and Failover: one active consumer gets everything, in log order.

Who is active (Pulsar's ``AbstractDispatcherSingleActiveConsumer``): consumers are sorted by priority level, then by
name; among those of the best level, the partition's index picks one, so that the partitions of a topic spread over
the consumers; without partitions (or with ``activeConsumerFailoverConsistentHashing``) a hash ring of their names
does, by the hash of the topic's name.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.model import invariant
from geminga.model.errors import ConsumerBusyError

#: Points of each consumer on the ring (Pulsar's CONSUMER_CONSISTENT_HASH_REPLICAS).
RING_POINTS: Final = 100

#: More than any hash: points before the topic's hash come after all others.
_ROUND: Final = 1 << 64

C = TypeVar("C", bound=ConsumerState)


class _Place(NamedTuple, Generic[C]):
    """A consumer's nearest point on the ring."""

    distance: int
    name: str
    #: Tells those of one name apart.
    arrival: int
    consumer: C

    def order(self) -> tuple[int, str, int]:
        """By what they are sorted."""
        return self[:3]

    def at(self) -> int:
        """The point."""
        return self.distance


def _rank(consumer: ConsumerState) -> tuple[int, str]:
    return consumer.priority_level, consumer.name


def _level(consumer: ConsumerState) -> int:
    return consumer.priority_level


class SingleActiveDispatcher(Generic[C]):
    """Chooses the active consumer and how much to read for it."""

    __slots__ = (
        "_arrivals",
        "_hash_of",
        "_is_exclusive",
        "_nearest",
        "_partition_index",
        "_places",
        "_topic_hash",
        "active",
        "consumers",
    )

    def __init__(
        self, *, is_exclusive: bool, partition_index: int, topic: str, hash_of: Callable[[bytes], int]
    ) -> None:
        """``partition_index`` is -1 to choose by the ring of names."""
        self._is_exclusive = is_exclusive
        self._partition_index = partition_index
        self._hash_of = hash_of
        self._topic_hash = hash_of(topic.encode())
        #: Of each level, the consumers by how far behind the topic's hash the nearest of their points is: who comes
        #: and who goes costs no look at all others, of whom one connection may take thousands along.
        self._nearest: dict[int, list[_Place[C]]] = {}
        self._places: dict[C, _Place[C]] = {}
        self._arrivals = 0
        #: The consumer that is sent messages; None only while there are no consumers.
        self.active: C | None = None
        #: All consumers, in the order in which they are candidates.
        self.consumers: list[C] = []

    def add(self, consumer: C) -> bool:
        """A consumer joins; True if that changed who is active. ConsumerBusyError for a second Exclusive one."""
        if self._is_exclusive and self.consumers:
            raise ConsumerBusyError("Exclusive consumer is already connected")
        insort(self.consumers, consumer, key=_rank)
        if self._is_by_ring:
            self._arrivals += 1
            place = _Place(self._distance(consumer.name), consumer.name, self._arrivals, consumer)
            self._places[consumer] = place
            insort(self._nearest.setdefault(consumer.priority_level, []), place, key=_Place.order)
        return self._choose()

    def remove(self, consumer: C) -> bool:
        """A consumer leaves; True if that changed who is active."""
        index = bisect_left(self.consumers, _rank(consumer), key=_rank)
        while index < len(self.consumers) and self.consumers[index] is not consumer:
            index += 1
        if index < len(self.consumers):
            del self.consumers[index]
            self._leave_ring(consumer)
        return self._choose()

    def entries_wanted(self, entries_max: int, batches_least: int = 0) -> int:
        """How many entries to read for the active consumer now; 0: none. As of :class:`ConsumerState`."""
        active = self.active
        if active is None or not active.can_receive():
            return 0
        return active.entries_wanted(entries_max, batches_least)

    def _choose(self) -> bool:
        before = self.active
        self.active = self._pick() if self.consumers else None
        invariant(self.active is not None or not self.consumers, "consumers without an active one")
        return self.active is not before

    @property
    def _is_by_ring(self) -> bool:
        return self._partition_index < 0 and not self._is_exclusive

    def _distance(self, name: str) -> int:
        """From the topic's hash on to the nearest of a name's points, round the ring."""
        points = (self._hash_of(f"{name}{index}".encode()) for index in range(RING_POINTS))
        return min(point if point >= self._topic_hash else point + _ROUND for point in points)

    def _leave_ring(self, consumer: C) -> None:
        place = self._places.pop(consumer, None)
        if place is not None:
            places = self._nearest[consumer.priority_level]
            del places[bisect_left(places, place.order(), key=_Place.order)]
            if not places:
                del self._nearest[consumer.priority_level]

    def _pick(self) -> C:
        best = self.consumers[0].priority_level
        if not self._is_by_ring:
            count = bisect_right(self.consumers, best, key=_level)
            return self.consumers[max(self._partition_index, 0) % count]
        places = self._nearest[best]
        # As in Pulsar, a point that two names share belongs to the later name.
        return places[bisect_right(places, places[0].distance, key=_Place.at) - 1].consumer
