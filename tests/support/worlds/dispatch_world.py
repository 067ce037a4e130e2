"""A log, consumers and a dispatcher core, driven by lists of small integers: the oracle of the property tests.

The oracle knows for each entry whether it is acknowledged, who holds it, or that it is free, and checks each
delivery against the rules; at the end everything must be deliverable.
"""

from __future__ import annotations

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.shared import Candidate, ReadAgain, ReadOn, SharedDispatcher
from geminga.model import Position

LEDGER = 7


class DispatchWorld:
    """One subscription: ``is_ordered`` asks for the order per key at each delivery."""

    def __init__(self, core: SharedDispatcher[ConsumerState], *, is_ordered: bool = False, unacked_max: int = 0):
        self.core = core
        self.is_ordered = is_ordered
        self.unacked_max = unacked_max
        #: (key hash, messages) of each entry.
        self.log: list[tuple[int, int]] = []
        self.read_index = 0
        self.acked: set[int] = set()
        self.holder: dict[int, ConsumerState] = {}
        #: Messages of a batch that are acknowledged while others are not.
        self.settled: dict[int, int] = {}
        #: How often each entry was sent.
        self.sent: dict[int, int] = {}
        self.plan: ReadOn | ReadAgain | None = None
        self.joined = 0
        self.deliveries = 0

    # ---- actions

    def publish(self, sticky_hash: int, messages: int) -> None:
        self.log.append((sticky_hash, messages))

    def join(self, priority_level: int = 0) -> None:
        self.joined += 1
        consumer = ConsumerState(f"consumer-{self.joined}", priority_level=priority_level, unacked_max=self.unacked_max)
        self.core.add(consumer)

    def leave(self, index: int) -> None:
        consumer = self.pick(index)
        if consumer is None:
            return
        self.core.remove(consumer)
        for entry in [entry for entry, holder in self.holder.items() if holder is consumer]:
            del self.holder[entry]
        if not self.core.consumers:
            self.plan = None
            self.read_index = 0

    def flow(self, index: int, permits: int) -> None:
        consumer = self.pick(index)
        if consumer is not None:
            consumer.permits += permits

    def start_read(self) -> bool:
        if self.plan is not None or not self.core.consumers:
            return False
        self.plan = self.core.next_read()
        return self.plan is not None

    def finish_read(self) -> int:
        """How many entries it delivered."""
        plan, self.plan = self.plan, None
        if plan is None:
            return 0
        if isinstance(plan, ReadAgain):
            # What was acknowledged meanwhile comes along: the core must not send it.
            indexes = [position.entry_id for position in plan.positions]
        else:
            indexes = []
            while self.read_index < len(self.log) and len(indexes) < plan.entries_max:
                if self.read_index not in self.acked:
                    indexes.append(self.read_index)
                self.read_index += 1
        candidates = [
            Candidate(Position(LEDGER, index), b"", self.left_of(index), self.log[index][0]) for index in indexes
        ]
        count = 0
        for consumer, group in self.core.assign(candidates):
            assert consumer in self.core.consumers
            for entry in group:
                self.check_delivery(entry.position.entry_id, consumer)
                count += 1
        self.deliveries += count
        return count

    def fail_read(self) -> None:
        if isinstance(self.plan, ReadAgain):
            self.plan = None
            self.core.read_failed()

    def acknowledge(self, holder_index: int, entry_index: int, by_index: int) -> None:
        consumer = self.pick(holder_index)
        if consumer is None:
            return
        held = sorted(entry for entry, holder in self.holder.items() if holder is consumer)
        if not held:
            return
        entry = held[entry_index % len(held)]
        by = self.pick(by_index) or consumer
        self.core.acknowledge(by, Position(LEDGER, entry))
        del self.holder[entry]
        self.acked.add(entry)

    def acknowledge_part(self, holder_index: int, entry_index: int, by_index: int) -> None:
        """One message of a batch that has several left."""
        consumer = self.pick(holder_index)
        batches = sorted(e for e, holder in self.holder.items() if holder is consumer and self.left_of(e) > 1)
        if consumer is None or not batches:
            return
        entry = batches[entry_index % len(batches)]
        self.settled[entry] = self.settled.get(entry, 0) + 1
        by = self.pick(by_index) or consumer
        self.core.acknowledge(by, Position(LEDGER, entry), self.left_of(entry))

    def acknowledge_waiting(self, index: int, by_index: int) -> None:
        """An entry that was given back is acknowledged after all."""
        waiting = sorted(position.entry_id for position in self.core.replay.positions())
        by = self.pick(by_index)
        if waiting and by is not None:
            entry = waiting[index % len(waiting)]
            self.core.acknowledge(by, Position(LEDGER, entry))
            self.acked.add(entry)

    def redeliver(self, index: int, entry_index: int | None) -> None:
        consumer = self.pick(index)
        if consumer is None:
            return
        held = sorted(entry for entry, holder in self.holder.items() if holder is consumer)
        if entry_index is not None:
            held = held[entry_index % len(held) :][:1] if held else []
        positions = None if entry_index is None else [Position(LEDGER, entry) for entry in held]
        self.core.redeliver(consumer, positions)
        for entry in held:
            del self.holder[entry]

    def change_limits(self, per_consumer: int, per_subscription: int) -> None:
        """An operator sets both limits of unacknowledged messages anew."""
        self.unacked_max = per_consumer
        self.core.limit_unacked(per_subscription)
        for consumer in self.core.consumers:
            consumer.limit_unacked(per_consumer)

    # ---- checks

    def left_of(self, entry: int) -> int:
        """Messages of the entry that are not acknowledged."""
        return self.log[entry][1] - self.settled.get(entry, 0)

    def pick(self, index: int) -> ConsumerState | None:
        consumers = self.core.consumers
        return consumers[index % len(consumers)] if consumers else None

    def check_delivery(self, entry: int, consumer: ConsumerState) -> None:
        assert entry not in self.acked, f"{entry} delivered after its acknowledgment"
        assert entry not in self.holder, f"{entry} delivered twice without redelivery"
        if self.is_ordered:
            sticky_hash = self.log[entry][0]
            for other in range(len(self.log)):
                if other == entry or self.log[other][0] != sticky_hash or other in self.acked:
                    continue
                holder = self.holder.get(other)
                assert holder in (None, consumer), f"hash {sticky_hash} at two consumers"
                assert other > entry or holder is consumer, f"{entry} overtook {other}"
        self.holder[entry] = consumer
        before = self.sent.get(entry, 0)
        assert self.core.tracker.count(Position(LEDGER, entry)) == before, f"{entry} was sent {before} times before"
        self.sent[entry] = before + 1

    def check(self) -> None:
        self.core.check_invariants()
        for consumer in self.core.consumers:
            held = sorted(entry for entry, holder in self.holder.items() if holder is consumer)
            assert [p.entry_id for p in consumer.pending.positions()] == held

    def drain(self) -> None:
        """With permits, and everything acknowledged at once, nothing may stay behind."""
        if not self.core.consumers:
            self.join()
        for _ in range(4 * len(self.log) + 10):
            self.finish_read()
            for entry, _ in sorted(self.holder.items()):
                self.core.acknowledge(self.holder[entry], Position(LEDGER, entry))
                del self.holder[entry]
                self.acked.add(entry)
            for consumer in self.core.consumers:
                consumer.permits = max(consumer.permits, 10)
            self.check()
            if len(self.acked) == len(self.log):
                return
            self.start_read()
        raise AssertionError(f"stuck: {sorted(set(range(len(self.log))) - self.acked)} never delivered")


