"""Patterns of topics that come over a socket: evaluated inside the broker, so in linear time alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from geminga.broker.websocket.core.parameters import ParameterError
from geminga.client.consumer_rules.topic_pattern import TopicPattern
from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName

#: Characters of a pattern.
PATTERN_LENGTH_MAX: Final = 500


class TopicsPattern(NamedTuple):
    """A pattern that can be evaluated."""

    compiled: re.Pattern[str]
    #: A topic of its namespace that there can not be, so that nobody was granted anything at it: what may be done to
    #: it, may be done to all there.
    any_topic: TopicName


def topics_pattern(text: str) -> TopicsPattern:
    """Raises ParameterError."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise ParameterError(
            f"Invalid query params: topicsPattern has {len(text)} characters: expected at most {PATTERN_LENGTH_MAX}"
        )
    try:
        found = TopicPattern.parse(text, must_be_linear=True)
        named = TopicName.parse(f"persistent://{found.namespace}/any")
        return TopicsPattern(re.compile(text), replace(named, local_name=""))
    except (InvalidTopicNameError, re.error, RecursionError, OverflowError) as error:
        raise ParameterError(f"Invalid query params: topicsPattern: {error}") from None
