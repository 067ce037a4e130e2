"""Entries on their way to the ack quorum: pending adds, counted by batch, completed in entry order only. Pure.

With E == Qw a batch is one unit as long as bookies answer for all of it at once; otherwise, and from the first answer
for a part of it on, each entry is counted by itself. Completion waits for the head of the queue, and for an ensemble
change under way.

Which bookies failed a batch is counted too: while every entry of it can still reach its ack quorum among the others,
a failure costs nobody anything; once one can not, the batch is lost and with it all behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from geminga.bookkeeper.core.distribution import Distribution
from geminga.model.errors import StorageError, invariant

#: ``done(first_entry_id, count, error)``, once for each append, in entry order.
AppendDone = Callable[[int, int, StorageError | None], None]


class PendingAdd:
    """One appended batch: consecutive entries, whole, and which bookies have acknowledged them."""

    __slots__ = (
        "acks",
        "count",
        "done",
        "entries",
        "failed",
        "first_entry_id",
        "length_bytes",
        "next",
        "unacknowledged",
        "unit_acks",
    )

    def __init__(self, first_entry_id: int, entries: Sequence[bytes], length_bytes: int, done: AppendDone) -> None:
        self.first_entry_id = first_entry_id
        self.count = len(entries)
        #: With header and digest; kept for an ensemble change.
        self.entries = entries
        #: Payload bytes of the ledger up to and with this batch.
        self.length_bytes = length_bytes
        self.done = done
        #: Bit mask of the bookie indexes that acknowledged a batch that is one unit.
        self.acks = 0
        #: Bit mask of the bookie indexes that failed it, or a part of it.
        self.failed = 0
        #: Acknowledgments by entry where each is a unit, else None.
        self.unit_acks: list[int] | None = None
        #: Units that have not reached their ack quorum.
        self.unacknowledged = 1
        #: The batch behind it in the queue.
        self.next: PendingAdd | None = None


class AddQueue:
    """The pending adds of one ledger, oldest first.

    A linked list, because an idle ledger's queue (there may be one for each of many topics) must cost next to nothing.
    """

    __slots__ = ("_ack_quorum", "_head", "_is_uniform", "_tail", "distribution", "is_changing_ensemble")

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution
        self._ack_quorum = distribution.ack_quorum
        self._is_uniform = distribution.is_uniform
        self._head: PendingAdd | None = None
        self._tail: PendingAdd | None = None
        #: True: nothing completes, because the fragment that will hold the head is being decided.
        self.is_changing_ensemble = False

    def __bool__(self) -> bool:
        return self._head is not None

    def __iter__(self) -> Iterator[PendingAdd]:
        pending = self._head
        while pending is not None:
            yield pending
            pending = pending.next

    def push(self, first_entry_id: int, entries: Sequence[bytes], length_bytes: int, done: AppendDone) -> PendingAdd:
        """Add a batch behind all others."""
        pending = PendingAdd(first_entry_id, entries, length_bytes, done)
        if not self._is_uniform:
            pending.unit_acks = [0] * pending.count
            pending.unacknowledged = pending.count
        if self._tail is None:
            self._head = pending
        else:
            self._tail.next = pending
        self._tail = pending
        return pending

    def acknowledge(self, pending: PendingAdd, index: int, entry_ids: Sequence[int]) -> None:
        """Bookie ``index`` of the ensemble has stored these entries of the batch."""
        bit = 1 << index
        unit_acks = pending.unit_acks
        if unit_acks is None and len(entry_ids) != pending.count:
            # It answers entry by entry: so do we count from here on.
            unit_acks = pending.unit_acks = [pending.acks] * pending.count
            pending.unacknowledged = self._short(pending)
        if unit_acks is None:
            acks = pending.acks
            if not acks & bit:
                pending.acks = acks = acks | bit
                if acks.bit_count() == self._ack_quorum:
                    pending.unacknowledged = 0
            return
        first = pending.first_entry_id
        for entry_id in entry_ids:
            unit = entry_id - first
            invariant(0 <= unit < pending.count, f"acknowledged entry {entry_id} outside its batch")
            acks = unit_acks[unit]
            if not acks & bit:
                unit_acks[unit] = acks = acks | bit
                if acks.bit_count() == self._ack_quorum:
                    pending.unacknowledged -= 1

    def fail(self, pending: PendingAdd, index: int) -> None:
        """Bookie ``index`` did not store the batch, or not all of it."""
        pending.failed |= 1 << index

    def can_reach(self, pending: PendingAdd) -> bool:
        """Whether every entry of the batch can get its ack quorum from bookies that have not failed it.

        A bookie that failed it counts only for what it had acknowledged before.
        """
        distribution, acks = self.distribution, pending.unit_acks
        for unit in range(pending.count if acks is not None else 1):
            could = distribution.write_mask(pending.first_entry_id + unit) & ~pending.failed
            if ((acks[unit] if acks is not None else pending.acks) | could).bit_count() < self._ack_quorum:
                return False
        return True

    def replaced(self, indexes: Collection[int]) -> list[PendingAdd]:
        """Other bookies are at ``indexes`` now: what the old ones acknowledged counts no more.

        Returns every pending batch, to be sent to the newcomers.
        """
        mask = 0
        for index in indexes:
            mask |= 1 << index
        for pending in self:
            pending.acks &= ~mask
            pending.failed &= ~mask
            if pending.unit_acks is not None:
                pending.unit_acks = [acks & ~mask for acks in pending.unit_acks]
            pending.unacknowledged = self._short(pending)
        return list(self)

    def hopeless(self) -> bool:
        """Whether a pending batch can not reach its ack quorum any more with the bookies as they are."""
        return any(pending.failed and not self.can_reach(pending) for pending in self)

    def _short(self, pending: PendingAdd) -> int:
        units = pending.unit_acks if pending.unit_acks is not None else (pending.acks,)
        return sum(1 for acks in units if acks.bit_count() < self._ack_quorum)

    def pop_completed(self) -> PendingAdd | None:
        """The head if it has reached its ack quorum (call until None), else None."""
        head = self._head
        if head is None or head.unacknowledged or self.is_changing_ensemble:
            return None
        self._head = head.next
        if self._head is None:
            self._tail = None
        # A slow bookie's late answer keeps this batch alive: it must not keep all behind it.
        head.next = None
        return head

    def pop_all(self) -> list[PendingAdd]:
        """Empty the queue: they all fail, in order."""
        pending = list(self)
        self._head = self._tail = None
        for batch in pending:
            batch.next = None
        return pending

    def check_invariants(self) -> None:
        """Batches are adjacent and counted right."""
        previous: PendingAdd | None = None
        for pending in self:
            short = self._short(pending)
            invariant(short == pending.unacknowledged, f"batch {pending.first_entry_id}: {short} units short")
            if previous is not None:
                invariant(
                    pending.first_entry_id == previous.first_entry_id + previous.count,
                    f"a gap before batch {pending.first_entry_id}",
                )
            previous = pending