Action = tuple[int, int, int, int]


def run_actions(world: DispatchWorld, actions: list[Action], *, keys: int) -> None:
    """Carry out each action, checking after every one, then drain. Keys spread over the whole range of hashes."""
    world.join()
    world.join()
    for action in actions:
        run_action(world, action, keys=keys)
    world.drain()


def run_action(world: DispatchWorld, action: Action, *, keys: int) -> None:
    """Carry out one action and check."""
    kind, a, b, c = action
    match kind:
        case 0 | 1:
            for step in range(2 + b % 4):
                key = (a + step * (c % 2)) % keys
                world.publish(1 + key * (65534 // keys), 1 + (c % 3 if kind else 0))
        case 2:
            if len(world.core.consumers) < 5:
                world.join(c % 2)
        case 3:
            world.leave(a)
        case 4 | 5:
            world.flow(a, 1 + b % 7)
        case 6:
            world.start_read()
        case 7:
            world.finish_read()
        case 8:
            world.start_read()
            world.finish_read()
        case 9 | 10:
            world.acknowledge(a, b, c)
        case 11:
            world.redeliver(a, b)
        case 12:
            world.redeliver(a, None)
        case 13:
            world.fail_read()
        case 14 | 15:
            world.start_read()
            if kind == 14:
                world.redeliver(a, b)
            else:
                world.acknowledge_waiting(a, b)
            world.finish_read()
        case 16:
            world.acknowledge_part(a, b, c)
        case 17:
            world.change_limits(a % 8, b)
    world.check()
