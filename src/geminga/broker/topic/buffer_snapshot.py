"""The snapshot that a topic's transactions begin from, or the beginning of its log, and what the log says behind it.

A snapshot spares reading: all that it says the log says too. So its loss costs time and nothing else.
"""

from __future__ import annotations

from geminga.broker.topic.parts import PartTopic
from geminga.broker.topic.ports import TRANSACTIONS_PROPERTY
from geminga.managed_ledger import Entry
from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model.errors import StorageError, TopicNotFoundError
from geminga.model.position import EARLIEST
from geminga.model.txn_id import TxnId
from geminga.runtime import get_logger
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.ports import BufferSnapshot, BufferSnapshots
from geminga.wire.pulsar.markers import COMMIT, is_end, transaction_of
from geminga.wire.pulsar.metadata import peek_metadata, text_of

#: Of transactions: ms since the epoch, and a producer.
Beginnings = dict[TxnId, tuple[int, str]]
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
    if found is None and TRANSACTIONS_PROPERTY in topic.ledger.stored.properties:
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


def replayed(state: TransactionBufferState, since: Beginnings, entry: Entry) -> None:
    """What an entry of the log says of transactions, behind those that ``state`` knows."""
    metadata = peek_metadata(entry.data)
    txn_id = transaction_of(metadata) if metadata is not None else None
    if metadata is None or txn_id is None:
        return
    if is_end(metadata):
        if metadata.marker_type == COMMIT:
            state.committed(txn_id)
        else:
            state.was_aborted(txn_id, entry.position)
        since.pop(txn_id, None)
    else:
        state.stored(txn_id, entry.position)
        if txn_id in state.open:
            since.setdefault(txn_id, (metadata.publish_time, text_of(metadata.producer_name)))
