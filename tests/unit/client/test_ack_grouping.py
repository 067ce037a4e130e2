"""Acknowledgment grouping and batch ackers, case by case."""

from __future__ import annotations

import pytest

from geminga.client.consumer_rules.ack_grouping import AckGrouping, NoAckGrouping
from geminga.client.consumer_rules.batch_acker import BatchAcker
from geminga.model.errors import InvariantError


def test_group_holds_newest_cumulative_and_individual_ones_behind_it() -> None:
    grouping = AckGrouping()
    for entry in [(1, 1), (1, 5), (2, 0)]:
        assert not grouping.add(entry)
    grouping.add_cumulative((1, 3), None)
    grouping.add_cumulative((1, 2), None)
    assert grouping.is_pending((0, 9))
    assert grouping.is_pending((2, 0))
    assert not grouping.is_pending((1, 4))
    group = grouping.flush()
    assert group is not None
    assert group.cumulative == ((1, 3), None)
    assert group.individual == [((1, 5), None), ((2, 0), None)]
    assert grouping.flush() is None
    assert grouping.number == 1


def test_group_is_full_at_its_limit_and_at_once_without_time() -> None:
    grouping = AckGrouping(100, 3)
    assert [grouping.add((1, entry)) for entry in range(3)] == [False, False, True]
    assert AckGrouping(0).add((1, 1))
    assert AckGrouping(0).add_partial((1, 1), BatchAcker(2))
    assert AckGrouping(0).add_cumulative((1, 1), None)


def test_one_batch_is_one_id_whose_words_are_those_at_the_time_of_sending() -> None:
    grouping = AckGrouping()
    acker = BatchAcker(70)
    for index in (0, 1, 69):
        acker.acknowledge(index)
        grouping.add_partial((1, 1), acker)
    acker.acknowledge(2)
    group = grouping.flush()
    assert group is not None
    assert group.individual == [((1, 1), (~0b111, 0b011111))]


def test_batch_that_becomes_whole_is_acknowledged_whole() -> None:
    grouping = AckGrouping()
    acker = BatchAcker(2)
    acker.acknowledge(0)
    grouping.add_partial((1, 1), acker)
    acker.acknowledge(1)
    grouping.add((1, 1))
    grouping.add_partial((1, 1), acker)
    group = grouping.flush()
    assert group is not None
    assert group.individual == [((1, 1), None)]


def test_cumulative_inside_a_batch_gives_way_to_the_whole_of_it() -> None:
    grouping = AckGrouping()
    acker = BatchAcker(4)
    acker.acknowledge_cumulative(1)
    grouping.add_cumulative((1, 1), acker)
    assert not grouping.is_pending((1, 1))
    assert grouping.is_pending((1, 0))
    grouping.add_cumulative((1, 1), None)
    grouping.add_cumulative((1, 1), acker)
    group = grouping.flush()
    assert group is not None
    assert group.cumulative == ((1, 1), None)


def test_restored_group_waits_again_behind_what_is_newer() -> None:
    grouping = AckGrouping()
    acker = BatchAcker(3)
    acker.acknowledge(1)
    grouping.add((1, 7))
    grouping.add_partial((1, 8), acker)
    grouping.add_cumulative((1, 2), None)
    lost = grouping.flush()
    assert lost is not None
    grouping.add_cumulative((1, 3), None)
    grouping.restore(lost)
    group = grouping.flush()
    assert group is not None
    assert group.cumulative == ((1, 3), None)
    assert group.individual == [((1, 7), None), ((1, 8), (0b101,))]


def test_non_persistent_grouping_keeps_nothing() -> None:
    grouping = NoAckGrouping()
    assert not grouping.add((1, 1))
    assert not grouping.add_partial((1, 1), BatchAcker(2))
    assert not grouping.add_cumulative((1, 1), None)
    assert not grouping.is_pending((1, 1))
    assert grouping.pending_count == 0
    assert grouping.flush() is None
    lost = AckGrouping()
    lost.add((1, 1))
    group = lost.flush()
    assert group is not None
    grouping.restore(group)
    assert grouping.flush() is None


