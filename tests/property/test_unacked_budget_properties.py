"""Several subscriptions under the broker's limit: who has more than its share waits while the broker is short."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.hash_ranges import HashRangeAutoSplit
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import DispatchLimits, SharedDispatcher
from geminga.broker.core.dispatch.unacked_budget import UnackedBudget
from support.house.examples import many
from support.worlds.dispatch_world import DispatchWorld, run_action

SUBSCRIPTIONS = 3
LIMIT, SHARE = 12, 4
LIMITS = DispatchLimits(read_entries_max=4, round_robin_messages=3, unacked_max=9)

small = st.integers(min_value=0, max_value=11)
actions = st.lists(
    st.tuples(st.integers(0, SUBSCRIPTIONS - 1), st.integers(min_value=0, max_value=17), small, small, small),
    min_size=20,
    max_size=120,
)


class SharingWorld(DispatchWorld):
    """Checks each delivery against what the broker has outstanding, counted here."""

    def __init__(self, core: SharedDispatcher[ConsumerState], broker: Broker, *, is_ordered: bool) -> None:
        super().__init__(core, is_ordered=is_ordered)
        self.broker = broker

    def outstanding(self) -> int:
        return sum(map(self.left_of, self.holder))

    def check_delivery(self, entry: int, consumer: ConsumerState) -> None:
        self.broker.settle()
        assert not (self.broker.is_short and self.outstanding() > SHARE), "more for one that has more than its share"
        super().check_delivery(entry, consumer)
        if sum(world.outstanding() for world in self.broker.worlds) >= LIMIT:
            self.broker.is_short = True


class Broker:
    """The rule in words, over all subscriptions."""

    def __init__(self) -> None:
        self.budget = UnackedBudget(LIMIT, SHARE / LIMIT)
        self.worlds: list[SharingWorld] = []
        self.is_short = False
        self.told = 0
        for index in range(SUBSCRIPTIONS):
            core: SharedDispatcher[ConsumerState]
            if index:
                core = SharedDispatcher(LIMITS, RedeliveryTracker(), budget=self.budget, on_freed=self.on_freed)
            else:
                core = KeySharedDispatcher(
                    LIMITS,
                    RedeliveryTracker(),
                    HashRangeAutoSplit(),
                    allow_out_of_order=False,
                    budget=self.budget,
                    on_freed=self.on_freed,
                )
            self.worlds.append(SharingWorld(core, self, is_ordered=not index))
            self.worlds[-1].join()

    def on_freed(self) -> None:
        self.told += 1

    def settle(self) -> None:
        if sum(world.outstanding() for world in self.worlds) < LIMIT / 2:
            self.is_short = False

    def check(self) -> None:
        self.settle()
        assert self.budget.total == sum(world.outstanding() for world in self.worlds)
        assert self.budget.is_short == self.is_short
        for world in self.worlds:
            if not self.is_short or world.outstanding() <= SHARE // 2:
                assert not world.core._is_over_share


@settings(max_examples=many(300))
@given(actions)
def test_any_history_keeps_the_others_going_and_everybody_in_the_end(history):
    broker = Broker()
    for index, *action in history:
        run_action(broker.worlds[index], tuple(action), keys=4)
        broker.check()
    for world in broker.worlds:
        world.drain()
        broker.check()
    assert broker.budget.total == 0


def test_held_subscription_is_told_when_the_broker_has_room_again():
    broker = Broker()
    greedy, other = broker.worlds[1:]
    for world in (greedy, other):
        for _ in range(12):
            world.publish(1, 1)
        world.flow(0, 100)
    for world, wanted in ((greedy, 9), (other, 4)):
        for _ in range(5):
            world.start_read()
            world.finish_read()
        assert world.outstanding() >= wanted
    assert broker.is_short
    assert not greedy.start_read()
    assert broker.told == 0
    for _ in range(6):
        other.acknowledge(0, 0, 0)
    while broker.budget.is_short:
        greedy.acknowledge(0, 0, 0)
    assert broker.told == 1
    greedy.acknowledge(0, 0, 0)  # its own limit has room at half, too
    assert greedy.start_read()
