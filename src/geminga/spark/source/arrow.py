"""Entries of a topic as Arrow columns, cut by bytes: no Python object per message.

The entries of a batch lie in the block that was read into, or are laid end to end; offsets into that one buffer make an
Arrow array whose every other element is a payload, and Arrow gathers those. Ids are made of a prefix per entry and
suffixes that are remembered per batch size. Only messages with properties, or with keys that are not text, are looked
at one by one.
"""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from geminga.spark.rules import metadata_columns as names
from geminga.spark.rules.columns import VALUE
from geminga.spark.source.entry_rows import EntryRows, Piece, block_of
from geminga.spark.source.single_metadata import signed
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches.batch_layout import HAS_KEY, IS_NULL_VALUE, KEY_IS_BASE64
from geminga.wire.pulsar.metadata import text_of, texts_of
from geminga.wire.pulsar.varint import encode_varint

Longs = NDArray[np.int64]
_UINT64: Final = (1 << 64) - 1
#: Batch sizes whose message-id suffixes are remembered.
_SUFFIXES_CACHED_MAX: Final = 256
#: A group with less than this part of its bytes goes on into the next block.
_COPIED_PART: Final = 4
#: Cells of more words are left to Arrow.
_SHORT_WORDS_MAX: Final = 8
_MICROS: Final = 1000
_TIME_MS_MAX: Final = ((1 << 63) - 1) // _MICROS
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def cut_by_bytes(pieces: Sequence[Piece], bytes_max: int) -> Iterator[list[Piece]]:
    """Groups of at most ``bytes_max`` payload bytes, or of one entry; what lies in one block is no group with others.

    Unless there is little of it: a copy costs less than a small group.
    """
    group: list[Piece] = []
    size = 0
    block: bytearray | None = None
    for piece in pieces:
        own = block_of(piece.entry)
        is_other = own is not block and size >= bytes_max // _COPIED_PART
        if group and (is_other or size + piece.entry.size_bytes > bytes_max):
            yield group
            group, size = [], 0
        block = own
        group.append(piece)
        size += piece.entry.size_bytes
    if group:
        yield group


class RowColumns(Protocol):
    """Messages of one topic, column by column; wherever they come from."""

    @property
    def count(self) -> int:
        """Messages."""

    def version_runs(self) -> list[tuple[bytes, int]]:
        """Schema versions of consecutive messages and how many they are; empty for none."""

    def place_of(self, row: int) -> str:
        """Where the message of a row lies: ``ledger:entry:batchIndex``, as in offsets."""

    def value(self) -> pa.Array:
        """The payloads; null for tombstones."""

    def key(self) -> pa.Array:
        """Keys as bytes; null where there is none."""

    def publish_time(self) -> pa.Array:
        """When the broker's producer sent them."""

    def partition(self) -> pa.Array:
        """Index of the partition, -1 for a topic without."""

    def redelivery_count(self) -> pa.Array:
        """How often the entry was delivered before."""

    def producer_name(self) -> pa.Array:
        """Who published them."""

    def schema_version(self) -> pa.Array:
        """Version of the schema they were written with; null for none."""

    def message_id(self) -> pa.Array:
        """Ids as every Pulsar client serializes them."""

    def event_time(self) -> pa.Array:
        """Event times; null where there is none."""

    def sequence_id(self) -> pa.Array:
        """Sequence ids of the producer."""

    def properties(self, kind: pa.DataType) -> pa.Array:
        """Properties; an empty map where there are none."""


