"""What is not known here and can be asked of nobody; what owners answer: test_cluster_transactions in simulation."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.rest.peer_answers import Question, ask_owners
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName


def test_nothing_is_asked_of_nobody() -> None:
    assert asyncio.run(ask_owners(None, [])) == []


def test_a_broker_that_can_not_ask_others_says_what_is_not_here() -> None:
    questions = [Question(TopicName.parse("topic"), "/path")]
    with pytest.raises(UnavailableError, match="persistent://public/default/topic is not served here"):
        asyncio.run(ask_owners(None, questions))
