"""What was prefetched and not received, and the permits that follow from it.

A consumer tells the broker how many messages it takes (permits). Messages wait in the :class:`PrefetchQueue` until the
application receives them; every received message is a permit to give back, and permits go back to the broker once half
of the queue was received (:class:`FlowControl`), so that there is one FLOW for many messages.

Permits are counted in messages, entries are never cut: the queue may hold more than asked for by part of one batch.

All consumers of a client share a :class:`PrefetchBudget` of bytes, each topic the same part of it. What was asked for
can not be taken back: so a topic begins with as many messages as there is room for whatever their size, and goes by the
size of those that came last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from geminga.model.errors import invariant


class PrefetchedEntry(Protocol):
    """What the queue needs of an entry."""

    order: Sequence[int]
    size_bytes: int


E = TypeVar("E", bound=PrefetchedEntry)


#: Of one message, as far as brokers are not set to take larger ones.
MESSAGE_BYTES_MAX: Final = 5 << 20
#: What is left of the size that messages had, each time that permits were given back since.
_SIZE_KEPT: Final = 7 / 8


class PrefetchBudget:
    """Bytes that may wait in all consumers of a client together, and the topics that they are consumers of."""

    __slots__ = ("limit_bytes", "topics")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: Each has the same part, also while nothing comes from it: what is there now others may not have tomorrow.
        self.topics = 0

    @property
    def share_bytes(self) -> int:
        """Of one topic."""
        return self.limit_bytes // max(1, self.topics)


def permits_of(messages: int, ack_set: Sequence[int] = ()) -> int:
    """What an entry of so many messages (0: it is no batch) took: brokers count those that are not acknowledged, which
    ``ack_set`` names, none: all of them."""
    if not ack_set:
        return max(1, messages)
    return max(1, min(sum((word & 0xFFFFFFFFFFFFFFFF).bit_count() for word in ack_set), messages))


class FlowControl:
    """Permits of one consumer of one topic. ``capacity`` 0: no prefetching, a permit only for who waits."""

    __slots__ = (
        "_budget",
        "_message_bytes",
        "bytes_max",
        "capacity",
        "is_measured",
        "is_paused",
        "most",
        "owed",
        "threshold",
    )

    def __init__(self, capacity: int, bytes_max: int = 0, budget: PrefetchBudget | None = None) -> None:
        """``bytes_max``: so many bytes of messages wait, by the size of those that came last, though always one
        message; 0: ``capacity`` alone says it. ``budget``: the same of its part, by the size of some of them."""
        invariant(capacity >= 0, f"a prefetch queue of {capacity} messages")
        self.most = capacity
        self.bytes_max = bytes_max
        self._budget = budget
        #: Of a message, by the budget; large at once, and smaller by and by.
        self._message_bytes = 0.0
        #: Whether of what comes next is to be told how large it is (``fit``).
        self.is_measured = bool(bytes_max or budget is not None) and capacity > 0
        # Of what size messages are is known with the first.
        self.capacity = min(capacity, 1) if bytes_max else capacity
        #: Messages received since permits were last given back.
        self.owed = 0
        #: As many give permits back.
        self.threshold = max(1, self.capacity // 2)
        #: While paused, permits are counted and not given back.
        self.is_paused = False

    @property
    def is_new(self) -> bool:
        """Nothing came yet that would say how many are prefetched."""
        return self._budget is not None and not self._message_bytes

    def received(self, count: int = 1) -> int:
        """``count`` messages were received, or dropped; permits to give back now, 0 for none."""
        self.owed += count
        return self.take() if self.owed >= self.threshold else 0

    def fit(self, messages: int, size_bytes: int) -> None:
        """Messages came that have so many bytes together: as many as fit wait from now on. What is more than that and
        under way already is made up for by permits that are not given back."""
        capacity = self.most
        if self.bytes_max:
            capacity = min(capacity, self.bytes_max * messages // max(1, size_bytes))
        if self._budget is not None:
            self._message_bytes = max(1.0, size_bytes / messages, self._message_bytes * _SIZE_KEPT)
            capacity = min(capacity, int(self._budget.share_bytes / self._message_bytes))
        capacity = max(1, capacity)
        self.is_measured = self.bytes_max > 0
        self.owed += capacity - self.capacity
        self.capacity = capacity
        self.threshold = max(1, capacity // 2)

    def take(self) -> int:
        """Everything owed, unless paused."""
        if self.is_paused or self.owed <= 0:
            return 0
        owed, self.owed = self.owed, 0
        self.is_measured = self.bytes_max > 0 or self._budget is not None
        return owed

    def restart(self, queued: int = 0) -> int:
        """A new subscription on a connection, with ``queued`` messages still here: permits to begin with."""
        self.owed = 0
        if self.is_new and self._budget is not None and not self.bytes_max:
            self.capacity = min(self.most, max(1, self._budget.share_bytes // MESSAGE_BYTES_MAX))
            self.threshold = max(1, self.capacity // 2)
        self.is_measured = self.capacity > 0 and (self.bytes_max > 0 or self._budget is not None)
        if self.is_paused:
            self.owed = max(0, self.capacity - queued)
            return 0
        return max(0, self.capacity - queued)


class PrefetchQueue(Generic[E]):
    """Entries in order of arrival, and how far the first one was received.

    ``entry`` is the one being received, ``at`` the place in its ``order`` of the next message, ``end`` its end, and
    ``stop`` the place up to which messages are received without asking anybody; the hot path reads and moves them
    itself.
    """

    __slots__ = ("_entries", "at", "end", "entry", "message_count", "size_bytes", "stop")

    def __init__(self) -> None:
        self._entries: deque[E] = deque()
        self.entry: E | None = None
        self.at = 0
        self.end = 0
        self.stop = 0
        #: Messages and bytes of the entries behind ``entry``.
        self.message_count = 0
        self.size_bytes = 0

    @property
    def total_count(self) -> int:
        """Messages that wait, also those of the entry being received."""
        return self.message_count + self.end - self.at

    @property
    def total_bytes(self) -> int:
        """Bytes that wait; an entry counts whole until its last message is received."""
        current = self.entry.size_bytes if self.entry is not None and self.at < self.end else 0
        return self.size_bytes + current

    def extend(self, entries: Sequence[E]) -> int:
        """They arrived; how many messages that are."""
        self._entries.extend(entries)
        count = size_bytes = 0
        for entry in entries:
            count += len(entry.order)
            size_bytes += entry.size_bytes
        self.message_count += count
        self.size_bytes += size_bytes
        return count

    def append(self, entry: E) -> None:
        """It arrived."""
        self._entries.append(entry)
        self.message_count += len(entry.order)
        self.size_bytes += entry.size_bytes

    def peek(self) -> E | None:
        """The entry the next message comes from; None if none waits."""
        if self.at < self.end:
            return self.entry
        return self._entries[0] if self._entries else None

    def advance(self) -> bool:
        """Turn to the next entry with messages; False if there is none."""
        while self._entries:
            entry = self._entries.popleft()
            count = len(entry.order)
            self.message_count -= count
            self.size_bytes -= entry.size_bytes
            self.entry = entry
            self.at = self.stop = 0
            self.end = count
            if count:
                return True
        self.entry = None
        self.at = self.end = self.stop = 0
        return False

    def run_on(self, count_max: int) -> int:
        """Up to ``count_max`` more messages of the entry may be received without asking; how many these are."""
        self.stop = min(self.end, self.at + count_max)
        return self.stop - self.at

    def drop(self, is_dropped: Callable[[E], bool]) -> list[tuple[E, int]]:
        """Remove entries, also what is left of the one being received: each with its messages not received."""
        dropped: list[tuple[E, int]] = []
        if self.entry is not None and self.at < self.end and is_dropped(self.entry):
            dropped.append((self.entry, self.end - self.at))
            self.at = self.stop = self.end
        kept: deque[E] = deque()
        for entry in self._entries:
            if is_dropped(entry):
                count = len(entry.order)
                dropped.append((entry, count))
                self.message_count -= count
                self.size_bytes -= entry.size_bytes
            else:
                kept.append(entry)
        self._entries = kept
        return dropped

    def close(self) -> None:
        """Nothing is received any more, and no entry kept."""
        self.drop(lambda _: True)
        self.entry = None
        self.at = self.end = self.stop = 0

    def check_invariants(self) -> None:
        """Raises InvariantError for a state that can not be."""
        invariant(0 <= self.at <= self.end, f"at {self.at} of {self.end}")
        invariant(0 <= self.stop <= self.end, f"no stop before {self.stop} of {self.end}")
        counted = sum(len(entry.order) for entry in self._entries)
        invariant(counted == self.message_count, f"{counted} messages wait, {self.message_count} counted")
