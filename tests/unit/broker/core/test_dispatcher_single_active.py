"""Who is the active consumer."""

from __future__ import annotations

import pytest

from geminga.broker.core.consumer_state import ConsumerState
from geminga.broker.core.dispatcher_single_active import SingleActiveDispatcher
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
