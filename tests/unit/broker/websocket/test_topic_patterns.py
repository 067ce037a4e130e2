"""Patterns that a socket brings are evaluated in linear time, or refused."""

from __future__ import annotations

import pytest

from geminga.broker.websocket.core.parameters import ParameterError
from geminga.broker.websocket.topic_patterns import PATTERN_LENGTH_MAX, topics_pattern
from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName


def test_pattern_names_its_namespace() -> None:
    found = topics_pattern("persistent://a/b/c.*")
    assert found.compiled.pattern == "persistent://a/b/c.*"
    assert found.any_topic.namespace == "a/b"
    assert topics_pattern("c.*").any_topic.namespace == "public/default"


def test_right_to_all_topics_of_a_pattern_is_asked_at_none_that_may_be_there() -> None:
    """Who was granted a topic of that name would get all of the namespace, where the broker's own client asks again."""
    any_topic = topics_pattern("persistent://a/b/.*").any_topic
    with pytest.raises(InvalidTopicNameError):
        TopicName.parse(str(any_topic))


@pytest.mark.parametrize(
    "text",
    [
        "persistent://a/b/(?=x)",
        "persistent://a/b/(",
        "a/b",
        "persistent://a b/c/d",
        "x" * (PATTERN_LENGTH_MAX + 1),
        r"(.)\1",
    ],
)
def test_pattern_that_can_not_be_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="topicsPattern"):
        topics_pattern(text)
