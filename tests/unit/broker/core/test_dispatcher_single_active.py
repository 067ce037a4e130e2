"""Who is the active consumer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.single_active import RING_POINTS, SingleActiveDispatcher
from geminga.model.errors import ConsumerBusyError
from geminga.wire.pulsar.keys import murmur3_32


def dispatcher(*, is_exclusive=False, partition_index=-1, topic="t"):
    return SingleActiveDispatcher(
        is_exclusive=is_exclusive, partition_index=partition_index, topic=topic, hash_of=murmur3_32
    )


def test_exclusive_second_is_refused_and_first_stays():
    core = dispatcher(is_exclusive=True)
    first = ConsumerState("a")
    assert core.add(first)
    with pytest.raises(ConsumerBusyError):
        core.add(ConsumerState("b"))
    assert core.active is first
    assert core.consumers == [first]


@pytest.mark.parametrize("partition", range(6))
def test_partitions_spread_over_the_best_level_by_name(partition):
    core = dispatcher(partition_index=partition)
    for name, level in (("z", 1), ("b", 0), ("a", 0), ("c", 0)):
        core.add(ConsumerState(name, priority_level=level))
    assert core.active is not None
    assert core.active.name == "abc"[partition % 3]


def test_ring_of_names_spreads_topics_and_is_stable():
    def active_of(topic, names):
        core = dispatcher(topic=topic)
        for name in names:
            core.add(ConsumerState(name))
        assert core.active is not None
        return core.active.name

    topics = [f"topic-{i}" for i in range(60)]
    chosen = {topic: active_of(topic, "abc") for topic in topics}
    assert set(chosen.values()) == set("abc")
    assert chosen == {topic: active_of(topic, "cba") for topic in topics}
    without_c = {topic: active_of(topic, "ab") for topic in topics}
    assert all(without_c[topic] == name for topic, name in chosen.items() if name != "c")


def test_leaving_active_hands_over_and_the_last_leaves_nobody():
    core = dispatcher(partition_index=0)
    a, b = ConsumerState("a"), ConsumerState("b")
    assert core.add(a)
    assert not core.add(b)
    assert core.remove(a)
    assert core.active is b
    assert core.remove(b)
    assert core.active is None
    assert core.entries_wanted(10) == 0


def test_entries_wanted_follows_permits_and_batch_size():
    core = dispatcher(is_exclusive=True)
    consumer = ConsumerState("a")
    core.add(consumer)
    assert core.entries_wanted(100) == 0
    consumer.permits = 1000
    assert core.entries_wanted(100) == 100
    consumer.messages_per_entry = 50.0
    assert core.entries_wanted(100) == 20
    consumer.permits = 3
    assert core.entries_wanted(100) == 1
    # A few batches whatever their size, but none without a permit, and no more than are read at once.
    assert core.entries_wanted(100, batches_least=16) == 3
    consumer.permits = 1000
    assert core.entries_wanted(100, batches_least=16) == 20
    consumer.messages_per_entry = 500.0
    assert core.entries_wanted(100, batches_least=16) == 16
    assert core.entries_wanted(10, batches_least=16) == 10
    consumer.batches_most = 0
    assert core.entries_wanted(100, batches_least=16) == 2
    consumer.permits = 0
    assert core.entries_wanted(100, batches_least=16) == 0


def candidate_of_ring(consumers, topic, hash_of):
    """Who is active by the whole ring; consumers in the order in which they came."""
    ranked = sorted(consumers, key=lambda c: (c.priority_level, c.name))
    candidates = [c for c in ranked if c.priority_level == ranked[0].priority_level]
    ring = {hash_of(f"{c.name}{i}".encode()): c for c in candidates for i in range(RING_POINTS)}
    behind = [point for point in ring if point >= hash_of(topic.encode())]
    return ring[min(behind or ring)]


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from("abcdefgh"), st.integers(0, 2), st.integers(0, 100)), max_size=40
    ),
    st.sampled_from(["t", "u", "v", "w"]),
    st.sampled_from([97, 1009, 1 << 32]),
)
def test_ring_gives_who_the_whole_ring_gives_whoever_comes_and_goes(steps, topic, hashes):
    def hash_of(data):
        return murmur3_32(data) % hashes

    core = SingleActiveDispatcher(is_exclusive=False, partition_index=-1, topic=topic, hash_of=hash_of)
    present = []
    for is_coming, name, level, which in steps:
        before = core.active
        if is_coming or not present:
            present.append(ConsumerState(name, priority_level=level))
            changed = core.add(present[-1])
        else:
            changed = core.remove(present.pop(which % len(present)))
        assert core.active is (candidate_of_ring(present, topic, hash_of) if present else None)
        assert changed == (core.active is not before)
        assert core.consumers == sorted(present, key=lambda c: (c.priority_level, c.name))
    assert not core.remove(ConsumerState("stranger"))


@pytest.mark.parametrize("name", [None, "same"])
def test_thousands_of_one_connection_leave_at_once_without_a_look_at_all_of_them_each_time(name):
    """Each of them had the ring of all others made anew: a lost connection of 1,000 held up a broker for minutes."""
    asked = 0

    def hash_of(data):
        nonlocal asked
        asked += 1
        return murmur3_32(data)

    core = SingleActiveDispatcher(is_exclusive=False, partition_index=-1, topic="t", hash_of=hash_of)
    consumers = [ConsumerState(name or f"c{number}") for number in range(1500)]
    for consumer in consumers:
        core.add(consumer)
    for consumer in consumers:
        core.remove(consumer)
    assert core.active is None
    assert asked == 1 + RING_POINTS * len(consumers)
