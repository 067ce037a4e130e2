"""Entries of a topic as Arrow columns, cut by bytes: no Python object per message.

The payloads of some entries are laid end to end as they came; offsets into that one buffer make an Arrow array whose
every other element is a payload, and Arrow gathers those. Ids are made of a prefix per entry and suffixes that
are remembered per batch size. Only messages with properties, or with keys that are not text, are looked at one by one.
"""

from __future__ import annotations

import base64
from array import array
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geminga.client.core.batch_layout import HAS_KEY, IS_NULL_VALUE, KEY_IS_BASE64
from geminga.spark.columns import VALUE
from geminga.spark.core import metadata_columns as names
from geminga.spark.source.range_read import Piece
from geminga.spark.source.single_metadata import single_fields
from geminga.wire.pulsar.metadata import text_of, texts_of
from geminga.wire.pulsar.varint import encode_varint

Longs = NDArray[np.int64]
_UINT64: Final = (1 << 64) - 1
#: Batch sizes whose message-id suffixes are remembered.
_SUFFIXES_CACHED_MAX: Final = 256
_MICROS: Final = 1000
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def cut_by_bytes(pieces: Sequence[Piece], bytes_max: int) -> Iterator[list[Piece]]:
    """Groups of at most ``bytes_max`` payload bytes, or of one entry."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.entry.size_bytes > bytes_max:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.entry.size_bytes
    if group:
        yield group


class _Indexes:
    """Flat integers that arrive as ranges, arrays, or one at a time."""

    __slots__ = ("_few", "_parts")

    def __init__(self) -> None:
        self._parts: list[Longs] = []
        self._few: list[int] = []

    def add(self, value: int) -> None:
        self._few.append(value)

    def extend(self, values: Sequence[int], base: int, chosen: list[int] | None) -> None:
        if self._few:
            self._parts.append(np.array(self._few, np.int64))
            self._few = []
        self._parts.append((_as_array(values) if chosen is None else _as_array(values)[chosen]) + base)

    def array(self) -> Longs:
        if self._few:
            self._parts.append(np.array(self._few, np.int64))
        return np.concatenate(self._parts) if self._parts else np.zeros(0, np.int64)


def _as_array(values: Sequence[int]) -> Longs:
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    if isinstance(values, list | tuple):
        return np.array(values, np.int64)
    return np.frombuffer(cast("array[int]", values), np.uint32).astype(np.int64)


class Rows:
    """Messages of some entries of one topic, as columns."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """Any number of entries; their bytes are laid end to end here."""
        self._pieces = pieces
        self._counts = [len(piece.entry.order) if piece.indexes is None else len(piece.indexes) for piece in pieces]
        self.count = sum(self._counts)
        starts, ends, key_starts, key_ends = _Indexes(), _Indexes(), _Indexes(), _Indexes()
        flags: list[bytes] = []
        parts: list[bytes] = []
        size = 0
        for piece in pieces:
            entry = piece.entry
            if not entry.is_batch:
                key = entry.key_data if entry.flags[0] & HAS_KEY else b""
                key_starts.add(size)
                size += len(key)
                key_ends.add(size)
                starts.add(size + entry.payload_bounds[0][0])
                size += len(entry.data)
                ends.add(size)
                flags.append(entry.flags)
                parts += (key, entry.data)
                continue
            chosen = _chosen(piece)
            first, last = entry.payload_bounds
            starts.extend(first, size, chosen)
            ends.extend(last, size, chosen)
            keys = entry.key_bounds or (first, first)
            key_starts.extend(keys[0], size, chosen)
            key_ends.extend(keys[1], size, chosen)
            flags.append(entry.flags if chosen is None else bytes([entry.flags[index] for index in chosen]))
            parts.append(entry.data)
            size += len(entry.data)
        self._data = pa.py_buffer(b"".join(parts))
        self._flags = np.frombuffer(b"".join(flags), np.uint8)
        self._starts, self._ends = starts.array(), ends.array()
        self._key_starts, self._key_ends = key_starts.array(), key_ends.array()
        self._single: tuple[Longs, Longs, NDArray[np.bool_]] | None = None

    # ---- payload and key

    def value(self) -> pa.Array:
        """The payloads; null for tombstones."""
        return self._gather(self._starts, self._ends, (self._flags & IS_NULL_VALUE) != 0)

    def key(self) -> pa.Array:
        """Keys as bytes; null where there is none."""
        has_key = (self._flags & HAS_KEY) != 0
        if not has_key.any():
            return pa.nulls(self.count, pa.binary())
        # Where there is no key, nothing at all, in an order that offsets can have.
        starts = np.where(has_key, self._key_starts, self._starts)
        ends = np.where(has_key, self._key_ends, self._starts)
        keys = self._gather(starts, ends, ~has_key)
        encoded = np.flatnonzero(self._flags & KEY_IS_BASE64)
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
        offsets = np.empty(2 * self.count, np.int32)
        offsets[0::2] = starts
        offsets[1::2] = ends
        spans = pa.Array.from_buffers(pa.binary(), 2 * self.count - 1, [None, pa.py_buffer(offsets), self._data])
        indexes = np.arange(0, 2 * self.count, 2, dtype=np.int32)
        if is_null.any():
            return spans.take(pa.array(indexes, mask=is_null))
        return spans.take(pa.array(indexes))

    # ---- what all messages of an entry share

    def publish_time(self) -> pa.Array:
        """When the broker's producer sent them."""
        return _times(self._repeated([piece.entry.metadata.publish_time for piece in self._pieces]))

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
        return np.repeat(np.array(values, np.int64), self._counts)

    def _taken(self, values: Sequence[object], kind: pa.DataType) -> pa.Array:
        which = np.repeat(np.arange(len(values), dtype=np.int32), self._counts)
        return pa.array(values, kind).take(pa.array(which))

    # ---- what each message has of its own

    def message_id(self) -> pa.Array:
        """Ids as every Pulsar client serializes them."""
        blobs: list[bytes] = []
        lengths: list[Longs] = []
        for piece, count in zip(self._pieces, self._counts, strict=True):
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
            suffixes, sizes = _suffixes(entry.batch_size)
            chosen = _chosen(piece)
            if chosen is not None:
                suffixes, sizes = (suffixes[0], *(suffixes[index + 1] for index in chosen)), sizes[chosen]
            if count:
                blobs.append(prefix.join(suffixes))
                lengths.append(sizes + len(prefix))
        return _binary(b"".join(blobs), lengths)

    def event_time(self) -> pa.Array:
        """Event times; null where there is none."""
        times = self._own_fields()[0]
        is_null = times <= 0
        return _times(times, is_null if is_null.any() else None)

    def sequence_id(self) -> pa.Array:
        """Sequence ids of the producer."""
        return pa.array(self._own_fields()[1])

    def properties(self, kind: pa.DataType) -> pa.Array:
        """Properties; an empty map where there are none."""
        has_properties = self._own_fields()[2]
        sizes = np.zeros(self.count + 1, np.int32)
        keys: list[str] = []
        values: list[str] = []
        if has_properties.any():
            at = 0
            for piece, count in zip(self._pieces, self._counts, strict=True):
                indexes = piece.entry.order if piece.indexes is None else piece.indexes
                for row in np.flatnonzero(has_properties[at : at + count]).tolist():
                    entry = piece.entry
                    found = entry.message_metadata(indexes[row]) if entry.is_batch else entry.metadata
                    pairs = texts_of(found.properties)
                    sizes[at + row + 1] = len(pairs)
                    keys += pairs.keys()
                    values += pairs.values()
                at += count
        offsets = pa.array(np.cumsum(sizes, dtype=np.int32))
        return pa.MapArray.from_arrays(offsets, pa.array(keys, pa.string()), pa.array(values, pa.string()), type=kind)

    def _own_fields(self) -> tuple[Longs, Longs, NDArray[np.bool_]]:
        if self._single is None:
            self._single = self._read_own_fields()
        return self._single

    def _read_own_fields(self) -> tuple[Longs, Longs, NDArray[np.bool_]]:
        times = np.full(self.count, -1, np.int64)
        sequence_ids = np.full(self.count, -1, np.int64)
        has_properties = np.zeros(self.count, np.bool_)
        starts, ends = _Indexes(), _Indexes()
        batched: list[Longs] = []
        base = at = 0
        for piece, count in zip(self._pieces, self._counts, strict=True):
            entry = piece.entry
            if entry.is_batch:
                chosen = _chosen(piece)
                first, last = entry.metadata_bounds
                starts.extend(first, base, chosen)
                ends.extend(last, base, chosen)
                batched.append(np.arange(at, at + count))
            else:
                metadata = entry.metadata
                base += len(entry.key_data) if entry.flags[0] & HAS_KEY else 0
                if metadata.HasField("event_time"):
                    times[at] = metadata.event_time
                sequence_ids[at] = metadata.sequence_id
                has_properties[at] = bool(metadata.properties)
            base += len(entry.data)
            at += count
        if batched:
            where = np.concatenate(batched)
            data = np.frombuffer(self._data, np.uint8)
            fields = single_fields(data, starts.array(), ends.array())
            times[where], sequence_ids[where], has_properties[where] = fields
        return times, sequence_ids, has_properties


