"""Which consumer of a Key_Shared subscription gets which key: three ways to divide the hashes.

A sticky hash is ``murmur3_32(key) % 65536``, and 1 instead of 0, because 0 stands for "no hash"; on the ring of
consistent hashing it is ``murmur3_32(key) % 65535 + 1`` (Pulsar's selectors have these two hash ranges). Selectors
answer ``select(hash)`` and list their ranges; they keep no order of messages, that is the dispatcher's part.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final, Protocol

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.model.errors import ConsumerAssignError

#: Hashes are below this (Pulsar's ``DEFAULT_RANGE_SIZE``).
HASH_RANGE_SIZE: Final = 1 << 16


def sticky_hash_of(key_hash: int) -> int:
    """The sticky hash, 1 to 65535, of a key whose Murmur3 hash is ``key_hash``."""
    return key_hash % HASH_RANGE_SIZE or 1


class StickyKeySelector(Protocol):
    """Divides the hashes among the consumers."""

    def add(self, consumer: ConsumerState) -> None:
        """A consumer joins; raises ConsumerAssignError if it can not be given a range."""
        ...

    def remove(self, consumer: ConsumerState) -> None:
        """A consumer leaves."""
        ...

    def sticky_hash(self, key_hash: int) -> int:
        """The sticky hash, 1 to 65535, of a key whose Murmur3 hash is ``key_hash``."""
        ...

    def select(self, sticky_hash: int) -> ConsumerState | None:
        """Who gets that hash; None if nobody does."""
        ...

    def ranges(self) -> list[tuple[int, int, ConsumerState]]:
        """(first, last, consumer), ascending; both ends included."""
        ...


class HashRangeAutoSplit:
    """AUTO_SPLIT by halving: a new consumer takes the lower half of the widest range, a leaving one gives its
    range to its upper neighbour (the last range: to its lower neighbour)."""

    __slots__ = ("_consumers", "_end_of", "_ends", "_widest")

    def __init__(self) -> None:
        #: Last hash of each range, ascending; the last one is the last hash of all.
        self._ends: list[int] = []
        self._consumers: list[ConsumerState] = []
        self._end_of: dict[ConsumerState, int] = {}
        #: Minus the width and the end of each range, as a heap, and of ranges that are no more: of the widest ones the
        #: first is found without a look at each, of thousands that one connection may bring and take along.
        self._widest: list[tuple[int, int]] = []

    def add(self, consumer: ConsumerState) -> None:
        """Give ``consumer`` half of the widest range. Raises ConsumerAssignError."""
        index = self._find_widest()
        if index is None:
            self._insert(0, HASH_RANGE_SIZE, consumer)
            return
        width = self._width(index)
        if width <= 1:
            raise ConsumerAssignError(f"no key range is left to divide among {len(self._ends)} consumers")
        self._insert(index, self._ends[index] - (width >> 1), consumer)
        self._note(index + 1)

    def remove(self, consumer: ConsumerState) -> None:
        """Give its range to a neighbour."""
        end = self._end_of.pop(consumer, None)
        if end is None:
            return
        index = bisect_left(self._ends, end)
        del self._consumers[index]
        if index == len(self._ends) - 1 and index > 0:
            # The last range must stay: its lower neighbour takes it over.
            index -= 1
            self._end_of[self._consumers[index]] = end
        del self._ends[index]
        if index < len(self._ends):
            self._note(index)
        if len(self._widest) > 4 * len(self._ends):
            self._widest = []
            for index in range(len(self._ends)):
                self._note(index)

    def _insert(self, index: int, end: int, consumer: ConsumerState) -> None:
        self._ends.insert(index, end)
        self._consumers.insert(index, consumer)
        self._end_of[consumer] = end
        self._note(index)

    def _note(self, index: int) -> None:
        heappush(self._widest, (-self._width(index), self._ends[index]))

    def _width(self, index: int) -> int:
        return self._ends[index] - (self._ends[index - 1] if index else 0)

    def _find_widest(self) -> int | None:
        """The index of the first of the widest ranges; None: there is none."""
        while self._widest:
            width, end = self._widest[0]
            index = bisect_left(self._ends, end)
            if index < len(self._ends) and self._ends[index] == end and self._width(index) == -width:
                return index
            heappop(self._widest)
        return None

    def sticky_hash(self, key_hash: int) -> int:
        """See :func:`sticky_hash_of`."""
        return sticky_hash_of(key_hash)

    def select(self, sticky_hash: int) -> ConsumerState | None:
        """Who gets that hash."""
        if not self._ends:
            return None
        return self._consumers[bisect_left(self._ends, sticky_hash)]

    def ranges(self) -> list[tuple[int, int, ConsumerState]]:
        """(first, last, consumer), ascending."""
        result, start = [], 0
        for end, consumer in zip(self._ends, self._consumers, strict=True):
            result.append((start, min(end, HASH_RANGE_SIZE - 1), consumer))
            start = end + 1
        return result


class ConsistentHashRing:
    """AUTO_SPLIT by consistent hashing: each consumer owns ``point_count`` points, a hash goes to the next point."""

    __slots__ = ("_at_point", "_free", "_hash_of", "_name_index", "_named", "_point_count", "_points")

    def __init__(self, point_count: int, hash_of: Callable[[bytes], int]) -> None:
        self._point_count = point_count
        self._hash_of = hash_of
        self._points: list[int] = []
        #: Consumers whose points collide wait in order of arrival; the first is served.
        self._at_point: dict[int, list[ConsumerState]] = {}
        #: Tells consumers of the same name apart, so that each has points of its own.
        self._name_index: dict[ConsumerState, int] = {}
        #: Name -> how many have it, and as a heap what those who left had of the indices below the largest.
        self._named: dict[str, int] = {}
        self._free: dict[str, list[int]] = {}

    def add(self, consumer: ConsumerState) -> None:
        """Put the consumer's points on the ring."""
        self._name_index[consumer] = self._take_index(consumer.name)
        for point in self._points_of(consumer):
            consumers = self._at_point.get(point)
            if consumers is None:
                self._at_point[point] = [consumer]
                insort(self._points, point)
            elif consumer not in consumers:
                consumers.append(consumer)

    def remove(self, consumer: ConsumerState) -> None:
        """Take the consumer's points off the ring."""
        if consumer not in self._name_index:
            return
        for point in self._points_of(consumer):
            consumers = self._at_point.get(point)
            if consumers is None or consumer not in consumers:
                continue
            consumers.remove(consumer)
            if not consumers:
                del self._at_point[point]
                del self._points[bisect_left(self._points, point)]
        self._give_index(consumer.name, self._name_index.pop(consumer))

    def sticky_hash(self, key_hash: int) -> int:
        """Of consumers' points as of keys."""
        return key_hash % (HASH_RANGE_SIZE - 1) + 1

    def select(self, sticky_hash: int) -> ConsumerState | None:
        """Who gets that hash."""
        points = self._points
        if not points:
            return None
        index = bisect_left(points, sticky_hash)
        return self._at_point[points[index if index < len(points) else 0]][0]

    def ranges(self) -> list[tuple[int, int, ConsumerState]]:
        """(first, last, consumer), ascending."""
        result, start = [], 0
        for point in self._points:
            result.append((start, point, self._at_point[point][0]))
            start = point + 1
        if result and start < HASH_RANGE_SIZE:
            result.append((start, HASH_RANGE_SIZE - 1, result[0][2]))
        return result

    def _take_index(self, name: str) -> int:
        """The smallest that nobody of that name has."""
        free, named = self._free.get(name), self._named.get(name, 0)
        self._named[name] = named + 1
        if free is None:
            return named
        index = heappop(free)
        if not free:
            del self._free[name]
        return index

    def _give_index(self, name: str, index: int) -> None:
        named = self._named[name] = self._named[name] - 1
        if not named:
            del self._named[name]
            self._free.pop(name, None)
        else:
            heappush(self._free.setdefault(name, []), index)

    def _points_of(self, consumer: ConsumerState) -> list[int]:
        prefix = f"{consumer.name}\0{self._name_index[consumer]}\0"
        return [self.sticky_hash(self._hash_of(f"{prefix}{i}".encode())) for i in range(self._point_count)]


