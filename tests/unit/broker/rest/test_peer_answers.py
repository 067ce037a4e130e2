"""What is not known here and can be asked of nobody; what owners answer: test_cluster_transactions in simulation."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga.broker.peers.http_client import PeerAnswer
from geminga.broker.rest.calls import peer_answers
from geminga.broker.rest.calls.peer_answers import Question, ask_owners
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName


def test_nothing_is_asked_of_nobody() -> None:
    assert asyncio.run(ask_owners(None, [])) == []


def test_a_broker_that_can_not_ask_others_says_what_is_not_here() -> None:
    questions = [Question(TopicName.parse("topic"), "/path")]
    with pytest.raises(UnavailableError, match="persistent://public/default/topic is not served here"):
        asyncio.run(ask_owners(None, questions))


class Owners:
    """The brokers that serve partitions; each says which it is."""

    async def ask_owner(self, name: TopicName, method: str, path: str, *, query: str) -> PeerAnswer:
        return PeerAnswer(404 if name.partition == 3 else 200, json.dumps(name.partition).encode(), "b:8080")


def test_more_owners_than_are_asked_at_a_time_answer_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_answers, "AT_ONCE", 2)
    whole = TopicName.parse("topic")
    questions = [Question(whole.with_partition(index), "/path") for index in range(6)]
    assert asyncio.run(ask_owners(Owners(), questions)) == [0, 1, 2, None, 4, 5]  # type: ignore[arg-type]
