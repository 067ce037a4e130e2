"""What filters postpone on Shared and Key_Shared."""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.broker.core.dispatch.hash_ranges import HashRangeAutoSplit
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import DispatchLimits, SharedDispatcher
from geminga.broker.filters.rescheduled import RESCHEDULED_MAX, Rescheduled
from geminga.model import Position
from support.worlds.subscriptions import settle


class Whole:
    def broke(self, what, error):
        raise error


def run(scenario):
    async def on_node(node):
        await scenario()

    async def main(world):
        await world.node("broker").run(on_node)

    sim.run(main, 0)


def test_each_is_sent_again_when_its_time_has_come():
    async def scenario():
        core = SharedDispatcher(DispatchLimits(), RedeliveryTracker())
        woken = []
        held = Rescheduled(core, Whole(), lambda: woken.append(asyncio.get_running_loop().time()))
        held.add([(Position(1, 1), 0)], 1000)
        await settle(0.5)
        held.add([(Position(1, 2), 0)], 1000)
        await settle(0.6)
        assert core.replay.positions() == [Position(1, 1)]
        await settle(0.5)
        assert core.replay.positions() == [Position(1, 1), Position(1, 2)]
        assert len(woken) == 2

    run(scenario)


def test_no_more_are_taken_than_fit():
    async def scenario():
        held = Rescheduled(SharedDispatcher(DispatchLimits(), RedeliveryTracker()), Whole(), lambda: None)
        held.add([(Position(1, entry), 0) for entry in range(RESCHEDULED_MAX - 1)], 1000)
        assert not held.is_full
        held.add([(Position(2, 0), 0)], 1000)
        assert held.is_full
        held.close()

    run(scenario)


def test_whoever_closes_it_lets_all_go():
    async def scenario():
        core = KeySharedDispatcher(
            DispatchLimits(), RedeliveryTracker(), HashRangeAutoSplit(), allow_out_of_order=False
        )
        held = Rescheduled(core, Whole(), lambda: None)
        held.add([(Position(1, 1), 7), (Position(1, 2), 7)], 1000)
        core.check_invariants()
        held.close()
        assert core.replay.positions() == [Position(1, 1), Position(1, 2)]
        core.check_invariants()

    run(scenario)
