"""Deduplication: what is new, stored, or not known."""

from __future__ import annotations

from geminga.broker.core.coercion import LONG_MAX
from geminga.broker.core.dedup import SOURCE_NAME_BYTES_MAX, SOURCES_MAX, Deduplication, Verdict
from geminga.broker.core.dedup_source import as_properties
from geminga.managed_ledger.rules.cursor_format import MARKER_BYTES_MAX
from geminga.model.position import Position
from geminga.model.topic_name import REPLICATOR_PREFIX
from geminga.model.txn_id import TxnId
from geminga.wire.managed_ledger.cursor_info import encode_position
from geminga.wire.pulsar.texts import NAME_BYTES_MAX

TXN = TxnId(0, 1)


def test_ascending_ids_are_accepted_and_repeats_are_unknown_until_stored() -> None:
    dedup = Deduplication()
    assert dedup.published("p", 5, 5) is Verdict.ACCEPTED
    assert dedup.published("p", 5, 5) is Verdict.UNKNOWN
    dedup.stored("p", 5)
    assert dedup.published("p", 5, 5) is Verdict.DUPLICATE
    assert dedup.published("p", 4, 4) is Verdict.DUPLICATE
    assert dedup.published("p", 6, 6) is Verdict.ACCEPTED


def test_batch_counts_up_to_its_highest_id() -> None:
    dedup = Deduplication()
    assert dedup.published("p", 0, 9) is Verdict.ACCEPTED
    dedup.stored("p", 9)
    assert dedup.published("p", 3, 9) is Verdict.DUPLICATE
    assert dedup.published("p", 10, 12) is Verdict.ACCEPTED
    assert dedup.last_sequence_id("p") == 9


def test_producers_do_not_see_each_other() -> None:
    dedup = Deduplication()
    dedup.stored("a", 9)
    assert dedup.published("b", 0, 0) is Verdict.ACCEPTED
    assert dedup.last_sequence_id("b") == -1


def test_failed_write_makes_everything_unknown_until_settled() -> None:
    dedup = Deduplication()
    dedup.published("p", 1, 1)
    dedup.stored("p", 1)
    dedup.published("p", 2, 2)
    dedup.begin_settling()
    assert dedup.published("p", 2, 2) is Verdict.UNKNOWN
    assert dedup.published("p", 3, 3) is Verdict.UNKNOWN
    dedup.settled()
    assert dedup.published("p", 2, 2) is Verdict.ACCEPTED
    dedup.check_invariants()


def test_failed_write_that_was_stored_all_the_same_is_a_duplicate() -> None:
    dedup = Deduplication()
    dedup.published("p", 2, 2)
    dedup.begin_settling()
    dedup.stored("p", 2)
    dedup.settled()
    assert dedup.published("p", 2, 2) is Verdict.DUPLICATE


def test_batch_with_stored_and_new_messages_is_neither_duplicate_nor_new() -> None:
    """apache/pulsar#6273: acknowledged as a duplicate, its new messages were lost."""
    dedup = Deduplication()
    dedup.stored("p", 5)
    assert dedup.published("p", 4, 5) is Verdict.DUPLICATE
    assert dedup.published("p", 5, 6) is Verdict.MIXED
    assert dedup.published("p", 6, 7) is Verdict.ACCEPTED


def test_retry_of_what_is_not_stored_yet_is_unknown_never_a_duplicate() -> None:
    """F17, apache/pulsar#5218: acknowledged as a duplicate, it was lost when the write failed."""
    dedup = Deduplication()
    dedup.published("p", 1, 1)
    assert dedup.published("p", 1, 1) is Verdict.UNKNOWN


def test_longest_gone_producers_are_forgotten_and_left_out_first() -> None:
    dedup = Deduplication()
    for name in "abcd":
        dedup.stored(name, 1)
    dedup.gone("c", 10)
    dedup.gone("a", 20)
    dedup.gone("nobody", 20)
    assert dedup.snapshot(3) == {"a": 1, "b": 1, "d": 1}
    assert dedup.snapshot(1) == {"b": 1, "d": 1}
    assert dedup.forget_inactive(11) == 1
    assert set(dedup.persisted) == {"a", "b", "d"}
    dedup.connected("a")
    assert dedup.forget_inactive(1000) == 0


