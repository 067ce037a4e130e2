"""How transactions stand, as brokers tell each other."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import Json
from geminga.broker.peers.standings import standings_of
from geminga.model.txn_id import Standing


def test_what_is_told_is_what_is_heard() -> None:
    assert standings_of({"standings": [each.value for each in Standing]}, len(Standing)) == list(Standing)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "over",
        {},
        {"standings": None},
        {"standings": ["OVER", None]},
        {"standings": [["over"], 1]},
        {"standings": ["over"]},
        {"standings": ["over"] * 3},
    ],
)
def test_what_says_nothing_is_not_taken_for_the_end(document: Json) -> None:
    assert standings_of(document, 2) == [None, None]
