"""Limits of the sequence ids that are kept apart; the rules are in ``tests/property``."""

from __future__ import annotations

from geminga.broker.core.dedup_runs import FREE_SAVED_MAX, RUNS_MAX, SequenceRuns
from geminga.model.txn_id import TxnId

TXN = TxnId(0, 1)


def with_free(count: int) -> SequenceRuns:
    """Every second number of a producer is free."""
    runs = SequenceRuns()
    for number in range(count):
        runs.stored("a", 2 * number + 1, 2 * number + 1, TXN, 2 * number)
    runs.ended(TXN, is_committed=False)
    return runs


def test_oldest_runs_are_forgotten_beyond_the_limit() -> None:
    runs = with_free(RUNS_MAX + 3)
    assert len(list(runs)) == RUNS_MAX
    assert not runs.within("a", 0, 6)
    assert [run.first for run in runs.within("a", 7, 9)] == [7, 9]


def test_snapshot_keeps_the_last_free_runs_and_brings_them_back() -> None:
    free = with_free(FREE_SAVED_MAX + 2).free()
    assert len(free["a"]) == FREE_SAVED_MAX
    assert free["a"][0] == (5, 5)
    again = SequenceRuns()
    again.restored(free)
    assert again.free() == free
    assert again.top("a", 5) == 4


def test_producer_that_is_forgotten_has_no_runs() -> None:
    runs = with_free(2)
    runs.forget("a")
    assert not runs


def test_numbers_that_were_left_out_go_with_the_transaction_but_for_those_of_others() -> None:
    runs = SequenceRuns()
    runs.stored("a", 5, 6, TXN, 2)
    runs.ended(TXN, is_committed=False)
    assert runs.free() == {"a": [(3, 6)]}
    other = TxnId(0, 2)
    runs.stored("a", 9, 9, other, 2)
    assert [(run.first, run.last, run.txn_id) for _, run in runs] == [(3, 6, None), (7, 9, other)]
    runs.stored("a", 12, 12, other, 9)
    assert [(run.first, run.last) for _, run in runs] == [(3, 6), (7, 12)]
    assert runs.ended(other, is_committed=True) == []
    assert runs.free() == {"a": [(3, 6)]}
