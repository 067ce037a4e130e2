"""Redelivery: how often a message was sent before, and which entries wait to be sent again.

:class:`RedeliveryTracker` is Pulsar's ``InMemoryRedeliveryTracker``: the count goes along with each
redelivered message and is lost with the broker. Most entries that come again do so once, when their consumer left
with its queue full; they cost about two bytes each. :class:`ReplayQueue` holds the positions to read again, in log
order, for Key_Shared in log order *per key hash*, so that a key whose consumer can not take it now does not
cost a look at each of its entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from pyroaring import BitMap

from geminga.model import Position, invariant

#: Most entries whose redelivery count is remembered per subscription; further ones count as first deliveries.
REDELIVERY_COUNTS_MAX: Final = 1_000_000
#: Entry ids that a bitmap takes; no ledger has more.
_ENTRY_IDS: Final = range(1 << 32)
#: A heap is rebuilt when it holds this many more dead positions than live ones.
_HEAP_SLACK: Final = 64


class RedeliveryTracker:
    """Position -> how often it was sent and given back; absent means never."""

    __slots__ = ("_more", "_once", "_size")

    def __init__(self) -> None:
        #: Ledger id -> entry ids given back once. A bitmap here is never empty.
        self._once: dict[int, BitMap] = {}
        #: Entries given back more often -> how often.
        self._more: dict[Position, int] = {}
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def __len__(self) -> int:
        return self._size

    def count(self, position: Position) -> int:
        """What goes along with the message as ``redelivery_count``: how often it was sent before."""
        found = self._more.get(position)
        if found is not None:
            return found
        once = self._once.get(position.ledger_id)
        return 1 if once is not None and position.entry_id in once else 0

    def increment(self, position: Position) -> None:
        """The entry was given back: by the client's wish, or because its consumer is gone."""
        found = self.count(position)
        if found:
            if found == 1:
                self._discard_once(position)
            self._more[position] = found + 1
        elif self._size < REDELIVERY_COUNTS_MAX:
            once = self._once.get(position.ledger_id)
            if once is None:
                once = self._once[position.ledger_id] = BitMap()
            once.add(position.entry_id)
            self._size += 1

    def forget(self, position: Position) -> None:
        """The entry was acknowledged; any position may be named."""
        # A bitmap takes no other entry ids, and clients acknowledge what they like.
        if self._size and position.entry_id in _ENTRY_IDS:
            if self._more.pop(position, None) is not None:
                self._size -= 1
            elif position.entry_id in self._once.get(position.ledger_id, ()):
                self._discard_once(position)
                self._size -= 1

    def forget_up_to(self, position: Position) -> None:
        """Everything up to and including ``position`` was acknowledged."""
        for p in [p for p in self._more if p <= position]:
            del self._more[p]
        ledger_id, entry_id = position
        for behind in [found for found in self._once if found < ledger_id]:
            del self._once[behind]
        once = self._once.get(ledger_id)
        if once is not None and entry_id >= 0:
            once.remove_range(0, min(entry_id + 1, len(_ENTRY_IDS)))
            if not once:
                del self._once[ledger_id]
        self._size = len(self._more) + sum(map(len, self._once.values()))

    def clear(self) -> None:
        """Start anew (seek)."""
        self._once = {}
        self._more = {}
        self._size = 0

    def _discard_once(self, position: Position) -> None:
        once = self._once[position.ledger_id]
        once.discard(position.entry_id)
        if not once:
            del self._once[position.ledger_id]


class RedeliveryCounts:
    """The counts of a subscription, which outlive its consumers; a subscription without any pays for this alone."""

    __slots__ = ("_tracker",)

    def __init__(self) -> None:
        self._tracker: RedeliveryTracker | None = None

    def tracker(self) -> RedeliveryTracker:
        """The counts, to be written to."""
        if self._tracker is None:
            self._tracker = RedeliveryTracker()
        return self._tracker

    def forget(self, positions: Iterable[Position]) -> None:
        """These are acknowledged: how often they were sent matters no more."""
        if self._tracker is not None:
            for position in positions:
                self._tracker.forget(position)

    def forget_up_to(self, position: Position) -> None:
        """All up to there is acknowledged, and nobody writes to the counts now."""
        if self._tracker is not None:
            self._tracker.forget_up_to(position)
            self.tidy()

    def tidy(self) -> None:
        """Nobody writes to the counts now: an empty set of them is not kept."""
        if not self._tracker:
            self._tracker = None

    def drop(self) -> None:
        """Begin anew."""
        self._tracker = None


