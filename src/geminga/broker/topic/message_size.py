"""The largest entry that one topic takes (``maxMessageSize`` of its policies): a batch counts as a whole.

Parts of a larger message are as large as the broker lets them be, as in Pulsar. A topic without the policy has no such
part, and pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import ClassVar, Final

from geminga.broker.policies.core.limit_rows import MAX_MESSAGE_SIZE
from geminga.broker.publishing.stamps import message_count
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.publish import PublishBatch, Refusal
from geminga.model.errors import NotAllowedError
from geminga.wire.pulsar.metadata import peek_metadata

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
    return _runs(batch, limit)


def _runs(batch: PublishBatch, limit: int) -> Iterator[PublishBatch]:
    start = 0
    for is_refused, run_of in groupby(_is_refused(entry, limit) for entry in batch.entries):
        end = start + len(list(run_of))
        entries = batch.entries[start:end]
        if is_refused:
            run = batch.cut(start, end, 0)
            run.refusal = TOO_LARGE
        else:
            run = batch.cut(start, end, sum(map(message_count, entries)))
            # Whoever is asked next must know that there are chunks in it.
            run.chunks = sum(map(_is_chunk, entries)) if batch.chunks else 0
        yield run
        start = end


def _is_refused(entry: bytes, limit: int) -> bool:
    return len(entry) > limit and not _is_chunk(entry)


def _is_chunk(entry: bytes) -> bool:
    metadata = peek_metadata(entry)
    return metadata is not None and metadata.num_chunks_from_msg > 1