class StickyRanges:
    """STICKY: each consumer names its ranges, which must not overlap; hashes nobody named wait."""

    __slots__ = ("_lasts", "_ranges", "_wanted")

    def __init__(self) -> None:
        #: (last, first, consumer), ascending; and the last hash of each.
        self._ranges: list[tuple[int, int, ConsumerState]] = []
        self._lasts: list[int] = []
        self._wanted: dict[ConsumerState, Sequence[tuple[int, int]]] = {}

    def want(self, consumer: ConsumerState, ranges: Sequence[tuple[int, int]]) -> None:
        """Note the ranges (both ends included) that ``consumer`` asks for, before it is added."""
        self._wanted[consumer] = ranges

    def add(self, consumer: ConsumerState) -> None:
        """Give the consumer its ranges; raises ConsumerAssignError if they are empty, wrong or taken."""
        wanted = self._wanted.pop(consumer, ())
        if not wanted:
            raise ConsumerAssignError("a consumer with sticky key ranges must name at least one range")
        previous = -1
        for first, last in sorted(wanted):
            if not 0 <= first <= last < HASH_RANGE_SIZE:
                raise ConsumerAssignError(
                    f"key range [{first}, {last}] is not within 0 to {HASH_RANGE_SIZE - 1} in ascending order"
                )
            if first <= previous:
                raise ConsumerAssignError(f"key range [{first}, {last}] overlaps another of the same consumer")
            previous = last
            # The first one that does not end before: tens of thousands are named by one consumer, and by others.
            index = bisect_left(self._lasts, first)
            if index < len(self._ranges) and self._ranges[index][1] <= last:
                other_last, other_first, other = self._ranges[index]
                raise ConsumerAssignError(
                    f"key range [{first}, {last}] overlaps [{other_first}, {other_last}] of consumer {other.name}"
                )
        self._ranges.extend((last, first, consumer) for first, last in wanted)
        self._ranges.sort(key=itemgetter(0))
        self._lasts = [last for last, _, _ in self._ranges]

    def remove(self, consumer: ConsumerState) -> None:
        """Its ranges are free again."""
        self._wanted.pop(consumer, None)
        self._ranges = [entry for entry in self._ranges if entry[2] is not consumer]
        self._lasts = [last for last, _, _ in self._ranges]

    def sticky_hash(self, key_hash: int) -> int:
        """See :func:`sticky_hash_of`."""
        return sticky_hash_of(key_hash)

    def select(self, sticky_hash: int) -> ConsumerState | None:
        """Who named that hash, if anybody did."""
        index = bisect_left(self._lasts, sticky_hash)
        if index < len(self._ranges) and self._ranges[index][1] <= sticky_hash:
            return self._ranges[index][2]
        return None

    def ranges(self) -> list[tuple[int, int, ConsumerState]]:
        """(first, last, consumer), ascending."""
        return [(first, last, consumer) for last, first, consumer in self._ranges]
