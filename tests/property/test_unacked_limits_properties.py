"""Limits of unacknowledged messages: never passed but by the end of a batch, always left again; replay in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.core.dispatch.hash_ranges import HashRangeAutoSplit
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import DispatchLimits, SharedDispatcher
from support.house.examples import many
from support.worlds.dispatch_world import run_actions
from support.worlds.unacked_world import UnackedWorld

small = st.integers(min_value=0, max_value=11)
actions = st.lists(st.tuples(st.integers(min_value=0, max_value=17), small, small, small), min_size=10, max_size=80)
#: 0: no limit.
limits = st.integers(min_value=0, max_value=9)


@settings(max_examples=many(400))
@given(actions, limits, limits)
def test_shared_any_history_keeps_within_its_limits_and_goes_on(history, per_consumer, per_subscription):
    core = SharedDispatcher(
        DispatchLimits(read_entries_max=4, round_robin_messages=3, unacked_max=per_subscription), RedeliveryTracker()
    )
    world = UnackedWorld(core, per_consumer=per_consumer, per_subscription=per_subscription, is_ordered=False)
    run_actions(world, history, keys=4)


@settings(max_examples=many(400))
@given(actions, limits, limits)
def test_key_shared_any_history_keeps_within_its_limits_and_goes_on(history, per_consumer, per_subscription):
    limit = DispatchLimits(read_entries_max=4, unacked_max=per_subscription, look_ahead_per_consumer=5)
    core = KeySharedDispatcher(limit, RedeliveryTracker(), HashRangeAutoSplit(), allow_out_of_order=False)
    world = UnackedWorld(core, per_consumer=per_consumer, per_subscription=per_subscription, is_ordered=True)
    run_actions(world, history, keys=4)
