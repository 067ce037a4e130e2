"""Shared and Key_Shared, step by step: who leaves, what the log no longer has, how far is read ahead."""

from __future__ import annotations

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.draining_hashes import DrainingHash
from geminga.broker.core.dispatch.hash_ranges import HashRangeAutoSplit
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import Candidate, DispatchLimits, ReadAgain, ReadOn, SharedDispatcher
from geminga.model.position import Position

#: With two consumers the one that came first has the upper half of the hashes.
LOW, HIGH = 1, 60_000


def consumer(name: str, permits: int = 10) -> ConsumerState:
    state = ConsumerState(name)
    state.permits = permits
    return state


def candidate(entry_id: int, sticky_hash: int = 0) -> Candidate:
    return Candidate(Position(1, entry_id), b"", 1, sticky_hash)


def key_shared(**limits: int) -> KeySharedDispatcher[ConsumerState]:
    return KeySharedDispatcher(
        DispatchLimits(**limits), RedeliveryTracker(), HashRangeAutoSplit(), allow_out_of_order=False
    )


def test_replayed_position_that_the_log_no_longer_has_is_forgotten() -> None:
    core: SharedDispatcher[ConsumerState] = SharedDispatcher(DispatchLimits(), RedeliveryTracker())
    core.add(consumer("a"))
    for entry_id in (3, 5):
        core.requeue(Position(1, entry_id))
    assert core.next_read() == ReadAgain([Position(1, 3), Position(1, 5)])
    [(_, sent)] = core.assign([candidate(5)])
    assert [entry.position.entry_id for entry in sent] == [5]
    assert len(core.replay) == 0
    assert core.next_read() == ReadOn(9)


def test_what_a_consumer_of_key_shared_held_goes_to_who_takes_over_its_keys() -> None:
    core = key_shared()
    first, second = consumer("first"), consumer("second")
    core.add(first)
    core.add(second)
    groups = {who.name: entries for who, entries in core.assign([candidate(0, LOW), candidate(1, HIGH)])}
    assert {name: entries[0].position.entry_id for name, entries in groups.items()} == {"second": 0, "first": 1}
    core.remove(second)
    assert core.consumers == [first]
    assert (len(second.pending), core.unacked_count) == (0, 1)
    assert core.next_read() == ReadAgain([Position(1, 0)])
    [(who, _)] = core.assign([candidate(0, LOW)])
    assert (who, core.tracker.count(Position(1, 0))) == (first, 1)
    core.check_invariants()


def test_no_more_is_read_ahead_than_the_look_ahead_allows() -> None:
    core = key_shared(look_ahead_per_consumer=1, look_ahead_per_subscription=0)
    busy, idle = consumer("busy", permits=0), consumer("idle")
    core.add(busy)
    core.add(idle)
    for entry_id, is_more_read in ((0, True), (1, False)):
        assert core.assign([candidate(entry_id, HIGH)]) == []
        assert (core.next_read() is not None) is is_more_read


def test_draining_hashes_are_those_that_moved_on() -> None:
    core = key_shared()
    first, second = consumer("first"), consumer("second")
    core.add(first)
    core.assign([candidate(0, LOW), candidate(1, LOW), candidate(2, HIGH)])
    assert core.draining() == {}
    core.add(second)
    assert core.draining() == {first: [DrainingHash(LOW, messages=2, blocked_attempts=0)]}
    core.assign([candidate(3, LOW)])
    assert core.draining() == {first: [DrainingHash(LOW, messages=2, blocked_attempts=1)]}


def test_a_hash_has_drained_when_its_last_entry_is_acknowledged() -> None:
    core = key_shared()
    first, second = consumer("first"), consumer("second")
    core.add(first)
    core.assign([candidate(0, LOW), candidate(1, LOW)])
    core.add(second)
    core.acknowledge(first, Position(1, 0), 0)
    assert first.draining_cleared == 0
    core.acknowledge(first, Position(1, 1), 0)
    assert (first.draining_cleared, second.draining_cleared) == (1, 0)
    assert core.draining() == {}


def test_a_hash_that_comes_back_to_its_holder_drains_no_longer() -> None:
    core = key_shared()
    first, second = consumer("first"), consumer("second")
    core.add(first)
    core.assign([candidate(0, LOW)])
    core.add(second)
    core.remove(second)
    assert core.draining() == {}
    core.acknowledge(first, Position(1, 0), 0)
    assert first.draining_cleared == 0
