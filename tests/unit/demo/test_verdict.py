"""The demo's verdict must be able to say no."""

from __future__ import annotations

from demo.verdict import Verdict

ROWS = [("a", b"0"), ("b", b"1"), ("a", b"2"), ("b", b"3")]


def verdict_of(deliveries: list[int], *, acknowledged: set[int] | None = None, in_flight: set[int] = frozenset()):
    """The verdict after these deliveries."""
    verdict = Verdict(len(ROWS), set(range(4)) if acknowledged is None else acknowledged, set(in_flight))
    for number in deliveries:
        verdict.see(number, ROWS[number][1], ROWS)
    return verdict


def test_complete_and_ordered_run_has_no_failures() -> None:
    assert verdict_of([1, 0, 2, 3]).failures(expects_no_duplicates=True) == []


def test_lost_event_fails() -> None:
    verdict = verdict_of([0, 1, 2])
    assert verdict.lost == {3}
    assert "lost" in verdict.failures(expects_no_duplicates=False)[0]


def test_event_that_was_never_acknowledged_is_not_lost_but_fails() -> None:
    verdict = verdict_of([0, 1, 2], acknowledged={0, 1, 2})
    assert verdict.lost == set()
    assert verdict.failures(expects_no_duplicates=False) == ["1 were never acknowledged"]


def test_first_deliveries_out_of_order_within_a_key_fail() -> None:
    verdict = verdict_of([2, 0, 1, 3])
    assert verdict.out_of_order == [0]
    assert "out of order" in verdict.failures(expects_no_duplicates=False)[0]


def test_duplicate_in_flight_at_the_kill_is_explained_unless_deduplication_is_on() -> None:
    verdict = verdict_of([0, 1, 2, 0, 2, 3], in_flight={0, 2, 3})
    assert verdict.duplicates == [0, 2]
    assert verdict.failures(expects_no_duplicates=False) == []
    assert verdict.failures(expects_no_duplicates=True) == ["2 duplicates in spite of deduplication"]


def test_duplicate_that_was_not_in_flight_fails() -> None:
    assert verdict_of([0, 1, 2, 3, 0], in_flight={2}).failures(expects_no_duplicates=False) != []


def test_other_bytes_than_published_fail() -> None:
    verdict = verdict_of([0, 1, 2])
    verdict.see(3, b"else", ROWS)
    verdict.see(99, b"", ROWS)
    assert verdict.damaged == [3, 99]
