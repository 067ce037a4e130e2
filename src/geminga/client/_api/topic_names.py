"""Topic names as applications give them."""

from __future__ import annotations

from geminga.client._api.errors import InvalidTopicName
from geminga.client._api.options import check_argument
from geminga.client.rules.option_kinds import TEXT
from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName


def parse_topic(topic: str) -> TopicName:
    """The full name; raises InvalidConfiguration for what is no text, InvalidTopicName."""
    check_argument("topic", topic, TEXT)
    try:
        return TopicName.parse(topic)
    except InvalidTopicNameError as error:
        raise InvalidTopicName(str(error)) from None
