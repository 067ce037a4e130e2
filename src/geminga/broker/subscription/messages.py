"""Message ids and the few facts of an entry that subscriptions ask for besides dispatch."""

from __future__ import annotations

from typing import Final

from geminga.model import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import broker_entry_metadata, peek_metadata
from geminga.wire.pulsar.numbers import as_long, batch_size
from geminga.wire.pulsar.varint import signed64

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


def last_batch_index(data: bytes) -> int:
    """Index of the last message in the entry's batch, -1 if it is no batch."""
    metadata = peek_metadata(data)
    if metadata is None or not metadata.HasField("num_messages_in_batch"):
        return -1
    return batch_size(metadata, len(data)) - 1
