"""What ``make demo CLUSTERS=3`` asks of whom, and what it refuses."""

from __future__ import annotations

import pytest
from demo.__main__ import refusal
from demo.in_clusters import names_of, shares
from demo.verdict import Verdict


@pytest.mark.parametrize("events", [0, 2, 3, 31_945])
def test_each_event_is_published_once_and_no_cluster_has_more_than_two_more(events: int) -> None:
    found = shares(events, 3)
    assert [number for share in found for number in share] == [*range(events)]
    assert max(map(len, found)) - min(map(len, found)) <= 2
    assert names_of(3) == ["city-1", "city-2", "city-3"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"clusters": "1"}, "CLUSTERS=1: expected a number of clusters from 2 to 5"),
        ({"clusters": "three"}, "CLUSTERS=three: expected a number of clusters from 2 to 5"),
        ({"clusters": "3", "bookies": "0"}, "BOOKIES=0: expected a number of bookies from 1 to 7"),
        ({"clusters": "3", "brokers": "6"}, "BROKERS=6: expected a number of brokers from 1 to 5"),
        ({"clusters": "3", "txn": True}, "CLUSTERS and TXN are two demonstrations: expected one of them"),
        ({"bookies": "2"}, "BOOKIES=2: expected a number of bookies from 3 to 7"),
    ],
)
def test_what_can_not_be_is_refused(asked: dict[str, object], reason: str) -> None:
    given = {"bookies": "", "txn": False, **asked}
    assert refusal(**given) == reason  # type: ignore[arg-type]


def test_order_is_that_of_who_is_named_with_an_event() -> None:
    """Two producers' events of one key come in any order; those of one of them do not."""
    rows = [("key", b"%d" % number) for number in range(4)]
    verdict = Verdict(4, {0, 1, 2, 3}, set())
    for number in (2, 0, 1, 3):
        verdict.see(number, rows[number][1], rows, "east" if number < 2 else "west")
    assert verdict.out_of_order == []
    verdict = Verdict(4, {0, 1, 2, 3}, set())
    for number in (3, 0, 1, 2):
        verdict.see(number, rows[number][1], rows, "east" if number < 2 else "west")
    assert verdict.out_of_order == [2]