class ReplayQueue:
    """Positions to read and send again, each under a key hash (0 when there is none, or none is known yet).

    ``take`` lends positions out for one read; they stay members until ``discard`` (sent or acknowledged), and
    ``give_back`` returns those that were lent and could not be sent.
    """

    __slots__ = ("_hash_of", "_heaps", "_lent", "_live")

    def __init__(self) -> None:
        self._hash_of: dict[Position, int] = {}
        #: Hash -> heap of positions; may hold dead ones (discarded, lent, or moved to another hash).
        self._heaps: dict[int, list[Position]] = {}
        #: Hash -> number of members with it.
        self._live: dict[int, int] = {}
        self._lent: set[Position] = set()

    def __len__(self) -> int:
        return len(self._hash_of)

    def __contains__(self, position: Position) -> bool:
        return position in self._hash_of

    def add(self, position: Position, sticky_hash: int = 0) -> None:
        """Queue a position; queueing one again only changes its hash."""
        before = self._hash_of.get(position)
        if before is not None:
            if before == sticky_hash:
                return
            self.discard(position)
        self._hash_of[position] = sticky_hash
        self._live[sticky_hash] = self._live.get(sticky_hash, 0) + 1
        self._push(position, sticky_hash)

    def discard(self, position: Position) -> None:
        """Forget a position: it was sent or acknowledged."""
        sticky_hash = self._hash_of.pop(position, None)
        if sticky_hash is None:
            return
        self._lent.discard(position)
        left = self._live[sticky_hash] - 1
        if left:
            self._live[sticky_hash] = left
        else:
            del self._live[sticky_hash]
            self._heaps.pop(sticky_hash, None)

    def take(self, sticky_hash: int, count_max: int) -> list[Position]:
        """Lend out the first positions with that hash, in log order."""
        heap = self._heaps.get(sticky_hash)
        taken: list[Position] = []
        while heap and len(taken) < count_max:
            position = heappop(heap)
            if self._is_waiting(position, sticky_hash):
                self._lent.add(position)
                taken.append(position)
        return taken

    def give_back(self, position: Position) -> None:
        """A lent position could not be sent: it waits again, at its place in the log."""
        sticky_hash = self._hash_of.get(position)
        if sticky_hash is not None and position in self._lent:
            self._lent.discard(position)
            self._push(position, sticky_hash)

    def first_waiting(self, sticky_hash: int) -> Position | None:
        """The first position with that hash which is not lent out."""
        heap = self._heaps.get(sticky_hash)
        while heap:
            if self._is_waiting(heap[0], sticky_hash):
                return heap[0]
            heappop(heap)
        return None

    def has_hash(self, sticky_hash: int) -> bool:
        """Whether any member has that hash, lent or not."""
        return sticky_hash in self._live

    def count(self, sticky_hash: int) -> int:
        """How many members have that hash, lent or not."""
        return self._live.get(sticky_hash, 0)

    def hashes(self) -> list[int]:
        """The hashes of all members."""
        return list(self._live)

    def positions(self) -> list[Position]:
        """All members, lent or not, in log order."""
        return sorted(self._hash_of)

    def discard_up_to(self, position: Position) -> None:
        """Forget everything up to and including ``position``."""
        for p in [p for p in self._hash_of if p <= position]:
            self.discard(p)

    def clear(self) -> None:
        """Forget everything."""
        self._hash_of = {}
        self._heaps = {}
        self._live = {}
        self._lent = set()

    def _is_waiting(self, position: Position, sticky_hash: int) -> bool:
        return self._hash_of.get(position) == sticky_hash and position not in self._lent

    def _push(self, position: Position, sticky_hash: int) -> None:
        heap = self._heaps.get(sticky_hash)
        if heap is None:
            self._heaps[sticky_hash] = [position]
            return
        heappush(heap, position)
        if len(heap) > 2 * self._live[sticky_hash] + _HEAP_SLACK:
            alive = {p for p in heap if self._is_waiting(p, sticky_hash)}
            heap[:] = sorted(alive)
            heapify(heap)

    def check_invariants(self) -> None:
        """Every member is lent out or found through its heap; counts per hash add up."""
        invariant(sum(self._live.values()) == len(self._hash_of), "replay: counts per hash do not add up")
        for position, sticky_hash in self._hash_of.items():
            in_heap = position in self._heaps.get(sticky_hash, ())
            invariant(in_heap or position in self._lent, f"replay: {position} can not be found again")
