"""What an entry means to compaction: which keys it sets or deletes, and the entry with some of its messages left out.

Rules are Pulsar's (``AbstractTwoPhaseCompactor``, ``RawBatchConverter``), with what its users reported put right: an
empty value deletes its key also unbatched, compressed and encrypted, and one in a batch deletes its own key alone.
What can not be judged stays as it is: an encrypted batch, one that can not be taken apart, damaged metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch
from geminga.wire.pulsar.compression import DecompressionError, compress, decompress
from geminga.wire.pulsar.metadata import encode_entry, message_offset, split_entry
from geminga.wire.pulsar.numbers import batch_size

#: A key as it came: bytes where it is no UTF-8. None: the message has none.
Key = str | bytes | None
#: What a batch may have uncompressed: what claims more is not taken apart.
BATCH_BYTES_MAX: Final = 64 << 20
_UINT32_BYTES: Final = 4
#: Of a message that is left out of its batch: its place stays, so that the others keep their ids.
_LEFT_OUT: Final = pb.SingleMessageMetadata(compacted_out=True, payload_size=0).SerializeToString()


class KeyedMessage(NamedTuple):
    """One message of an entry."""

    key: Key
    #: It deletes its key.
    is_null: bool = False
    #: An earlier compaction left it out.
    is_gone: bool = False


class ChunkPart(NamedTuple):
    """Which part of which message an entry is."""

    #: The same for all parts of one message.
    series: str
    chunk_id: int
    chunks: int


class EntryMessages(NamedTuple):
    """What an entry has: one message, those of a batch, or a part of one."""

    messages: Sequence[KeyedMessage]
    #: It is kept as it is, whatever comes later: nobody can tell its keys.
    is_whole: bool = False
    #: None: its messages are complete.
    chunk: ChunkPart | None = None


#: An entry that says nothing to consumers: a marker.
NOTHING: Final = EntryMessages(())
_NO_KEY: Final = KeyedMessage(None)


def messages_of(entry: bytes) -> EntryMessages:
    """What ``entry``, as it lies in the topic, has; as many messages as :func:`kept_of` counts."""
    metadata, offset = split_entry(entry)
    if metadata is None:
        return EntryMessages((_NO_KEY,), is_whole=True)
    if metadata.HasField("marker_type"):
        return NOTHING
    if metadata.HasField("num_messages_in_batch"):
        singles = None if metadata.encryption_keys else _singles(metadata, entry, offset)
        if singles is None:
            return EntryMessages((_NO_KEY,) * batch_size(metadata, len(entry)), is_whole=True)
        return EntryMessages([_single(one, len(payload)) for one, payload in singles])
    key: Key = metadata.partition_key if metadata.HasField("partition_key") else None
    if metadata.num_chunks_from_msg > 1:
        part = ChunkPart(f"{metadata.uuid}", metadata.chunk_id, metadata.num_chunks_from_msg)
        return EntryMessages((KeyedMessage(key),), chunk=part)
    has_no_size = metadata.HasField("uncompressed_size") and not metadata.uncompressed_size
    return EntryMessages((KeyedMessage(key, metadata.null_value or has_no_size or len(entry) == offset),))


def kept_of(entry: bytes, keeps: Callable[[int], bool]) -> tuple[int, bytes | None]:
    """How many messages an entry has, and the entry with those of them, by index, that ``keeps`` says; None: nothing of
    it."""
    metadata, offset = split_entry(entry)
    if metadata is None or not metadata.HasField("num_messages_in_batch"):
        if metadata is not None and metadata.HasField("marker_type"):
            return 0, None
        return 1, entry if keeps(0) else None
    count = batch_size(metadata, len(entry))
    kept = [keeps(index) for index in range(count)]
    if not any(kept):
        return count, None
    singles = None if all(kept) else _singles(metadata, entry, offset)
    if singles is None:
        return count, entry
    parts: list[bytes] = []
    for is_kept, (single, payload) in zip(kept, singles, strict=True):
        head = single.SerializeToString() if is_kept else _LEFT_OUT
        parts += (len(head).to_bytes(_UINT32_BYTES, "big"), head)
        if is_kept:
            parts.append(payload)
    batch = b"".join(parts)
    metadata.uncompressed_size = len(batch)
    metadata.ClearField("compacted_batch_indexes")
    metadata.compacted_batch_indexes.extend(index for index, is_kept in enumerate(kept) if is_kept)
    # What the broker put in front of it stays there: the index of its last message counts those that were left out.
    packed = encode_entry(metadata, compress(metadata.compression, batch))
    return count, entry[: message_offset(entry)] + packed


def last_index_of(entry: bytes) -> int:
    """The index, in its batch, of the last message of an entry that was not left out; -1: it is no batch."""
    metadata, offset = split_entry(entry)
    if metadata is None or not metadata.HasField("num_messages_in_batch"):
        return -1
    if metadata.compacted_batch_indexes:
        return int(metadata.compacted_batch_indexes[-1])
    singles = None if metadata.encryption_keys else _singles(metadata, entry, offset)
    if singles is None:
        return batch_size(metadata, len(entry)) - 1
    return max((index for index, (single, _) in enumerate(singles) if not single.compacted_out), default=-1)


def _single(metadata: pb.SingleMessageMetadata, size_bytes: int) -> KeyedMessage:
    key: Key = metadata.partition_key if metadata.HasField("partition_key") else None
    return KeyedMessage(key, metadata.null_value or not size_bytes, metadata.compacted_out)


def _singles(
    metadata: pb.MessageMetadata, entry: bytes, offset: int
) -> list[tuple[pb.SingleMessageMetadata, bytes]] | None:
    """The messages of a batch that is not encrypted; None: they can not be told apart."""
    if metadata.uncompressed_size > BATCH_BYTES_MAX:
        return None
    try:
        payload = entry[offset:]
        if metadata.compression:
            payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
        return decode_batch(payload, batch_size(metadata, len(entry)))
    except (ValueError, DecompressionError):
        return None
