"""Key_Shared: every key to one consumer, its messages in log order, while consumers come and go.

An entry goes to the consumer its key's hash selects, if

1. that consumer can receive,
2. no earlier entry of the hash waits to be sent again, and
3. nobody else holds unacknowledged entries of the hash (it is not draining).

Otherwise it waits in the replay queue under its hash. A hash is *ready* when 3 holds; the ready hashes of each
consumer are kept up to date, so that neither a slow consumer nor a draining hash costs more than its place in the
queue, and no hash with work is ever looked for. Reading on stops when the queue reaches the
look-ahead limits: until then a stuck consumer does not hold up the others.

With ``allow_out_of_order_delivery`` only 1 is asked. Order is promised within what a consumer did not give back: after
a negative acknowledgment the entry comes again, behind what the consumer already has of that key, and never while
another consumer has some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.draining_hashes import DrainingHash, HashHolders
from geminga.broker.core.dispatch.hash_ranges import StickyKeySelector
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import (
    ENTRIES_MAX,
    C,
    Candidate,
    DispatchLimits,
    Group,
    ReadAgain,
    ReadOn,
    SharedDispatcher,
)
from geminga.broker.core.dispatch.unacked_budget import UnackedBudget
from geminga.model import Position, invariant
from geminga.model.errors import InvariantError

#: Hash of positions whose key is not known yet (delayed messages that came due).
_UNKNOWN = 0


class KeySharedDispatcher(SharedDispatcher[C]):
    """Divides by key."""

    __slots__ = ("_are_others", "_by_name", "_draining", "_holders", "_is_ordered", "_ready", "_resting", "selector")

    def __init__(
        self,
        limits: DispatchLimits,
        tracker: RedeliveryTracker,
        selector: StickyKeySelector,
        *,
        allow_out_of_order: bool,
        budget: UnackedBudget | None = None,
        on_freed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(limits, tracker, budget=budget, on_freed=on_freed)
        #: Who gets which hash.
        self.selector = selector
        self._is_ordered = not allow_out_of_order
        self._holders = HashHolders()
        #: Hashes whose holder is not whom they belong to now -> how often entries of them could not be sent for that.
        self._draining: dict[int, int] = {}
        #: Consumer -> hashes it may be sent now that wait in the replay queue. A dict, for its order.
        self._ready: dict[ConsumerState, dict[int, None]] = {}
        #: Consumers came or went since the two above were made.
        self._are_others = False
        #: Hashes of which nothing is sent for now -> entries for whose sake.
        self._resting: dict[int, int] = {}
        #: The selectors speak of ConsumerState; this finds the shell's consumer again.
        self._by_name: dict[ConsumerState, C] = {}

    def add(self, consumer: C) -> None:
        """A consumer joins; raises ConsumerAssignError if the selector has no range for it."""
        self.selector.add(consumer)
        self._by_name[consumer] = consumer
        super().add(consumer)
        self._are_others = True

    def remove(self, consumer: C) -> None:
        """A consumer leaves; its hashes move to others and drain."""
        if consumer not in self.consumers:
            return
        self.selector.remove(consumer)
        del self._by_name[consumer]
        super().remove(consumer)
        self._are_others = True

    def clear(self) -> None:
        """Forget what waits and who holds what."""
        super().clear()
        self._holders.clear()
        self._draining = {}
        self._ready = {}
        self._resting = {}
        self._are_others = False

    def next_read(self, entries_max: int = ENTRIES_MAX) -> ReadOn | ReadAgain | None:
        """Entries that wait and can be sent now, else on in the log while the look-ahead limits allow."""
        if not self._may_send():
            return None
        wanted = self.receivers.wanted(min(self._limits.read_entries_max, entries_max))
        if wanted == 0:
            return None
        if len(self.replay):
            self._settle()
            positions = self._take_ready(wanted)
            if positions:
                self._reading = positions
                return ReadAgain(positions)
            if len(self.replay) >= self._look_ahead_max():
                return None
        return ReadOn(wanted)

    def assign(self, entries: Sequence[Candidate]) -> list[Group[C]]:
        """Divide what the read brought, by key. The groups are booked: send them."""
        self._settle()
        self._forget_missing(entries)
        groups: dict[C, list[Candidate]] = {}
        replay, holders, ordered = self.replay, self._holders, self._is_ordered
        for entry in entries:
            if self._reading is not None and entry.position not in replay:
                continue  # acknowledged while it was read
            sticky_hash = entry.sticky_hash
            if not sticky_hash:
                raise InvariantError(f"entry {entry.position} without a key hash")
            selected = self.selector.select(sticky_hash)
            consumer = self._by_name.get(selected) if selected is not None else None
            if (
                consumer is None
                or self._is_held
                or not consumer.can_receive()
                or (ordered and not self._is_in_order(entry, consumer))
            ):
                self._keep_one(entry, selected)
                continue
            self._book(consumer, entry)
            if ordered:
                holders.hold(sticky_hash, consumer)
            if selected is not None and not replay.has_hash(sticky_hash):
                self._drop_ready(selected, sticky_hash)
            group = groups.get(consumer)
            if group is None:
                groups[consumer] = [entry]
            else:
                group.append(entry)
        self._reading = None
        return list(groups.items())

    def draining(self) -> dict[ConsumerState, list[DrainingHash]]:
        """Consumers that hold entries of hashes which moved on -> these hashes."""
        self._settle()
        by_holder: dict[ConsumerState, list[int]] = {}
        for sticky_hash in self._draining:
            holder = self._holders.holder(sticky_hash)
            if holder is not None:
                by_holder.setdefault(holder, []).append(sticky_hash)
        result: dict[ConsumerState, list[DrainingHash]] = {}
        for holder, moved in by_holder.items():
            messages = holder.pending.messages_by_hash(moved)
            result[holder] = [DrainingHash(h, messages[h], self._draining[h]) for h in sorted(moved)]
        return result

    def requeue(self, position: Position, sticky_hash: int = 0) -> None:
        """An entry that nobody holds must be sent; its hash may be unknown (0). One that rests is by itself."""
        if position in self._rests:
            return
        self.replay.add(position, sticky_hash)
        if sticky_hash:
            self._note_ready(sticky_hash)

    def rest(self, position: Position, sticky_hash: int = 0) -> None:
        """As of Shared, but it keeps its place in the replay queue, and what has its key waits with it."""
        super().rest(position)
        self.replay.add(position, sticky_hash)
        self._resting[sticky_hash] = self._resting.get(sticky_hash, 0) + 1
        selected = self.selector.select(sticky_hash)
        if selected is not None:
            self._drop_ready(selected, sticky_hash)

    def rested(self, position: Position, sticky_hash: int = 0) -> None:
        """It may be sent now, and what has its key once nothing of that rests."""
        # A transaction may have held it meanwhile, and given it back.
        super().rested(position, sticky_hash)
        left = self._resting.get(sticky_hash, 0) - 1
        if left > 0:
            self._resting[sticky_hash] = left
        elif left == 0:
            del self._resting[sticky_hash]
            if self.replay.has_hash(sticky_hash):
                self._note_ready(sticky_hash)

    def _is_in_order(self, entry: Candidate, consumer: ConsumerState) -> bool:
        """Rules 2 and 3."""
        sticky_hash = entry.sticky_hash
        holder = self._holders.holder(sticky_hash)
        if holder is not None and holder is not consumer:
            if sticky_hash in self._draining:
                self._draining[sticky_hash] += 1
            return False
        # Lent positions come in order, so only those that wait can be earlier.
        first = self.replay.first_waiting(sticky_hash)
        return first is None or entry.position <= first

    def _keep_one(self, entry: Candidate, selected: ConsumerState | None) -> None:
        if self._reading is not None and entry.position in self.replay:
            # A delayed message gets its hash here; the others go back to their place.
            self.replay.give_back(entry.position)
        self.replay.add(entry.position, entry.sticky_hash)
        if selected is not None:
            self._note_ready(entry.sticky_hash)

    def _take_ready(self, wanted: int) -> list[Position]:
        positions = self.replay.take(_UNKNOWN, wanted)
        # Of the two, the fewer are looked at: those that have something, and those that may have it.
        few_have = len(self._ready) < len(self.receivers)
        looked_at: list[ConsumerState] = [*self._ready] if few_have else [*self.receivers]
        for consumer in looked_at:
            ready = self._ready.get(consumer)
            if not ready or not consumer.can_receive():
                continue
            room = min(wanted - len(positions), consumer.entries_wanted(wanted))
            for sticky_hash in list(ready) if room > 0 else ():
                taken = self.replay.take(sticky_hash, room)
                if not taken:
                    self._drop_ready(consumer, sticky_hash)  # all of it was acknowledged meanwhile
                positions.extend(taken)
                room -= len(taken)
                if room <= 0:
                    break
        positions.sort()
        return positions

    def _look_ahead_max(self) -> int:
        limits = self._limits
        per_consumer = limits.look_ahead_per_consumer * len(self.consumers)
        bounds = [bound for bound in (per_consumer, limits.look_ahead_per_subscription) if bound > 0]
        return min(bounds) if bounds else limits.unacked_max or limits.read_entries_max

    def _give_back(self, consumer: C, taken: Sequence[tuple[Position, int, int]]) -> int:
        messages = 0
        for position, count, sticky_hash in taken:
            self.replay.add(position, sticky_hash)
            self.tracker.increment(position)
            messages += count
            self._release(consumer, count, sticky_hash)
            self._note_ready(sticky_hash)
        return messages

    def _release(self, consumer: C, message_count: int, sticky_hash: int) -> bool:
        freed = super()._release(consumer, message_count, sticky_hash)
        if sticky_hash and self._is_ordered and self._holders.release(sticky_hash):
            has_drained = self._draining.pop(sticky_hash, None) is not None
            if self._are_others and consumer in self._by_name:
                has_drained = self.selector.select(sticky_hash) is not consumer
            consumer.draining_cleared += has_drained
            if self.replay.has_hash(sticky_hash):
                self._note_ready(sticky_hash)
                return True
        return freed

    def _keep(self, entries: Iterable[Candidate]) -> None:
        for entry in entries:
            self._keep_one(entry, self.selector.select(entry.sticky_hash))

    def _note_ready(self, sticky_hash: int) -> None:
        """The hash waits in the replay queue: list it at its consumer if it does not drain or rest."""
        if sticky_hash in self._resting:
            return
        selected = self.selector.select(sticky_hash)
        if selected is None:
            return
        holder = self._holders.holder(sticky_hash)
        if holder is None or holder is selected:
            self._ready.setdefault(selected, {})[sticky_hash] = None

    def _drop_ready(self, consumer: ConsumerState, sticky_hash: int) -> None:
        ready = self._ready.get(consumer)
        if ready is not None:
            ready.pop(sticky_hash, None)
            if not ready:
                del self._ready[consumer]

    def _settle(self) -> None:
        """Go by the consumers that there are, once for all that came and went since: each look is at all hashes."""
        if self._are_others:
            self._are_others = False
            self._find_draining()
            self._find_ready()

    def _find_draining(self) -> None:
        """Which of the hashes that are held belong to somebody else now."""
        before, select = self._draining, self.selector.select
        self._draining = {
            sticky_hash: before.get(sticky_hash, 0)
            for sticky_hash, holder in self._holders.items()
            if select(sticky_hash) is not holder
        }

    def _find_ready(self) -> None:
        """List all waiting hashes anew."""
        self._ready = {}
        for sticky_hash in self.replay.hashes():
            if sticky_hash != _UNKNOWN:
                self._note_ready(sticky_hash)

    def check_invariants(self) -> None:
        """Besides those of Shared: what waits and is not draining is ready at its consumer."""
        super().check_invariants()
        if not self._is_ordered:
            return
        owner: dict[int, ConsumerState] = {}
        for consumer in self.consumers:
            for sticky_hash in consumer.pending.hashes():
                invariant(sticky_hash not in owner, f"hash {sticky_hash} is held by two consumers")
                owner[sticky_hash] = consumer
                invariant(self._holders.holder(sticky_hash) is consumer, f"hash {sticky_hash} has another holder")
        invariant(len(owner) == len(self._holders), "holders of hashes nobody has pending")
        if self._are_others:
            return
        moved = {
            sticky_hash for sticky_hash, holder in owner.items() if self.selector.select(sticky_hash) is not holder
        }
        invariant(self._draining.keys() == moved, "the hashes that drain are others than those that moved")
        for sticky_hash in self.replay.hashes():
            waits = sticky_hash and sticky_hash not in self._resting
            selected = self.selector.select(sticky_hash) if waits else None
            if selected is not None and owner.get(sticky_hash, selected) is selected:
                invariant(sticky_hash in self._ready.get(selected, {}), f"hash {sticky_hash} waits but is not ready")
