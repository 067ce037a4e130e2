"""The parts that every persistent topic may have. A new feature adds its line here, and nowhere else."""

from __future__ import annotations

from typing import Final

from geminga.broker.topic.deduplication import TopicDeduplication
from geminga.broker.topic.delays import DelayedDelivery
from geminga.broker.topic.message_size import MessageSize
from geminga.broker.topic.parts import TopicPart
from geminga.broker.topic.persistence import LedgerPersistence
from geminga.broker.topic.quota_guard import BacklogQuotas
from geminga.broker.topic.retention import Retention

#: In the order in which they are made and asked. The last one remembers what it admits: nobody refuses
#: behind it.
PARTS: Final[tuple[type[TopicPart], ...]] = (
    Retention,
    LedgerPersistence,
    BacklogQuotas,
    MessageSize,
    DelayedDelivery,
    TopicDeduplication,
)


def with_transactions() -> tuple[type[TopicPart], ...]:
    """The parts where transactions are on. Only a broker that has them loads their code.

    The buffer is the last one: it too remembers what it admits, and hears only of what is stored.
    """
    from geminga.broker.topic.transaction_buffer import TransactionBuffer

    return (*PARTS, TransactionBuffer)
