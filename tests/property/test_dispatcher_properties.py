"""Shared and Key_Shared dispatch: no double delivery, order per key, nothing stuck, exact books."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.core.dispatch.hash_ranges import ConsistentHashRing, HashRangeAutoSplit
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import DispatchLimits, SharedDispatcher
from geminga.wire.pulsar.keys import murmur3_32
from support.house.examples import many
from support.worlds.dispatch_world import DispatchWorld, run_actions

small = st.integers(min_value=0, max_value=11)
actions = st.lists(st.tuples(st.integers(min_value=0, max_value=17), small, small, small), min_size=10, max_size=80)
LIMITS = DispatchLimits(
    read_entries_max=4, round_robin_messages=3, unacked_max=9, look_ahead_per_consumer=3, look_ahead_per_subscription=8
)


@settings(max_examples=many(300), deadline=None)
@given(actions)
def test_shared_any_history_keeps_books_and_gets_through(history):
    world = DispatchWorld(SharedDispatcher(LIMITS, RedeliveryTracker()), unacked_max=6)
    run_actions(world, history, keys=1)


@settings(max_examples=many(500), deadline=None)
@given(actions, st.booleans())
def test_key_shared_any_history_keeps_order_per_key(history, uses_ring):
    selector = ConsistentHashRing(10, murmur3_32) if uses_ring else HashRangeAutoSplit()
    core = KeySharedDispatcher(LIMITS, RedeliveryTracker(), selector, allow_out_of_order=False)
    world = DispatchWorld(core, is_ordered=True, unacked_max=6)
    run_actions(world, history, keys=4)


@settings(max_examples=many(150), deadline=None)
@given(actions)
def test_key_shared_out_of_order_allowed_gets_through(history):
    core = KeySharedDispatcher(LIMITS, RedeliveryTracker(), HashRangeAutoSplit(), allow_out_of_order=True)
    run_actions(DispatchWorld(core), history, keys=4)
