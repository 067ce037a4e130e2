"""The parts that every persistent topic may have. A new feature adds its line here, and nowhere else."""

from __future__ import annotations

from typing import Final

from geminga.broker.topic.deduplication import TopicDeduplication
from geminga.broker.topic.delays import DelayedDelivery, LongestDelay
from geminga.broker.topic.message_size import MessageSize
from geminga.broker.topic.offload import Offload
from geminga.broker.topic.parts import TopicPart
from geminga.broker.topic.persistence import LedgerPersistence
from geminga.broker.topic.quota_guard import BacklogQuotas
from geminga.broker.topic.retention import Retention
from geminga.broker.topic.written_tables import WrittenTable

#: In the order in which they are made and asked. The last one remembers what it admits, and is behind all that refuse,
#: also those of a broker with other clusters. The transaction buffer, which comes with a topic's first transaction, is
#: behind it.
PARTS: Final[tuple[type[TopicPart], ...]] = (
    Retention,
    WrittenTable,
    LedgerPersistence,
    BacklogQuotas,
    MessageSize,
    LongestDelay,
    DelayedDelivery,
    Offload,
    TopicDeduplication,
)
