"""What an entry means to compaction: which keys it sets or deletes, and the entry with some of its messages left out.

Rules are Pulsar's (``AbstractTwoPhaseCompactor``, ``RawBatchConverter``), with what its users reported put right: an
empty value deletes its key also unbatched, compressed and encrypted, and one in a batch deletes its own key alone.
What can not be judged stays as it is: an encrypted batch, one that can not be taken apart, damaged metadata.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from operator import eq
from typing import Final, NamedTuple, TypeVar

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches.batch_layout import (
    IS_COMPACTED_OUT,
    IS_NULL_VALUE,
    BatchFormatError,
    batch_layout,
)
from geminga.wire.pulsar.compression import DecompressionError, compress_in_steps, decompress
from geminga.wire.pulsar.metadata import broker_entry_metadata, encode_entry, message_offset, split_entry
from geminga.wire.pulsar.numbers import batch_size

#: A key's bytes as they came. None: the message has none.
Key = bytes | None
#: What a batch may have uncompressed: what claims more is not taken apart.
BATCH_BYTES_MAX: Final = 64 << 20
#: Messages of a batch that are looked at between two looks at the clock.
STEP_MESSAGES: Final = 250
#: ... and entries of one message.
STEP_ENTRIES: Final = 25
_UINT32_BYTES: Final = 4
_GONE_METADATA: Final = pb.SingleMessageMetadata(compacted_out=True, payload_size=0).SerializeToString()
#: Of a message that is left out of its batch: its place stays, so that the others keep their ids.
_LEFT_OUT: Final = len(_GONE_METADATA).to_bytes(_UINT32_BYTES, "big") + _GONE_METADATA

#: Of a message: its value is empty, so it deletes its key; an earlier compaction left it out.
DELETES: Final = 1
IS_GONE: Final = 2
#: What the flags of a batch's layout say of a message that has a value.
_FLAGS: Final = bytes(
    (DELETES if flag & IS_NULL_VALUE else 0) | (IS_GONE if flag & IS_COMPACTED_OUT else 0) for flag in range(256)
)


#: Tombstones as values; what was left out stays so.
_NO_TOMBSTONES: Final = bytes(flag if flag & IS_GONE else flag & ~DELETES for flag in range(256))


class ChunkPart(NamedTuple):
    """Which part of which message an entry is."""

    #: The same for all parts of one message; as it was sent.
    series: str | bytes
    chunk_id: int
    chunks: int


class EntryMessages(NamedTuple):
    """What an entry has, one of each column for a message: one message, those of a batch, or a part of one. Or what
    several entries have that have one message each."""

    keys: Sequence[Key]
    #: ``DELETES`` and ``IS_GONE``.
    flags: bytes
    #: It is kept as it is, whatever comes later: nobody can tell its keys.
    is_whole: bool = False
    #: None: its messages are complete.
    chunk: ChunkPart | None = None
    entries: int = 1


#: An entry that says nothing to consumers: a marker, or one that they do not get.
NOTHING: Final = EntryMessages((), b"")
T = TypeVar("T")
#: Steps of a bounded time, with nothing to say but what they come to.
Steps = Generator[None, None, T]


def taken_apart(
    entries: Iterable[bytes | None], *, tombstones_from_ms: int | None = None
) -> Iterator[EntryMessages | None]:
    """What entries have, as they lie in the topic, in order. Of an entry that is None: nothing.

    Those of one message come together. None: another step of a bounded time. ``tombstones_from_ms``: an empty value
    that was published then or later is a value as any other, so that late readers learn of the deletion.
    """
    keys: list[Key] = []
    flags = bytearray()
    for entry in entries:
        metadata, offset = (None, 0) if entry is None else split_entry(entry)
        if entry is not None and metadata is not None and _is_single(metadata):
            key, is_null = _single(metadata, len(entry) - offset)
            if is_null and key is not None and _is_young(metadata, entry, tombstones_from_ms):
                is_null = False
            keys.append(key)
            flags.append(DELETES if is_null else 0)
            if len(keys) < STEP_ENTRIES:
                continue
        if keys:
            yield EntryMessages(keys, bytes(flags), entries=len(keys))
            keys, flags = [], bytearray()
        if entry is None:
            yield NOTHING
        elif metadata is None:
            yield _whole(1)
        elif not _is_single(metadata):
            yield from _others(metadata, entry, offset, tombstones_from_ms)
    if keys:
        yield EntryMessages(keys, bytes(flags), entries=len(keys))


def count_of(entry: bytes) -> int:
    """How many messages an entry has."""
    metadata, _ = split_entry(entry)
    if metadata is None or metadata.HasField("num_messages_in_batch"):
        return 1 if metadata is None else batch_size(metadata, len(entry))
    return 0 if metadata.HasField("marker_type") else 1


def repacked(entry: bytes, count: int, bits: int) -> Steps[bytes]:
    """A batch of ``count`` messages with those of them that have a bit, the lowest for the first; as it was, if it can
    not be taken apart."""
    metadata, offset = split_entry(entry)
    body = None if metadata is None else _body(metadata, entry, offset)
    places = None if body is None else (yield from _places(body, count))
    if metadata is None or body is None or places is None:
        return entry
    is_kept = f"{bits:0{count}b}"[::-1]
    stops = places.stops
    batch = b"".join(
        [
            body[start:stop] if kept == "1" else _LEFT_OUT
            for kept, start, stop in zip(is_kept, (0, *stops[:-1]), stops, strict=True)
        ]
    )
    yield
    metadata.uncompressed_size = len(batch)
    metadata.ClearField("compacted_batch_indexes")
    metadata.compacted_batch_indexes.extend([index for index, kept in enumerate(is_kept) if kept == "1"])
    # What the broker put in front of it stays there: the index of its last message counts those that were left out.
    packed = encode_entry(metadata, (yield from compress_in_steps(metadata.compression, batch)))
    return entry[: message_offset(entry)] + packed


def last_index_of(entry: bytes) -> int:
    """The index, in its batch, of the last message of an entry that was not left out; -1: it is no batch."""
    metadata, offset = split_entry(entry)
    if metadata is None or not metadata.HasField("num_messages_in_batch"):
        return -1
    if metadata.compacted_batch_indexes:
        return int(metadata.compacted_batch_indexes[-1])
    steps = _messages_of_batch(metadata, entry, offset)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: EntryMessages = end.value
            return max((index for index, flags in enumerate(found.flags) if not flags & IS_GONE), default=-1)


def _is_single(metadata: pb.MessageMetadata) -> bool:
    """Whether it is one message, and all of it."""
    return not (
        metadata.HasField("num_messages_in_batch")
        or metadata.num_chunks_from_msg > 1
        or metadata.HasField("marker_type")
    )


def _single(metadata: pb.MessageMetadata, size_bytes: int) -> tuple[Key, bool]:
    """Its key, and whether it deletes that."""
    key: Key = None
    if metadata.HasField("partition_key"):
        text: str | bytes = metadata.partition_key
        key = text.encode() if isinstance(text, str) else text
    has_no_size = metadata.HasField("uncompressed_size") and not metadata.uncompressed_size
    return key, metadata.null_value or has_no_size or not size_bytes


def _others(
    metadata: pb.MessageMetadata, entry: bytes, offset: int, tombstones_from_ms: int | None
) -> Iterator[EntryMessages | None]:
    if metadata.HasField("marker_type"):
        yield NOTHING
    elif metadata.HasField("num_messages_in_batch"):
        found = yield from _messages_of_batch(metadata, entry, offset)
        if any(found.flags) and _is_young(metadata, entry, tombstones_from_ms):
            young = found.flags.translate(_NO_TOMBSTONES)
            if None in found.keys:
                young = bytes(
                    old if key is None else new for key, old, new in zip(found.keys, found.flags, young, strict=True)
                )
            yield found._replace(flags=young)
        else:
            yield found
    else:
        part = ChunkPart(metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg)
        # The last part may be empty; it deletes nothing.
        yield EntryMessages((_single(metadata, 1)[0],), bytes(1), chunk=part)


def _is_young(metadata: pb.MessageMetadata, entry: bytes, from_ms: int | None) -> bool:
    """Whether an entry was published at ``from_ms`` or later: by the broker's clock, where it noted that."""
    if from_ms is None:
        return False
    noted = broker_entry_metadata(entry)
    at_ms: int = noted.broker_timestamp if noted is not None and noted.broker_timestamp else metadata.publish_time
    return at_ms >= from_ms


