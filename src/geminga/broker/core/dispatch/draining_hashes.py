"""Who holds unacknowledged entries of each key hash (the state behind PIP-379's draining hashes).

The rule that keeps the order per key: all unacknowledged entries of a hash are held by **one** consumer. When the
hash moves to another consumer, because one joined or left, it *drains*: nothing of it is sent until its present
holder acknowledged or gave back what it has. Pulsar finds the hashes concerned by comparing the ranges before and
after the change; here the holder of every pending hash is known at any time, so that the rule can be checked
exactly and nothing has to be found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.model.errors import InvariantError


class DrainingHash(NamedTuple):
    """A hash that belongs to another consumer than the one that holds entries of it."""

    sticky_hash: int
    #: Messages that the holder has not acknowledged.
    messages: int
    #: How often an entry of it could not be sent to its new consumer for that.
    blocked_attempts: int


class HashHolders:
    """Sticky hash -> the consumer that holds unacknowledged entries of it, and how many."""

    __slots__ = ("_count", "_holder")

    def __init__(self) -> None:
        self._holder: dict[int, ConsumerState] = {}
        self._count: dict[int, int] = {}

    def holder(self, sticky_hash: int) -> ConsumerState | None:
        """The consumer that has unacknowledged entries of that hash."""
        return self._holder.get(sticky_hash)

    def hold(self, sticky_hash: int, consumer: ConsumerState) -> None:
        """An entry of that hash was sent to ``consumer``."""
        holder = self._holder.get(sticky_hash)
        if holder is None:
            self._holder[sticky_hash] = consumer
            self._count[sticky_hash] = 1
            return
        if holder is not consumer:
            raise InvariantError(f"hash {sticky_hash} sent to {consumer.name} while {holder.name} holds it")
        self._count[sticky_hash] += 1

    def release(self, sticky_hash: int) -> bool:
        """One entry of that hash was acknowledged or given back; True if nobody holds the hash now."""
        count = self._count.get(sticky_hash, 0)
        if count < 1:
            raise InvariantError(f"hash {sticky_hash} released but not held")
        if count == 1:
            del self._holder[sticky_hash]
            del self._count[sticky_hash]
            return True
        self._count[sticky_hash] = count - 1
        return False

    def items(self) -> Iterable[tuple[int, ConsumerState]]:
        """Each hash that is held, and by whom."""
        return self._holder.items()

    def clear(self) -> None:
        """Nobody holds anything: the last consumer left."""
        self._holder = {}
        self._count = {}

    def __len__(self) -> int:
        return len(self._holder)
