"""Redelivery counts and the replay queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.dispatch import redelivery
from geminga.broker.core.dispatch.redelivery import RedeliveryCounts, RedeliveryTracker, ReplayQueue
from geminga.model import Position


def at(entry_id):
    return Position(1, entry_id)


def test_tracker_counts_until_acknowledged():
    tracker = RedeliveryTracker()
    assert not tracker
    for _ in range(3):
        tracker.increment(at(1))
    tracker.increment(at(2))
    assert (tracker.count(at(1)), tracker.count(at(2)), tracker.count(at(3))) == (3, 1, 0)
    tracker.forget(at(1))
    assert tracker.count(at(1)) == 0
    tracker.increment(at(5))
    tracker.forget_up_to(at(4))
    assert len(tracker) == 1
    tracker.clear()
    assert not tracker


@pytest.mark.uncompiled("another limit in a module")
def test_tracker_full_still_counts_what_it_knows(monkeypatch):
    monkeypatch.setattr(redelivery, "REDELIVERY_COUNTS_MAX", 1)
    tracker = RedeliveryTracker()
    for entry_id in (1, 2, 1):
        tracker.increment(at(entry_id))
    assert (tracker.count(at(1)), tracker.count(at(2))) == (2, 0)


def test_tracker_forgets_any_position_a_client_may_name():
    tracker = RedeliveryTracker()
    tracker.increment(at(1))
    for entry_id in (-1, (1 << 32) + 1, (1 << 63) - 1):
        tracker.forget(at(entry_id))
        tracker.forget(Position(-1, entry_id))
        assert tracker.count(at(1)) == 1
    tracker.forget_up_to(Position(1, -1))
    assert tracker.count(at(1)) == 1
    tracker.forget_up_to(Position(1, (1 << 63) - 1))
    assert not tracker


tracked = st.lists(
    st.tuples(st.integers(0, 9), st.builds(Position, st.integers(1, 3), st.integers(0, 12))), max_size=120
)


@given(tracked)
def test_tracker_any_history_equals_a_dict(history):
    tracker = RedeliveryTracker()
    counts: dict[Position, int] = {}
    for kind, position in history:
        if kind <= 5:
            tracker.increment(position)
            counts[position] = counts.get(position, 0) + 1
        elif kind <= 8:
            tracker.forget(position)
            counts.pop(position, None)
        else:
            tracker.forget_up_to(position)
            counts = {p: count for p, count in counts.items() if p > position}
        assert len(tracker) == len(counts)
        assert bool(tracker) == bool(counts)
        for p in {*counts, position}:
            assert tracker.count(p) == counts.get(p, 0)


def test_tracker_of_queues_given_back_once_takes_two_bytes_an_entry():
    """A consumer that goes away with its queue full must not cost an object for each entry of it."""
    tracker = RedeliveryTracker()
    for entry_id in range(0, 50_000, 7):
        tracker.increment(at(entry_id))
    assert not tracker._more
    assert sum(len(bitmap.serialize()) for bitmap in tracker._once.values()) < 2.5 * len(tracker)


actions = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 15), st.integers(0, 2)), max_size=80)


@given(actions)
def test_replay_queue_any_history_equals_a_sorted_list(history):
    queue = ReplayQueue()
    members: dict[Position, int] = {}
    lent: set[Position] = set()
    for kind, entry_id, sticky_hash in history:
        position = at(entry_id)
        waiting = sorted(p for p, h in members.items() if h == sticky_hash and p not in lent)
        if kind <= 1:
            if members.get(position, sticky_hash) != sticky_hash:
                lent.discard(position)
            members[position] = sticky_hash
            queue.add(position, sticky_hash)
        elif kind == 2:
            members.pop(position, None)
            lent.discard(position)
            queue.discard(position)
        elif kind == 3:
            taken = queue.take(sticky_hash, 1 + entry_id % 4)
            assert taken == waiting[: 1 + entry_id % 4]
            lent.update(taken)
        elif kind == 4:
            for p in sorted(lent):
                queue.give_back(p)
            lent.clear()
        else:
            queue.discard_up_to(at(entry_id // 3))
            for p in [p for p in members if p <= at(entry_id // 3)]:
                del members[p]
                lent.discard(p)
        queue.check_invariants()
        assert len(queue) == len(members)
        assert queue.positions() == sorted(members)
        for h in range(3):
            free = sorted(p for p, hash_of in members.items() if hash_of == h and p not in lent)
            assert queue.first_waiting(h) == (free[0] if free else None)
            assert queue.has_hash(h) == (h in members.values())
            assert queue.count(h) == list(members.values()).count(h)
    assert sorted(queue.hashes()) == sorted(set(members.values()))


def test_replay_queue_heap_stays_bounded_when_positions_come_and_go():
    queue = ReplayQueue()
    queue.add(at(0))
    for _ in range(500):
        queue.add(at(5))
        queue.discard(at(5))
    assert len(queue._heaps[0]) < 100
    assert queue.take(0, 10) == [at(0)]
    queue.clear()
    assert len(queue) == 0


def test_counts_of_a_subscription_are_kept_while_there_are_any():
    counts = RedeliveryCounts()
    counts.forget([at(1)])
    counts.forget_up_to(at(9))
    tracker = counts.tracker()
    for entry_id in (1, 2, 3):
        tracker.increment(at(entry_id))
    counts.forget([at(1)])
    counts.tidy()
    assert counts.tracker() is tracker
    counts.forget_up_to(at(2))
    assert [tracker.count(at(entry_id)) for entry_id in (1, 2, 3)] == [0, 0, 1]
    counts.forget_up_to(at(3))
    assert counts.tracker() is not tracker, "an empty one is not kept"
    kept = counts.tracker()
    kept.increment(at(5))
    counts.drop()
    assert len(counts.tracker()) == 0