def _decoded(key: bytes) -> bytes:
    """A key that travelled as base64, or as it is if it did not."""
    try:
        return base64.b64decode(key, validate=True)
    except Base64Error:
        return key


def _chosen(piece: Piece) -> list[int] | None:
    """Indexes of the batch if they are not all of them."""
    if piece.indexes is not None:
        return piece.indexes
    order = piece.entry.order
    return None if len(order) == piece.entry.message_count else list(order)


@lru_cache(maxsize=_SUFFIXES_CACHED_MAX)
def _suffixes(batch_size: int) -> tuple[tuple[bytes, ...], Longs]:
    """(nothing, what each id of a batch of that size ends with), and the lengths of the ends."""
    size = b"\x30" + encode_varint(batch_size)
    ends = [b"\x20" + encode_varint(index) + size for index in range(batch_size)]
    return (b"", *ends), np.array([len(end) for end in ends], np.int64)


def _binary(data: bytes, lengths: Sequence[Longs]) -> pa.Array:
    sizes = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _times(times_ms: Longs, is_null: NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(times_ms * _MICROS, mask=is_null).cast(_TIMESTAMP)


def metadata_column(rows: Rows, name: str, topic: str, kind: pa.DataType) -> pa.Array:
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
        case _:
            return rows.schema_version()


def record_batch(pieces: Sequence[Piece], topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """Raw rows: ``value`` as bytes and the metadata columns of ``schema``."""
    rows = Rows(pieces)
    arrays = [
        rows.value() if field.name == VALUE else metadata_column(rows, field.name, topic, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
