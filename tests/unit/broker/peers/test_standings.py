"""How transactions stand, as brokers tell each other."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga import sim
from geminga.broker.core.coercion import Json
from geminga.broker.peers import standings
from geminga.broker.peers.http_client import PeerAnswer
from geminga.broker.peers.standings import standings_of
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import Standing, TxnId


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


class Owner:
    """The broker of a coordinator: it says that everything is open, and keeps how many it was asked of at a time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def is_at_another_make(self, name: TopicName) -> bool:
        return False

    async def ask_owner(self, name: TopicName, method: str, path: str, *, body: bytes) -> PeerAnswer:
        self.asked.append(len(json.loads(body)))
        return PeerAnswer(200, json.dumps({"standings": [Standing.TAKING.value] * self.asked[-1]}).encode(), "b:8080")


def test_more_questions_than_one_request_takes_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings, "QUESTIONS_MAX", 3)

    async def scenario(world: sim.SimWorld) -> None:
        owner = Owner()
        peers = standings.PeerStandings(owner)  # type: ignore[arg-type]
        asked = (peers.ask(TxnId(0, number), "persistent://t/n/topic") for number in range(8))
        assert await asyncio.gather(*asked) == [Standing.TAKING] * 8
        assert owner.asked == [3, 3, 2]

    sim.run(scenario, seed=1)
