"""Retention of one topic: how long what every subscription has read stays."""

from __future__ import annotations

from typing import ClassVar, Final

from geminga.broker.core.deletion import system_retention
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.model.topic_name import COMPACTION_CURSOR, DEDUP_CURSOR, is_internal_cursor

#: Cursors of the broker's own that keep no table.
OTHERS: Final = (DEDUP_CURSOR, COMPACTION_CURSOR)


class Retention(TopicPart):
    """Tells the ledger. Until it did, nothing is trimmed: the ledger begins without limits."""

    __slots__ = ("_topic",)

    name: ClassVar[str] = "retention"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic

    def policies_changed(self) -> None:
        """Set what the rules want, or what a topic of the broker's own needs."""
        topic = self._topic
        retention_ms, retention_bytes = topic.rules.retention.limits
        if topic.name.is_system:
            own = [name for name in topic.ledger.cursors if is_internal_cursor(name) and name not in OTHERS]
            retention_ms, retention_bytes = system_retention(bool(own))
        topic.ledger.trimmer.set_retention(retention_ms=retention_ms, retention_bytes=retention_bytes)