class MessageRows:
    """Messages of some entries of one topic, as Arrow columns."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """Any number of entries; their bytes are laid end to end here. Raises ReadError for one that is broken."""
        self._rows = rows = EntryRows(pieces)
        self._pieces = pieces
        self._columns = rows.columns
        self._data = pa.py_buffer(rows.data)
        self.count = rows.count
        #: Messages of each piece.
        self.counts = rows.counts

    def version_runs(self) -> list[tuple[bytes, int]]:
        """Schema versions of consecutive messages and how many they are; empty for none."""
        counted = zip(self._pieces, self.counts.tolist(), strict=True)
        grouped = groupby(counted, key=lambda one: one[0].entry.metadata.schema_version)
        return [(version, sum(count for _, count in run)) for version, run in grouped]

    def place_of(self, row: int) -> str:
        """See :class:`RowColumns`."""
        entry = self._pieces[int(self._rows.piece_of[row])].entry
        return f"{entry.ledger_id}:{entry.entry_id}:{self._rows.index[row]}"

    # ---- payload and key

    def value(self) -> pa.Array:
        """The payloads; null for tombstones."""
        columns = self._columns
        return self._gather(columns.metadata_ends, columns.payload_ends, (columns.flags & IS_NULL_VALUE) != 0)

    def key(self) -> pa.Array:
        """Keys as bytes; null where there is none."""
        flags = self._columns.flags
        has_key = (flags & HAS_KEY) != 0
        if not has_key.any():
            return pa.nulls(self.count, pa.binary())
        keys = self._gathered_short(self._columns.key_starts, self._columns.key_ends, has_key)
        encoded = np.flatnonzero(flags & KEY_IS_BASE64)
        if len(encoded):
            listed = keys.to_pylist()
            for index in encoded.tolist():
                if listed[index] is not None:
                    listed[index] = _decoded(listed[index])
            keys = pa.array(listed, pa.binary())
        return keys

    def _gather(self, starts: Longs, ends: Longs, is_null: NDArray[np.bool_]) -> pa.Array:
        if not self.count:
            return pa.array([], pa.binary())
        count = self.count
        # Span 2i is message i's, the spans between are what lies between; the last one is empty.
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0:-1:2] = starts
        offsets[1::2] = ends
        offsets[-1] = offsets[-2]
        spans = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), self._data])
        # Arrow makes room for as many bytes as so many spans have on average, and moves everything if that is too
        # little: the empty one is taken as often again, and left out.
        indexes = np.full(2 * count, 2 * count - 1, np.int32)
        indexes[:count] = np.arange(0, 2 * count, 2, dtype=np.int32)
        mask = None
        if is_null.any():
            mask = np.concatenate((is_null, np.zeros(count, np.bool_)))
        return spans.take(pa.array(indexes, mask=mask))[:count]

    def _gathered_short(self, starts: Longs, ends: Longs, is_valid: NDArray[np.bool_]) -> pa.Array:
        """The same of cells that are short as a rule: each is read as a few words of eight bytes, and cut."""
        sizes = np.where(is_valid, ends - starts, 0)
        words = -(-int(sizes.max()) // 8)
        if not 0 < words <= _SHORT_WORDS_MAX:
            return self._gather(starts, ends, ~is_valid)
        data = np.frombuffer(self._rows.data, np.uint8)
        # A word from each place on; behind the last entry there is padding.
        from_place = np.ndarray((len(data) - 7,), np.uint64, data, strides=(1,))
        cells = np.empty((self.count, words), np.uint64)
        for word in range(words):
            cells[:, word] = from_place[starts + 8 * word]
        width = 8 * words
        found = cells.view(np.uint8).reshape(self.count, width)[np.arange(width) < sizes[:, None]]
        return binary_array(found, (sizes,), is_valid)

    # ---- what all messages of an entry share

    def publish_time(self) -> pa.Array:
        """When the broker's producer sent them."""
        return _times(self._repeated([signed(piece.entry.metadata.publish_time) for piece in self._pieces]))

    def partition(self) -> pa.Array:
        """Index of the partition, -1 for a topic without."""
        return pa.array(self._repeated([piece.entry.partition for piece in self._pieces]).astype(np.int32))

    def redelivery_count(self) -> pa.Array:
        """How often the entry was delivered before."""
        return pa.array(self._repeated([piece.entry.redelivery_count for piece in self._pieces]).astype(np.int32))

    def producer_name(self) -> pa.Array:
        """Who published them."""
        return self._taken([text_of(piece.entry.metadata.producer_name) for piece in self._pieces], pa.string())

    def schema_version(self) -> pa.Array:
        """Version of the schema they were written with; null for none."""
        return self._taken([piece.entry.metadata.schema_version or None for piece in self._pieces], pa.binary())

    def _repeated(self, values: list[int]) -> Longs:
        return np.repeat(np.array(values, np.int64), self.counts)

    def _taken(self, values: Sequence[object], kind: pa.DataType) -> pa.Array:
        which = np.repeat(np.arange(len(values), dtype=np.int32), self.counts)
        return pa.array(values, kind).take(pa.array(which))

    # ---- what each message has of its own

    def message_id(self) -> pa.Array:
        """Ids as every Pulsar client serializes them."""
        blobs: list[bytes] = []
        lengths: list[Longs] = []
        bounds = np.cumsum(self.counts)
        for piece, behind, count in zip(self._pieces, bounds.tolist(), self.counts.tolist(), strict=True):
            entry = piece.entry
            prefix = (
                b"\x08" + encode_varint(entry.ledger_id & _UINT64) + b"\x10" + encode_varint(entry.entry_id & _UINT64)
            )
            if entry.partition >= 0:
                prefix += b"\x18" + encode_varint(entry.partition)
            if not entry.is_batch:
                if entry.first_chunk is not None:
                    prefix = entry.message_id(0).serialize()
                blobs.append(prefix)
                lengths.append(np.array([len(prefix)], np.int64))
                continue
            suffixes, sizes = id_suffixes(entry.batch_size)
            if count < entry.batch_size:
                chosen = self._rows.index[behind - count : behind]
                suffixes, sizes = (suffixes[0], *(suffixes[index + 1] for index in chosen.tolist())), sizes[chosen]
            if count:
                blobs.append(prefix.join(suffixes))
                lengths.append(sizes + len(prefix))
        return binary_array(b"".join(blobs), lengths)

    def event_time(self) -> pa.Array:
        """Event times; null where there is none."""
        times = self._columns.event_times_ms
        return _times(times, times <= 0)

    def sequence_id(self) -> pa.Array:
        """Sequence ids of the producer."""
        return pa.array(self._columns.sequence_ids)

    def properties(self, kind: pa.DataType) -> pa.Array:
        """Properties; an empty map where there are none."""
        columns, rows = self._columns, self._rows
        sizes = np.zeros(self.count + 1, np.int32)
        keys: list[str] = []
        values: list[str] = []
        chosen = np.flatnonzero(columns.has_properties)
        of_piece = rows.piece_of[chosen].tolist()
        starts, ends = columns.metadata_starts[chosen].tolist(), columns.metadata_ends[chosen].tolist()
        for row, piece, start, end in zip(chosen.tolist(), of_piece, starts, ends, strict=True):
            entry = self._pieces[piece].entry
            found = _own_metadata(bytes(rows.data[start:end])) if entry.is_batch else entry.metadata
            pairs = texts_of(found.properties)
            sizes[row + 1] = len(pairs)
            keys += pairs.keys()
            values += pairs.values()
        offsets = pa.array(np.cumsum(sizes, dtype=np.int32))
        return pa.MapArray.from_arrays(offsets, pa.array(keys, pa.string()), pa.array(values, pa.string()), type=kind)


