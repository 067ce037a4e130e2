"""Deduplication: what is new, stored, or not known."""

from __future__ import annotations

from geminga.broker.core.dedup import Deduplication, Verdict


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