def test_who_is_gone_with_nothing_stored_takes_nobody_s_place_among_those_left_out() -> None:
    dedup = Deduplication()
    dedup.published("pushed", 1, 1)
    dedup.gone("pushed", 10)
    dedup.stored("a", 1)
    dedup.stored("b", 1)
    dedup.gone("a", 20)
    dedup.gone("b", 30)
    assert dedup.snapshot(1) == {"b": 1}
    assert dedup.snapshot(0) == {}


def test_snapshot_of_long_names_is_as_large_as_bookies_take_and_leaves_out_the_longest_gone() -> None:
    dedup = Deduplication()
    names = [f"{number:04}" + "\u00e9" * ((NAME_BYTES_MAX - 4) // 2) for number in range(1400)]
    for number, name in enumerate(names):
        dedup.stored(name, LONG_MAX)
        if number:
            dedup.gone(name, number)
    snapshot = dedup.snapshot(10_000)
    assert 4_000_000 < len(encode_position(Position(LONG_MAX, LONG_MAX), properties=snapshot)) <= MARKER_BYTES_MAX
    # Who is there stays.
    assert [*snapshot] == [names[0], *names[-len(snapshot) + 1 :]]


def test_snapshot_has_room_for_all_clusters_that_are_remembered() -> None:
    dedup = Deduplication()
    for number in range(SOURCES_MAX + 1):
        name = REPLICATOR_PREFIX + f"{number:06}".rjust(SOURCE_NAME_BYTES_MAX - len(REPLICATOR_PREFIX), "x")
        if dedup.takes_source(name):
            dedup.stored(name, (1 << 126) - 1)
    assert not dedup.takes_source("x" * (SOURCE_NAME_BYTES_MAX + 1))
    snapshot = as_properties(dedup.snapshot(10_000))
    assert len(snapshot) == 2 * SOURCES_MAX
    assert len(encode_position(Position(LONG_MAX, LONG_MAX), properties=snapshot)) <= MARKER_BYTES_MAX


def test_gone_producer_with_a_write_under_way_is_not_forgotten() -> None:
    dedup = Deduplication()
    dedup.published("p", 1, 1)
    dedup.gone("p", 0)
    assert dedup.forget_inactive(10) == 0
    assert dedup.published("p", 1, 1) is Verdict.UNKNOWN


def test_producer_that_left_before_anything_of_it_was_stored_is_not_looked_for_later() -> None:
    dedup = Deduplication()
    dedup.published("p", 1, 1)
    dedup.begin_settling()
    dedup.gone("p", 0)
    dedup.settled()
    dedup.check_invariants()
    assert dedup.forget_inactive(10) == 0
    assert dedup.published("p", 1, 1) is Verdict.ACCEPTED


def with_aborted(*, later: int) -> Deduplication:
    """Numbers 0 to 2 of ``p`` are of an aborted transaction; ``later`` is stored for good."""
    dedup = Deduplication()
    dedup.published("p", 0, 2, TXN)
    dedup.stored_in("p", 0, 2, TXN)
    dedup.published("p", later, later)
    dedup.stored_in("p", later, later, None)
    dedup.transaction_ended(TXN, is_committed=False)
    return dedup


def test_what_was_aborted_and_is_being_sent_again_is_unknown() -> None:
    dedup = with_aborted(later=3)
    assert dedup.published("p", 1, 1) is Verdict.ACCEPTED
    assert dedup.published("p", 1, 1) is Verdict.UNKNOWN
    assert dedup.published("p", 0, 2) is Verdict.UNKNOWN
    assert dedup.published("p", 0, 0) is Verdict.ACCEPTED
    dedup.stored_in("p", 1, 1, None)
    assert dedup.published("p", 1, 1) is Verdict.DUPLICATE


def test_what_was_aborted_and_failed_to_be_stored_again_can_be_sent_once_more() -> None:
    dedup = with_aborted(later=3)
    dedup.published("p", 1, 1)
    dedup.begin_settling()
    assert dedup.published("p", 1, 1) is Verdict.UNKNOWN
    dedup.settled()
    assert dedup.published("p", 1, 1) is Verdict.ACCEPTED


def test_an_abort_forgets_nothing_that_is_being_stored() -> None:
    dedup = Deduplication()
    dedup.published("p", 0, 2, TXN)
    dedup.stored_in("p", 0, 2, TXN)
    dedup.published("p", 3, 3)
    dedup.transaction_ended(TXN, is_committed=False)
    assert dedup.published("p", 3, 3) is Verdict.UNKNOWN
    dedup.begin_settling()
    dedup.settled()
    # Nothing of it is there.
    assert dedup.last_sequence_id("p") == -1
    assert dedup.published("p", 0, 3) is Verdict.ACCEPTED


def test_batch_of_aborted_and_stored_numbers_is_neither() -> None:
    dedup = with_aborted(later=3)
    assert dedup.published("p", 2, 3) is Verdict.MIXED
    assert dedup.published("p", 3, 4) is Verdict.MIXED
    assert dedup.published("p", 0, 2) is Verdict.ACCEPTED


def test_gone_producer_of_which_only_aborted_numbers_are_left_is_forgotten_too() -> None:
    dedup = Deduplication()
    dedup.published("p", 0, 0, TXN)
    dedup.stored_in("p", 0, 0, TXN)
    dedup.transaction_ended(TXN, is_committed=False)
    assert dedup.runs
    dedup.gone("p", 0)
    dedup.check_invariants()
    assert dedup.forget_inactive(10) == 1
    assert not dedup.runs


def test_behind_a_hole_only_who_is_found_there_or_was_just_named_is_known() -> None:
    dedup = Deduplication()
    dedup.stored("p", 5)
    dedup.stored("q", 5)
    assert not dedup.has_holes
    dedup.holed(has_transactions=False)
    dedup.stored_in("p", 9, 9, None)
    dedup.made_name("new")
    assert [dedup.is_in_doubt(name) for name in ("p", "q", "new", "never seen")] == [False, True, False, True]
    # All that p sent is at or below what was found; of q only what was known.
    assert dedup.published("p", 7, 7) is Verdict.DUPLICATE
    assert dedup.published("p", 10, 10) is Verdict.ACCEPTED
    assert dedup.published("q", 5, 5) is Verdict.DUPLICATE
    assert dedup.published("q", 6, 6) is Verdict.UNKNOWN
    assert dedup.published("q", 5, 6) is Verdict.UNKNOWN
    assert dedup.published("never seen", 0, 0) is Verdict.UNKNOWN
    assert dedup.published("new", 0, 0) is Verdict.ACCEPTED
    # Behind a second one p is in doubt again.
    dedup.holed(has_transactions=False)
    assert dedup.is_in_doubt("p")
    dedup.check_invariants()


def test_with_transactions_what_may_have_been_aborted_in_a_hole_is_unknown() -> None:
    dedup = Deduplication()
    dedup.stored("p", 5)
    dedup.holed(has_transactions=True)
    dedup.stored_in("p", 9, 10, None)
    assert dedup.published("p", 5, 5) is Verdict.DUPLICATE
    for first, last in ((6, 6), (8, 8), (3, 7), (8, 9)):
        assert dedup.published("p", first, last) is Verdict.UNKNOWN, (first, last)
        assert dedup.judged("p", first, last, TXN) is Verdict.UNKNOWN
    assert dedup.published("p", 9, 10) is Verdict.DUPLICATE
    assert dedup.published("p", 11, 11) is Verdict.ACCEPTED
    # The stretch goes on over a second hole.
    dedup.holed(has_transactions=True)
    dedup.stored_in("p", 20, 20, None)
    assert dedup.published("p", 15, 15) is Verdict.UNKNOWN
