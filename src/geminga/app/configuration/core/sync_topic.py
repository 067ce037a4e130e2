"""The topic by which clusters keep their configuration alike. Pure."""

from __future__ import annotations

from geminga.model.errors import ConfigurationError, InvalidTopicNameError
from geminga.model.topic_name import TopicName

KEY = "configurationMetadataSyncEventTopic"


def require_sync_topic(text: str) -> None:
    """Raise ConfigurationError unless events can be kept in a topic of that name, in their order."""
    expected = "expected a topic that stores its messages and has no partitions, persistent://tenant/namespace/topic"
    try:
        name = TopicName.parse(text)
    except InvalidTopicNameError as error:
        raise ConfigurationError(f"{KEY}={text[:200]}: {error}; {expected}") from error
    if not name.is_persistent or name.is_partition:
        raise ConfigurationError(f"{KEY}={text[:200]}: {expected}")
