"""The three ways to divide key hashes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.hash_ranges import (
    HASH_RANGE_SIZE,
    ConsistentHashRing,
    HashRangeAutoSplit,
    StickyRanges,
    sticky_hash_of,
)
from geminga.model.errors import ConsumerAssignError
from geminga.wire.pulsar.keys import murmur3_32


def selectors():
    return [HashRangeAutoSplit(), ConsistentHashRing(100, murmur3_32)]


def test_sticky_hash_is_never_zero_and_in_range():
    assert sticky_hash_of(0) == 1
    assert sticky_hash_of(HASH_RANGE_SIZE) == 1
    assert sticky_hash_of(HASH_RANGE_SIZE * 3 + 77) == 77
    for selector in (HashRangeAutoSplit(), StickyRanges()):
        assert [selector.sticky_hash(h) for h in (0, 77, HASH_RANGE_SIZE)] == [1, 77, 1]


def test_ring_has_a_sticky_hash_of_its_own_and_picks_whom_pulsar_picks():
    ring = ConsistentHashRing(100, murmur3_32)
    for name in "xyz":
        ring.add(ConsumerState(name))
    assert [ring.sticky_hash(h) for h in (0, HASH_RANGE_SIZE - 2, HASH_RANGE_SIZE - 1)] == [1, HASH_RANGE_SIZE - 1, 1]
    picked = [ring.select(ring.sticky_hash(murmur3_32(b"key-%d" % number))) for number in range(30)]
    # As Apache Pulsar 4.2.4 does.
    assert "".join(consumer.name for consumer in picked) == "xxzzxyxxxxzzyxzxyxyzzxxyxzxyxy"


def test_auto_split_halves_the_widest_range_and_gives_it_back():
    a, b, c = (ConsumerState(name) for name in "abc")
    split = HashRangeAutoSplit()
    split.add(a)
    assert split.ranges() == [(0, 65535, a)]
    split.add(b)
    assert split.ranges() == [(0, 32768, b), (32769, 65535, a)]
    split.add(c)
    assert split.ranges() == [(0, 16384, c), (16385, 32768, b), (32769, 65535, a)]
    split.remove(a)
    assert split.ranges() == [(0, 16384, c), (16385, 65535, b)]
    split.remove(c)
    assert split.ranges() == [(0, 65535, b)]
    split.remove(b)
    assert split.select(5) is None


def test_auto_split_without_room_refuses():
    split = HashRangeAutoSplit()
    for _ in range(HASH_RANGE_SIZE):
        split.add(ConsumerState("x"))
    with pytest.raises(ConsumerAssignError):
        split.add(ConsumerState("one too many"))


@given(st.lists(st.integers(-30, 30), max_size=60))
def test_auto_split_divides_the_first_of_the_widest_ranges_and_keeps_little_of_those_that_are_gone(history):
    split, there = HashRangeAutoSplit(), []
    ends: list[int] = []
    for step in history:
        if step >= 0 or not there:
            there.append(ConsumerState(""))
            split.add(there[-1])
            widths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
            index = widths.index(max(widths)) if widths else 0
            ends.insert(index, ends[index] - (widths[index] >> 1) if widths else HASH_RANGE_SIZE)
        else:
            gone = there.pop(step % len(there))
            index = [consumer for _, _, consumer in split.ranges()].index(gone)
            split.remove(gone)
            split.remove(gone)
            del ends[index - 1 if 0 < index == len(ends) - 1 else index]
        assert split._ends == ends
        assert len(split._widest) <= 4 * len(ends) + 2


def test_thousands_that_come_and_go_are_not_each_compared_with_all_others():
    split = HashRangeAutoSplit()
    CountedConsumer.compared = 0
    many = [CountedConsumer("") for _ in range(2000)]
    for consumer in many:
        split.add(consumer)
    assert len(split.ranges()) == 2000
    for consumer in many:
        split.remove(consumer)
    assert CountedConsumer.compared <= 2 * 2000
    assert split.ranges() == []


def test_ring_spreads_and_consumers_of_one_name_share():
    ring = ConsistentHashRing(100, murmur3_32)
    consumers = [ConsumerState("same") for _ in range(4)]
    for consumer in consumers:
        ring.add(consumer)
    shares = dict.fromkeys(consumers, 0)
    for sticky_hash in range(1, HASH_RANGE_SIZE):
        chosen = ring.select(sticky_hash)
        assert chosen is not None
        shares[chosen] += 1
    assert all(0.15 < share / HASH_RANGE_SIZE < 0.40 for share in shares.values())


@given(st.lists(st.integers(0, 4), max_size=12))
def test_consumers_of_one_name_take_the_places_of_those_that_left_the_first_one_first(leaving):
    ring = ConsistentHashRing(10, murmur3_32)
    places = [ConsumerState("same") for _ in range(5)]
    for consumer in places:
        ring.add(consumer)
    whole = [(first, last, places.index(consumer)) for first, last, consumer in ring.ranges()]
    free = list(dict.fromkeys(leaving))
    for place in free:
        ring.remove(places[place])
    for place in sorted(free):
        places[place] = ConsumerState("same")
        ring.add(places[place])
    assert [(first, last, places.index(consumer)) for first, last, consumer in ring.ranges()] == whole


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=25))
def test_selectors_any_history_ranges_cover_everything_and_agree_with_select(history):
    for selector in selectors():
        consumers: list[ConsumerState] = []
        for joins, index in history:
            if joins:
                consumers.append(ConsumerState(f"c{index}"))
                selector.add(consumers[-1])
            elif consumers:
                selector.remove(consumers.pop(index % len(consumers)))
        ranges = selector.ranges()
        assert bool(ranges) == bool(consumers)
        if not consumers:
            continue
        assert ranges[0][0] == 0
        assert ranges[-1][1] == HASH_RANGE_SIZE - 1
        assert all(left[1] + 1 == right[0] for left, right in pairwise(ranges))
        for first, last, consumer in ranges:
            assert consumer in consumers
            assert selector.select(max(1, first)) is consumer
            assert selector.select(last) is consumer


def test_ring_join_moves_hashes_to_the_newcomer_only():
    ring = ConsistentHashRing(100, murmur3_32)
    for name in "abc":
        ring.add(ConsumerState(name))
    before = {h: ring.select(h) for h in range(1, HASH_RANGE_SIZE, 7)}
    newcomer = ConsumerState("d")
    ring.add(newcomer)
    moved = [h for h, consumer in before.items() if ring.select(h) is not consumer]
    assert all(ring.select(h) is newcomer for h in moved)
    ring.remove(newcomer)
    assert all(ring.select(h) is consumer for h, consumer in before.items())


@pytest.mark.parametrize(
    "wanted", [[], [(5, 4)], [(0, 65536)], [(0, 10), (10, 20)], [(90, 110)], [(100, 100)], [(50, 300)]]
)
def test_sticky_ranges_wrong_or_taken_are_refused(wanted):
    ranges = StickyRanges()
    owner = ConsumerState("owner")
    ranges.want(owner, [(100, 200)])
    ranges.add(owner)
    other = ConsumerState("other")
    ranges.want(other, wanted)
    with pytest.raises(ConsumerAssignError):
        ranges.add(other)
    assert ranges.ranges() == [(100, 200, owner)]


def test_sticky_ranges_unnamed_hash_is_nobodys_and_freed_ranges_can_be_taken():
    ranges = StickyRanges()
    a, b = ConsumerState("a"), ConsumerState("b")
    ranges.want(a, [(0, 9), (20, 29)])
    ranges.add(a)
    assert ranges.select(9) is a
    assert ranges.select(15) is None
    assert ranges.select(20) is a
    assert ranges.select(30) is None
    ranges.remove(a)
    ranges.want(b, [(5, 25)])
    ranges.add(b)
    assert ranges.select(15) is b


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda at: (at[0], at[0] + at[1])), min_size=1)


@given(st.lists(SPANS, max_size=6))
def test_sticky_ranges_are_refused_exactly_where_two_share_a_hash(wanted):
    selector, owners = StickyRanges(), {}
    for number, ranges in enumerate(wanted):
        consumer = ConsumerState(f"c{number}")
        hashes = [found for first, last in ranges for found in range(first, last + 1)]
        selector.want(consumer, ranges)
        if len(set(hashes)) < len(hashes) or owners.keys() & set(hashes):
            with pytest.raises(ConsumerAssignError, match="overlaps"):
                selector.add(consumer)
        else:
            selector.add(consumer)
            owners.update(dict.fromkeys(hashes, consumer))
    assert {found: selector.select(found) for found in range(80)} == {found: owners.get(found) for found in range(80)}


class CountedConsumer(ConsumerState):
    """A consumer that counts what it is compared with."""

    compared = 0

    def __eq__(self, other):
        CountedConsumer.compared += 1
        return self is other

    __hash__ = ConsumerState.__hash__


class Counted(int):
    """A number that counts what it is compared with."""

    compared = 0

    def __le__(self, other):
        Counted.compared += 1
        return int(self) <= int(other)

    def __lt__(self, other):
        Counted.compared += 1
        return int(self) < int(other)

    __hash__ = int.__hash__


def test_thousands_of_sticky_ranges_are_not_each_compared_with_all_others():
    """A command may name tens of thousands: two such consumers held up a broker for a minute."""
    selector = StickyRanges()
    for number in range(2):
        consumer = ConsumerState(f"c{number}")
        at = [Counted(4 * index + 2 * number) for index in range(2000)]
        selector.want(consumer, [(each, each) for each in at])
        selector.add(consumer)
    assert Counted.compared < 40 * 2 * 2000
