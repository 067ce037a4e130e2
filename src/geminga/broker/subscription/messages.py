"""Message ids and the few facts of an entry that subscriptions ask for besides dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.model import EARLIEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import broker_entry_metadata, peek_metadata
from geminga.wire.pulsar.numbers import as_long, batch_size
from geminga.wire.pulsar.varint import signed64

if TYPE_CHECKING:
    from geminga.managed_ledger import Entry, ManagedLedger

_UINT64: Final = (1 << 64) - 1


def position_from(message_id: pb.MessageIdData) -> Position:
    """The entry of a message id; ids on the wire are uint64 where Pulsar means int64 (earliest is -1:-1)."""
    return Position(signed64(message_id.ledgerId), signed64(message_id.entryId))


def message_id_data(position: Position, *, partition: int = -1, batch_index: int = -1) -> pb.MessageIdData:
    """A message id for the wire."""
    return pb.MessageIdData(
        ledgerId=position.ledger_id & _UINT64,
        entryId=position.entry_id & _UINT64,
        partition=partition,
        batch_index=batch_index,
    )


def entry_timestamp_ms(data: bytes) -> int:
    """When the entry was published, as it says: the broker's time if noted, else the producer's; 0 if unreadable.

    A client's word: what is deleted, or who is held back, by age asks ``broker.core.expiry``.
    """
    noted = broker_entry_metadata(data)
    if noted is not None and noted.HasField("broker_timestamp"):
        return as_long(noted.broker_timestamp)
    metadata = peek_metadata(data)
    return as_long(metadata.publish_time) if metadata is not None else 0


def is_marker(data: bytes) -> bool:
    """Whether the entry is the broker's own, or unreadable: no consumer gets it."""
    metadata = peek_metadata(data)
    return metadata is None or metadata.marker_type != 0


def entry_index(data: bytes) -> int | None:
    """The index of the entry's last message; None: it was stored without."""
    noted = broker_entry_metadata(data)
    return as_long(noted.index) if noted is not None and noted.HasField("index") else None


async def position_of_index(ledger: ManagedLedger, index: int) -> Position | None:
    """The entry that holds the message of that index; EARLIEST if the oldest one is behind it, None if all are before.

    Entries without an index are older than the numbering. Raises StorageError.
    """
    oldest = await ledger.reader.read_range(ledger.ledgers.first_position, 1, 1)
    noted = entry_index(oldest[0].data) if oldest else None
    if noted is not None and index < noted:
        return EARLIEST

    def is_before(entry: Entry) -> bool:
        noted = entry_index(entry.data)
        return noted is None or noted < index

    before = await ledger.reader.find_last(is_before)
    position = ledger.ledgers.next_position(before if before is not None else EARLIEST)
    return position if position <= ledger.extent.readable_position else None


def last_batch_index(data: bytes) -> int:
    """Index of the last message in the entry's batch, -1 if it is no batch."""
    metadata = peek_metadata(data)
    if metadata is None or not metadata.HasField("num_messages_in_batch"):
        return -1
    return batch_size(metadata, len(data)) - 1