def test_acker_of_8192_messages_takes_one_kilobyte() -> None:
    acker = BatchAcker(8192)
    assert len(acker.words() or ()) * 8 == 1024


@pytest.mark.parametrize("is_restored_first", [True, False])
def test_what_an_earlier_delivery_of_a_batch_acknowledged_is_not_lost_to_a_later_one(is_restored_first) -> None:
    """The connection broke before the answer, the batches were forgotten, and the batch came again."""
    grouping = AckGrouping()
    earlier, later = BatchAcker(7), BatchAcker(7)
    earlier.acknowledge(4)
    grouping.add_partial((0, 20), earlier)
    lost = grouping.flush()
    assert lost is not None
    if is_restored_first:
        grouping.restore(lost)
    later.acknowledge(1)
    grouping.add_partial((0, 20), later)
    if not is_restored_first:
        grouping.restore(lost)
    later.acknowledge(5)
    grouping.add_partial((0, 20), later)
    group = grouping.flush()
    assert group is not None
    assert group.individual == [((0, 20), (0b1001101,))]
    grouping.check_invariants()


def test_what_an_earlier_delivery_acknowledged_cumulatively_is_not_lost_to_a_later_one() -> None:
    grouping = AckGrouping()
    earlier, later = BatchAcker(7), BatchAcker(7)
    earlier.acknowledge_cumulative(4)
    grouping.add_cumulative((0, 20), earlier)
    lost = grouping.flush()
    assert lost is not None
    grouping.restore(lost)
    later.acknowledge_cumulative(1)
    grouping.add_cumulative((0, 20), later)
    group = grouping.flush()
    assert group is not None
    assert group.cumulative == ((0, 20), (0b1100000,))


def test_indexes_above_the_acknowledged_one_stay_unacknowledged() -> None:
    acker = BatchAcker(10)
    acker.acknowledge(3)
    assert acker.words() == (0b1111110111,)
    assert acker.unacknowledged() == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_acker_of_nothing_can_not_be() -> None:
    with pytest.raises(InvariantError):
        BatchAcker(0)


def test_acknowledged_twice_counts_once_and_all_is_all() -> None:
    acker = BatchAcker(3)
    assert not acker.acknowledge(0)
    assert not acker.acknowledge(0)
    assert acker.remaining == 2
    acker.acknowledge_all()
    assert acker.is_complete
    assert acker.words() is None


def test_acker_waits_until_its_words_were_sent_or_another_delivery_took_its_place() -> None:
    grouping = AckGrouping()
    first, second = BatchAcker(7), BatchAcker(7)
    for acker in (first, second):
        acker.is_waiting = True  # as who hands it over notes
        grouping.add_partial((0, 20), acker)
    # What is acknowledged through the first from now on must be told again.
    assert (first.is_waiting, second.is_waiting) == (False, True)
    grouping.flush()
    assert not second.is_waiting


@pytest.mark.parametrize("count", [3, 9, 64])
def test_messages_acknowledged_together_are_withheld_no_more(count: int) -> None:
    """As they would not be one after the other: the broker delivered them again since."""
    acker = BatchAcker(70)
    acker.acknowledge_many(list(range(1, count + 1)))
    acker.withheld = (1 << 70) - 1
    acker.acknowledge_many(list(range(1, count + 1)))
    assert acker.withheld == ~(((1 << count) - 1) << 1) & ((1 << 70) - 1)


@pytest.mark.parametrize(("first", "end", "left"), [(5, 20, 0), (3, 13, 7), (9, 20, 4)])
def test_many_behind_some_that_came_in_a_row(first: int, end: int, left: int) -> None:
    acker = BatchAcker(20)
    for index in range(5):
        acker.acknowledge(index)
    assert acker.acknowledge_many(list(range(first, end))) is (left == 0)
    assert (acker.remaining, acker.is_complete) == (left, left == 0)
