"""Shared and Key_Shared, step by step: who leaves, what the log no longer has, how far is read ahead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.draining_hashes import DrainingHash
from geminga.broker.core.dispatch.hash_ranges import HashRangeAutoSplit
from geminga.broker.core.dispatch.key_shared import KeySharedDispatcher
from geminga.broker.core.dispatch.pending_acks import PendingAcks
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import (
    OWNERS_FROM,
    Candidate,
    DispatchLimits,
    ReadAgain,
    ReadOn,
    SharedDispatcher,
)
from geminga.model.position import Position
from support.house.python_calls import counted_calls

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


def shared(**limits: int) -> SharedDispatcher[ConsumerState]:
    return SharedDispatcher(DispatchLimits(**limits), RedeliveryTracker())


@pytest.mark.parametrize("make", [shared, key_shared])
def test_who_may_receive_is_all_that_is_looked_at_where_many_have_no_permits(
    make: Callable[[], SharedDispatcher[ConsumerState]],
) -> None:
    core = make()
    many = [consumer(f"c{number}", permits=0) for number in range(200)]
    for each in many:
        core.add(each)
    with counted_calls(ConsumerState.can_receive) as calls:
        for each in many:
            assert core.next_read() is None
            each.permits = 1
            assert core.next_read() == ReadOn(1)
            each.permits = 0
        assert calls() <= 2 * len(many)
    core.check_invariants()


def test_of_keys_that_wait_only_those_are_looked_at_whose_consumers_can_receive() -> None:
    core = key_shared()
    many = [consumer(f"c{number}", permits=0) for number in range(128)]
    for each in many:
        core.add(each)
    for sticky_hash in range(1, 1 << 16, 256):
        core.requeue(Position(1, sticky_hash), sticky_hash)
    for each in many:
        with counted_calls(ConsumerState.can_receive) as calls:
            each.permits = 1
            plan = core.next_read()
            assert isinstance(plan, ReadAgain)
            (position,) = plan.positions
            assert core.selector.select(position.entry_id) is each
            core.read_failed()
            each.permits = 0
            assert calls() <= 4
    core.check_invariants()


def test_each_gets_its_turn_and_who_could_not_receive_comes_back_behind_the_others() -> None:
    core = shared(round_robin_messages=1)
    names = [consumer(name, permits=2) for name in "abc"]
    for each in names:
        core.add(each)
    names[1].limit_unacked(1)

    entry_ids = iter(range(100))

    def given(count: int) -> str:
        groups = core.assign([candidate(next(entry_ids)) for _ in range(count)])
        core.check_invariants()
        return "".join(who.name for who, _ in sorted(groups, key=lambda group: group[1][0].position))

    assert core.next_read() == ReadOn(6)
    assert given(3) == "abc"
    # The second is blocked, and the others have a permit each.
    assert core.next_read() == ReadOn(2)
    assert given(1) == "a"
    names[0].permits = 1
    core.acknowledge(names[1], names[1].pending.positions()[0])
    assert core.next_read() == ReadOn(3)
    assert given(3) == "cab"
    assert core.next_read() is None
    assert len(core.receivers) == 0


def test_an_acknowledgment_of_what_nobody_holds_looks_at_no_consumer_where_there_are_many() -> None:
    core = shared()
    many = [consumer(f"c{number}", permits=3) for number in range(2 * OWNERS_FROM)]
    for each in many:
        core.add(each)
    core.assign([candidate(entry_id) for entry_id in range(3 * OWNERS_FROM)])
    core.check_invariants()
    with counted_calls(PendingAcks.__contains__) as calls:
        for entry_id in range(10_000, 10_100):
            core.acknowledge(many[0], Position(1, entry_id))
        assert calls() == 100
    assert core.acknowledge(many[-1], Position(1, 0)) is False
    held = core.owner(Position(1, 1))
    assert held is not None
    core.redeliver(held, [Position(1, 1)])
    core.hold(many[5], Position(1, 2))
    core.acknowledge_up_to(Position(1, 10))
    core.check_invariants()
    for count, each in enumerate(many[:-1]):
        core.remove(each)
        if count % 16 == 0:
            core.check_invariants()
    core.assign([candidate(900)])
    core.acknowledge(many[-1], Position(1, 900))
    core.check_invariants()


def test_what_few_hold_is_found_when_many_join() -> None:
    core = shared()
    first = consumer("first", permits=5)
    core.add(first)
    core.assign([candidate(entry_id) for entry_id in range(5)])
    for number in range(2 * OWNERS_FROM):
        core.add(consumer(f"c{number}"))
    other = core.consumers[-1]
    core.acknowledge(other, Position(1, 3))
    assert (core.unacked_count, len(first.pending), core.owner(Position(1, 4))) == (4, 4, first)
    core.check_invariants()


def test_who_wants_all_that_is_read_at_once_keeps_its_turn_until_it_is_sent_something() -> None:
    core = shared(read_entries_max=2)
    for name in "abc":
        core.add(consumer(name))
    assert core.next_read() == ReadOn(2)
    assert [who.name for who, _ in core.assign([candidate(0)])] == ["a"]
    assert core.next_read() == ReadOn(2)
    assert [who.name for who, _ in core.assign([candidate(1)])] == ["b"]