def _own_metadata(encoded: bytes) -> pb.SingleMessageMetadata:
    try:
        return pb.SingleMessageMetadata.FromString(encoded)
    except DecodeError:  # where payload and key lie was found all the same
        return pb.SingleMessageMetadata(payload_size=0)


def _decoded(key: bytes) -> bytes:
    """A key that travelled as base64, or as it is if it did not."""
    try:
        return base64.b64decode(key, validate=True)
    except Base64Error:
        return key


@lru_cache(maxsize=_SUFFIXES_CACHED_MAX)
def id_suffixes(batch_size: int) -> tuple[tuple[bytes, ...], Longs]:
    """(nothing, what each id of a batch of that size ends with), and the lengths of the ends."""
    size = b"\x30" + encode_varint(batch_size)
    ends = [b"\x20" + encode_varint(index) + size for index in range(batch_size)]
    return (b"", *ends), np.array([len(end) for end in ends], np.int64)


def binary_array(
    data: bytes | NDArray[np.uint8], lengths: Sequence[Longs], is_valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Cells that lie end to end, those that are not valid empty."""
    sizes = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    valid = None
    if is_valid is not None and not is_valid.all():
        valid = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(sizes), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _times(times_ms: Longs, is_null: NDArray[np.bool_] | None = None) -> pa.Array:
    """Times that microseconds can say; a client may send any number."""
    if len(times_ms) and (times_ms.max() > _TIME_MS_MAX or times_ms.min() < -_TIME_MS_MAX):
        is_beyond = (times_ms > _TIME_MS_MAX) | (times_ms < -_TIME_MS_MAX)
        is_null = is_beyond if is_null is None else is_null | is_beyond
        times_ms = np.where(is_beyond, 0, times_ms)
    mask = is_null if is_null is not None and is_null.any() else None
    return pa.array(times_ms * _MICROS, mask=mask).cast(_TIMESTAMP)


def metadata_column(rows: RowColumns, name: str, topic: str, kind: pa.DataType) -> pa.Array:
    """One of the metadata columns."""
    match name:
        case names.KEY:
            return rows.key()
        case names.TOPIC:
            return pa.repeat(pa.scalar(topic, pa.string()), rows.count)
        case names.MESSAGE_ID:
            return rows.message_id()
        case names.PUBLISH_TIME:
            return rows.publish_time()
        case names.EVENT_TIME:
            return rows.event_time()
        case names.PROPERTIES:
            return rows.properties(kind)
        case names.PARTITION:
            return rows.partition()
        case names.REDELIVERY_COUNT:
            return rows.redelivery_count()
        case names.PRODUCER_NAME:
            return rows.producer_name()
        case names.SEQUENCE_ID:
            return rows.sequence_id()
        case names.INVALID:
            return pa.nulls(rows.count, kind)
        case _:
            return rows.schema_version()


def record_batch(rows: RowColumns, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """Raw rows: ``value`` as bytes and the metadata columns of ``schema``."""
    arrays = [
        rows.value() if field.name == VALUE else metadata_column(rows, field.name, topic, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
