"""Entries of the ledger in which Pulsar's brokers keep the newest messages of a compacted topic.

::

    0       4   size of the id (uint32, big endian)
    4       n   the message's id in the topic: a ``MessageIdData``
    4+n     4   size of the rest
    8+n         the entry as it lies in the topic: checksum, metadata, payload

See ``docs/formats/topic-policies.md``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Names the ledger, among the numbers that are saved with the position of the cursor ``__compaction``.
COMPACTED_LEDGER: Final = "CompactedTopicLedger"
_SIZE_BYTES: Final = 4


class CompactedEntry(NamedTuple):
    """One message that was kept."""

    #: Where it was in the topic.
    position: Position
    #: As it was there.
    entry: bytes


def encode_compacted(kept: CompactedEntry) -> bytes:
    """As Pulsar's brokers write it."""
    message_id = pb.MessageIdData(ledgerId=kept.position.ledger_id, entryId=kept.position.entry_id).SerializeToString()
    sizes = (len(part).to_bytes(_SIZE_BYTES, "big") for part in (message_id, kept.entry))
    return b"".join(part for pair in zip(sizes, (message_id, kept.entry), strict=True) for part in pair)


def decode_compacted(data: bytes) -> CompactedEntry:
    """The inverse; raises CorruptionError."""
    id_end = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "big")
    start = id_end + _SIZE_BYTES
    end = start + int.from_bytes(data[id_end:start], "big")
    if len(data) < start or len(data) < end:
        raise CorruptionError(f"an entry of a compacted topic has {len(data)} bytes, and says that it has {end}")
    try:
        message_id = pb.MessageIdData.FromString(data[_SIZE_BYTES:id_end])
    except DecodeError as error:
        raise CorruptionError(f"the message id of an entry of a compacted topic can not be read: {error}") from error
    return CompactedEntry(Position(message_id.ledgerId, message_id.entryId), data[start:end])
