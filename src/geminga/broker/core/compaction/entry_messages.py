"""What an entry means to compaction: which keys it sets or deletes, and the entry with some of its messages left out.

Rules are Pulsar's (``AbstractTwoPhaseCompactor``, ``RawBatchConverter``), with what its users reported put right: an
empty value deletes its key also unbatched, compressed and encrypted, and one in a batch deletes its own key alone.
What can not be judged stays as it is: an encrypted batch, one that can not be taken apart, damaged metadata.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from operator import eq
from typing import Final, NamedTuple

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches.batch_layout import (
    IS_COMPACTED_OUT,
    IS_NULL_VALUE,
    BatchFormatError,
    batch_layout,
)
from geminga.wire.pulsar.compression import DecompressionError, compress, decompress
from geminga.wire.pulsar.metadata import encode_entry, message_offset, split_entry
from geminga.wire.pulsar.numbers import batch_size

#: A key's bytes as they came. None: the message has none.
Key = bytes | None
#: What a batch may have uncompressed: what claims more is not taken apart.
BATCH_BYTES_MAX: Final = 64 << 20
#: Messages of a batch that are looked at between two looks at the clock.
STEP_MESSAGES: Final = 500
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


class ChunkPart(NamedTuple):
    """Which part of which message an entry is."""

    #: The same for all parts of one message.
    series: str
    chunk_id: int
    chunks: int


class EntryMessages(NamedTuple):
    """What an entry has, one of each column for a message: one message, those of a batch, or a part of one."""

    keys: Sequence[Key]
    #: ``DELETES`` and ``IS_GONE``.
    flags: bytes
    #: It is kept as it is, whatever comes later: nobody can tell its keys.
    is_whole: bool = False
    #: None: its messages are complete.
    chunk: ChunkPart | None = None

    def pieces(self) -> Iterator[EntryMessages]:
        """The same in steps of a bounded time."""
        if len(self.keys) <= STEP_MESSAGES:
            yield self
            return
        for start in range(0, len(self.keys), STEP_MESSAGES):
            step = slice(start, start + STEP_MESSAGES)
            yield self._replace(keys=self.keys[step], flags=self.flags[step])


#: Steps of a bounded time, with nothing to say but what they come to.
Steps = Generator[None, None, EntryMessages]
#: An entry that says nothing to consumers: a marker.
NOTHING: Final = EntryMessages((), b"")


def messages_of(entry: bytes) -> Steps:
    """What ``entry``, as it lies in the topic, has; as many messages as :func:`kept_of` counts."""
    metadata, offset = split_entry(entry)
    if metadata is None:
        return _whole(1)
    if metadata.HasField("marker_type"):
        return NOTHING
    if metadata.HasField("num_messages_in_batch"):
        return (yield from _messages_of_batch(metadata, entry, offset))
    key: Key = None
    if metadata.HasField("partition_key"):
        text: str | bytes = metadata.partition_key
        key = text.encode() if isinstance(text, str) else text
    if metadata.num_chunks_from_msg > 1:
        part = ChunkPart(f"{metadata.uuid}", metadata.chunk_id, metadata.num_chunks_from_msg)
        return EntryMessages((key,), _HAS_VALUE, chunk=part)
    has_no_size = metadata.HasField("uncompressed_size") and not metadata.uncompressed_size
    is_null = metadata.null_value or has_no_size or len(entry) == offset
    return EntryMessages((key,), _IS_NULL if is_null else _HAS_VALUE)


def kept_of(entry: bytes, kept_bits: Callable[[int], int]) -> Generator[None, None, tuple[int, bytes | None]]:
    """How many messages an entry has, and the entry with those of them that are kept; None: nothing of it.

    ``kept_bits``: how many messages -> a bit for each that is kept, the lowest for the first.
    """
    metadata, offset = split_entry(entry)
    if metadata is None or not metadata.HasField("num_messages_in_batch"):
        if metadata is not None and metadata.HasField("marker_type"):
            return 0, None
        return 1, entry if kept_bits(1) else None
    count = batch_size(metadata, len(entry))
    bits = kept_bits(count)
    if not bits:
        return count, None
    if bits == (1 << count) - 1:
        return count, entry
    body = _body(metadata, entry, offset)
    places = None if body is None else (yield from _places(body, count))
    if body is None or places is None:
        return count, entry
    # Texts of a number in base two take a time that grows with its length alone.
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
    packed = encode_entry(metadata, compress(metadata.compression, batch))
    return count, entry[: message_offset(entry)] + packed


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


_HAS_VALUE: Final = bytes((0,))
_IS_NULL: Final = bytes((DELETES,))


def _whole(count: int) -> EntryMessages:
    return EntryMessages((None,) * count, bytes(count), is_whole=True)


def _messages_of_batch(metadata: pb.MessageMetadata, entry: bytes, offset: int) -> Steps:
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


def _places(body: bytes, count: int) -> Generator[None, None, _Places | None]:
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