def _whole(count: int) -> EntryMessages:
    return EntryMessages((None,) * count, bytes(count), is_whole=True)


def _messages_of_batch(metadata: pb.MessageMetadata, entry: bytes, offset: int) -> Steps[EntryMessages]:
    count = batch_size(metadata, len(entry))
    body = _body(metadata, entry, offset)
    places = None if body is None else (yield from _places(body, count))
    if places is None:
        return _whole(count)
    return EntryMessages(places.keys, bytes(places.flags))


class _Places:
    """Of the messages of a batch."""

    __slots__ = ("flags", "keys", "stops")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.flags = bytearray()
        #: Behind each payload.
        self.stops = array("I")


def _body(metadata: pb.MessageMetadata, entry: bytes, offset: int) -> bytes | None:
    """The messages of a batch back to back; None: they can not be told apart."""
    if metadata.encryption_keys or metadata.uncompressed_size > BATCH_BYTES_MAX:
        return None
    if not metadata.compression:
        return entry[offset:]
    try:
        return decompress(metadata.compression, entry[offset:], metadata.uncompressed_size)
    except (ValueError, DecompressionError):
        return None


def _places(body: bytes, count: int) -> Steps[_Places | None]:
    """Where the messages are; None: they can not be told apart."""
    found = _Places()
    position = 0
    while count:
        step = min(count, STEP_MESSAGES)
        try:
            layout = batch_layout(body, position, step)
        except BatchFormatError:
            return None
        stops = layout.payload_ends
        if layout.key_starts is None or layout.key_ends is None:
            found.keys += (None,) * step
        else:
            # A key that is there starts behind the size of its message.
            found.keys += [
                body[start:end] if start else None
                for start, end in zip(layout.key_starts, layout.key_ends, strict=True)
            ]
        found.stops.extend(stops)
        flags = layout.flags.translate(_FLAGS)
        if any(map(eq, layout.payload_starts, stops)):
            flags = bytes(
                flag | DELETES if start == stop else flag
                for flag, start, stop in zip(flags, layout.payload_starts, stops, strict=True)
            )
        found.flags += flags
        position = stops[-1]
        count -= step
        yield
    return found
