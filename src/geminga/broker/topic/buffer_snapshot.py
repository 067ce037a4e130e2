"""The snapshot that a topic's transactions begin from; where there is none to be had, the beginning of its log.

A snapshot spares reading: all that it says the log says too. So its loss costs time and nothing else.
"""

from __future__ import annotations

from geminga.broker.topic.parts import PartTopic
from geminga.broker.topic.ports import TRANSACTIONS_PROPERTY
from geminga.managed_ledger.core.unreadable import is_lost
from geminga.model.errors import StorageError, TopicNotFoundError
from geminga.model.position import EARLIEST
from geminga.runtime import get_logger
from geminga.transaction.ports import BufferSnapshot, BufferSnapshots

_log = get_logger(__name__)


async def find_snapshot(snapshots: BufferSnapshots, topic: PartTopic) -> BufferSnapshot | None:
    """Where to begin; None: the topic never had a transaction. Raises GemingaError, also for what is out of reach."""
    try:
        found = await snapshots.find(str(topic.name))
    except StorageError as error:
        if not is_lost(error):
            raise
        # Whether this topic had any is not known either: another make of broker notes it nowhere else.
        _log.error("%s: the snapshots of transactions are lost, all of it is read: %s", topic.name, error)
        return BufferSnapshot(EARLIEST)
    if found is None and TRANSACTIONS_PROPERTY in topic.ledger.properties:
        _log.warning("%s: the snapshot of its transactions is gone, all of it is read", topic.name)
        return BufferSnapshot(EARLIEST)
    return found


async def remove_snapshot(snapshots: BufferSnapshots, topic: PartTopic) -> None:
    """The topic is deleted. Raises GemingaError."""
    try:
        await snapshots.remove(str(topic.name))
    except TopicNotFoundError:
        pass  # the namespace goes, and its snapshots with it
    except StorageError as error:
        if not is_lost(error):
            raise
        _log.error("%s: the snapshots of transactions are lost, its own is with them: %s", topic.name, error)
