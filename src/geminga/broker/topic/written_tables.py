"""Topics in which brokers keep tables (policies, snapshots): who keeps one is told of what others publish there.

Another make of broker in the cluster writes to such a topic as a producer, wherever it is served. What this broker
stores in it itself comes another way (:mod:`geminga.broker.system_topics.table`), and is not told.
"""

from __future__ import annotations

from typing import ClassVar

from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult
from geminga.model.errors import GemingaError


class WrittenTable(TopicPart):
    """See the module."""

    __slots__ = ("_topic",)

    name: ClassVar[str] = "writtenTable"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Only such topics have it."""
        return topic.name.is_table and topic.services.table_written is not None

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """Somebody else's messages are there."""
        del batch, result
        self._tell()

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """They may be."""
        del batch, error
        self._tell()

    def _tell(self) -> None:
        services = self._topic.services
        if services.table_written is not None:
            services.table_written(self._topic.name)
