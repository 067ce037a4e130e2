"""How a transaction stands, as brokers tell each other."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import Json
from geminga.broker.peers.standings import standing_of
from geminga.model.txn_id import Standing


@pytest.mark.parametrize("standing", Standing)
def test_what_is_told_is_what_is_heard(standing: Standing) -> None:
    assert standing_of({"standing": standing.value}) is standing


@pytest.mark.parametrize(
    "document", [None, [], "over", {}, {"standing": None}, {"standing": "OVER"}, {"standing": ["over"]}]
)
def test_what_says_nothing_is_not_taken_for_the_end(document: Json) -> None:
    assert standing_of(document) is None
