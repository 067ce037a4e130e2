"""Entries of the ledger in which Pulsar's brokers keep the newest messages of a compacted topic.

::

    0       4   size of the id (uint32, big endian)
    4       n   the message's id in the topic: a ``MessageIdData``
    4+n     4   size of the rest
    8+n         the entry as it lies in the topic: checksum, metadata, payload

See ``docs/formats/topic-policies.md``.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Names the ledger, among the numbers that are saved with the position of the cursor ``__compaction``.
COMPACTED_LEDGER: Final = "CompactedTopicLedger"
_SIZE: Final = Struct(">I")
_SIZE_BYTES: Final = _SIZE.size
_pack: Final = _SIZE.pack
_unpack_from: Final = _SIZE.unpack_from
_message_id: Final = pb.MessageIdData.FromString


class CompactedEntry(NamedTuple):
    """One message that was kept."""

    #: Where it was in the topic.
    position: Position
    #: As it was there.
    entry: bytes


def encode_compacted(kept: CompactedEntry) -> bytes:
    """As Pulsar's brokers write it."""
    (ledger_id, entry_id), entry = kept
    message_id = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id).SerializeToString()
    return b"".join((_pack(len(message_id)), message_id, _pack(len(entry)), entry))


def decode_compacted(data: bytes) -> CompactedEntry:
    """The inverse; raises CorruptionError."""
    ledger_id, entry_id, entry = compacted_parts(data)
    return CompactedEntry(Position(ledger_id, entry_id), entry)


def compacted_parts(data: bytes) -> tuple[int, int, bytes]:
    """As :func:`decode_compacted`: ledger id, entry id and entry, no value made of them. Raises CorruptionError."""
    try:
        id_end = _SIZE_BYTES + _unpack_from(data)[0]
        start = id_end + _SIZE_BYTES
        end = start + _unpack_from(data, id_end)[0]
    except StructError:
        raise CorruptionError(f"an entry of a compacted topic has {len(data)} bytes, and ends in its sizes") from None
    if len(data) < end:
        raise CorruptionError(f"an entry of a compacted topic has {len(data)} bytes, and says that it has {end}")
    try:
        message_id = _message_id(data[_SIZE_BYTES:id_end])
    except DecodeError as error:
        raise CorruptionError(f"the message id of an entry of a compacted topic can not be read: {error}") from error
    return message_id.ledgerId, message_id.entryId, data[start:end]
