"""A second reader of a topic beside its log: the newest entry of each key, as a compacted view would need it.

Files that it touches: this module, and its line in ``broker/topic/registered_parts.py``. It is a part of the topic
(``broker/topic/parts.py``): it reads the log once when the topic is loaded, and follows what is stored from then on,
without a subscription, so nothing is held back for it and nobody acknowledges for it.
"""

from __future__ import annotations

from typing import ClassVar, Final

from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult
from geminga.model.position import Position
from geminga.wire.pulsar.metadata import peek_metadata

#: Of one read while the topic is loaded.
ENTRIES_AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 1024 * 1024


class NewestByKey(TopicPart):
    """Where the newest entry of each key is; batches, whose keys are inside, and what has no key are passed over."""

    __slots__ = ("_topic", "newest")

    name: ClassVar[str] = "newest-by-key"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self.newest: dict[str, Position] = {}

    async def load(self) -> None:
        """What was stored before; the topic takes nothing new until this returns."""
        log = self._topic.ledger
        position = log.ledgers.first_position
        while entries := await log.reader.read_range(position, ENTRIES_AT_ONCE, BYTES_AT_ONCE):
            for entry in entries:
                self._take(entry.data, entry.position)
            position = log.ledgers.next_position(entries[-1].position)

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """The next entries of a batch are on stable storage; those before them were told of already."""
        for number in range(result.count):
            self._take(batch.entries[result.index + number], Position(result.ledger_id, result.first_entry_id + number))

    def stats(self) -> Stats:
        """How many keys there are."""
        return {"keys": len(self.newest)}

    def _take(self, entry: bytes, position: Position) -> None:
        metadata = peek_metadata(entry)
        if (
            metadata is not None
            and metadata.HasField("partition_key")
            and not metadata.HasField("num_messages_in_batch")
        ):
            self.newest[metadata.partition_key] = position
