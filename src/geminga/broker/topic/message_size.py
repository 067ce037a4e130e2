"""The largest entry that one topic takes (``maxMessageSize`` of its policies): a batch counts as a whole.

Parts of a larger message are as large as the broker lets them be, as in Pulsar. What replicators add to a message does
not count: with the same limit in both clusters one that just fits would end the copying of its topic. A topic without
the policy has no such part, and pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar, Final

from geminga.broker.policies.core.limit_rows import MAX_MESSAGE_SIZE
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.publish import PublishBatch, Refusal, is_chunk, runs_without
from geminga.model.errors import NotAllowedError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import SOURCE_POSITION, split_entry

#: In Pulsar's words. The client is told at once, and fails the message.
TOO_LARGE: Final = Refusal(NotAllowedError("Exceed maximum message size"))
#: What a replicator adds: the name of its cluster, and where the message was stored.
ADDED_BYTES_MAX: Final = 512


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
    is_refused = _is_copy_refused if batch.producer.copies_from is not None else _is_refused
    return runs_without(batch, partial(is_refused, limit=limit), TOO_LARGE)


def _is_refused(entry: bytes, limit: int) -> bool:
    return len(entry) > limit and not is_chunk(entry)


def _is_copy_refused(entry: bytes, limit: int) -> bool:
    return _is_refused(entry, limit) and len(entry) - min(_added_bytes(entry), ADDED_BYTES_MAX) > limit


def _added_bytes(entry: bytes) -> int:
    metadata, _ = split_entry(entry)
    if metadata is None:
        return 0
    own = pb.MessageMetadata()
    own.CopyFrom(metadata)
    own.ClearField("replicated_from")
    del own.properties[:]
    own.properties.extend(pair for pair in metadata.properties if pair.key != SOURCE_POSITION)
    return metadata.ByteSize() - own.ByteSize()
