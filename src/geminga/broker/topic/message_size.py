"""The largest entry that one topic takes (``maxMessageSize`` of its policies): a batch counts as a whole.

Parts of a larger message are as large as the broker lets them be, as in Pulsar. A topic without the policy has no such
part, and pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar, Final

from geminga.broker.policies.core.limit_rows import MAX_MESSAGE_SIZE
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.publish import PublishBatch, Refusal, is_chunk, runs_without
from geminga.model.errors import NotAllowedError

#: In Pulsar's words. The client is told at once, and fails the message.
TOO_LARGE: Final = Refusal(NotAllowedError("Exceed maximum message size"))


class MessageSize(TopicPart):
    """See the module."""

    __slots__ = ("_limit", "_topic")

    name: ClassVar[str] = "messageSize"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self._limit = topic.rules[MAX_MESSAGE_SIZE]

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Only a limit below the broker's own, which every frame keeps to, refuses anything."""
        return 0 < topic.rules[MAX_MESSAGE_SIZE] < topic.services.config.message_bytes_max

    def policies_changed(self) -> None:
        """Another limit holds."""
        self._limit = self._topic.rules[MAX_MESSAGE_SIZE]

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """Refuse what is too large, and nothing else of the batch."""
        return runs_by_size(batch, self._limit)


def runs_by_size(batch: PublishBatch, limit: int) -> Iterable[PublishBatch]:
    """The batch in order, taken apart where entries are larger than ``limit`` bytes (0: none is) and so are refused."""
    if not limit or max(map(len, batch.entries)) <= limit:
        return (batch,)
    return runs_without(batch, partial(_is_refused, limit=limit), TOO_LARGE)


def _is_refused(entry: bytes, limit: int) -> bool:
    return len(entry) > limit and not is_chunk(entry)
