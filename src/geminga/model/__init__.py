"""Vocabulary as values: names, positions, errors, limits. Standard library only, no behaviour, no I/O."""

from geminga.model.errors import GemingaError, ServerError, invariant
from geminga.model.position import EARLIEST, LATEST, MessageId, Position
from geminga.model.topic_name import TopicName

__all__ = [
    "EARLIEST",
    "LATEST",
    "GemingaError",
    "MessageId",
    "Position",
    "ServerError",
    "TopicName",
    "invariant",
]
