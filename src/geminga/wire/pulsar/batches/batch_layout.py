"""Where payloads and keys lie in the payload of a batch, found without an object per message.

A batch's payload is, for each message: 4 bytes size of the metadata (big endian), ``SingleMessageMetadata``, payload.
:func:`batch_layout` gives offsets into the bytes it was given, as flat sequences (``range`` where every message is
alike, else ``array``), so that nothing is copied.

Speed: messages of one size are often written alike. The *shape* of a message (which bytes are tags and lengths, where
its varints end) is worked out once; how many of the following messages have the same shape is then found by looking at
whole columns of bytes at a time. A batch of 1,000 equal messages costs some thirty columns instead of 1,000 scans.
Messages that differ are read one by one (:mod:`.batch_columns`), for half a microsecond each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.wire.pulsar.batches.batch_columns import (
    FLAG_OF_TAG,
    HAS_KEY,
    IS_COMPACTED_OUT,
    IS_NULL_VALUE,
    KEY_IS_BASE64,
    PAYLOAD_SIZE,
    SIZE_BYTES,
    BatchFormatError,
    Columns,
    Fields,
    read_varint,
    scan,
)

__all__ = [
    "HAS_KEY",
    "IS_COMPACTED_OUT",
    "IS_NULL_VALUE",
    "KEY_IS_BASE64",
    "BatchFormatError",
    "BatchLayout",
    "batch_layout",
]

#: Messages looked at together at first; four times as many after each success.
_WINDOW_MIN: Final = 16
_WINDOW_GROWTH: Final = 4
#: Bytes of a varint that has more to come.
_HIGH: Final = bytes(range(128, 256))
#: Fewer messages than this are scanned one by one.
_RUN_MIN: Final = 4
#: Messages scanned one by one after a shape that did not repeat; twice as many after the next one.
_PATIENCE_MIN: Final = 16


class BatchLayout(NamedTuple):
    """Offsets of each message, in order. Where a message has no key, its key starts and ends at 0."""

    metadata_starts: Sequence[int]
    metadata_ends: Sequence[int]
    payload_starts: Sequence[int]
    payload_ends: Sequence[int]
    #: None if no message has a key.
    key_starts: Sequence[int] | None
    key_ends: Sequence[int] | None
    #: One byte a message.
    flags: bytes
    #: Whether any message was removed by compaction.
    has_compacted_out: bool


class _Shape:
    """One message's form: offsets from its first byte, which is the first of the size."""

    __slots__ = ("fixed", "flags", "key_end", "key_start", "metadata_end", "more", "stop", "stride")

    def __init__(self) -> None:
        #: (offset, byte): tags, lengths, the payload's size, booleans.
        self.fixed: list[tuple[int, bytes]] = []
        #: Offsets of varint bytes with more to come, and of those that end a varint.
        self.more: list[int] = []
        self.stop: list[int] = []
        self.key_start = self.key_end = 0
        self.metadata_end = 0
        #: Bytes of the whole message.
        self.stride = 0
        self.flags = 0


def batch_layout(data: bytes, start: int, count: int) -> BatchLayout:
    """The layout of ``count`` messages from ``start`` in ``data``; raises BatchFormatError."""
    if count < 0:
        raise BatchFormatError(f"a batch of {count} messages")
    columns = Columns()
    position = start
    remaining = count
    if count >= _RUN_MIN:
        first = scan(data, start)
        stride = first[1] - start
        if scan(data, first[1])[1] - first[1] == stride:
            shape = _shape(data, start, first)
            run = 1 + _run(data, first[1], count - 1, shape)
            if run == count:
                return _uniform(start, count, shape)
            _add_run(columns, start, run, shape)
            position += run * stride
            remaining -= run
    patience = 0
    while remaining:
        scanned, position = columns.scan_unlike(data, position, remaining, patience)
        remaining -= scanned
        if remaining < _RUN_MIN:
            patience = remaining
            continue
        shape = _shape(data, *columns.last())
        run = _run(data, position, remaining, shape)
        _add_run(columns, position, run, shape)
        position += run * shape.stride
        remaining -= run
        patience = 0 if run >= _RUN_MIN else max(_PATIENCE_MIN, 2 * patience)
    return _layout(columns)


def _run(data: bytes, position: int, count: int, shape: _Shape) -> int:
    """How many of the next ``count`` messages have the shape; in windows, as most runs are short or endless."""
    run = 0
    window = _WINDOW_MIN
    while run < count:
        wanted = min(window, count - run)
        got = _matching(data, position + run * shape.stride, wanted, shape)
        run += got
        if got < wanted:
            break
        window *= _WINDOW_GROWTH
    return run


def _matching(data: bytes, position: int, count: int, shape: _Shape) -> int:
    """How many of the next ``count`` messages have the shape."""
    stride = shape.stride
    count = min(count, (len(data) - position) // stride)
    for offset, byte in shape.fixed:
        if count <= 0:
            return 0
        column = data[position + offset : position + offset + stride * count : stride]
        if column != byte * count:
            count -= len(column.lstrip(byte))
    for offset in shape.more:
        if count <= 0:
            return 0
        column = data[position + offset : position + offset + stride * count : stride]
        if column.translate(None, _HIGH):
            count = next(index for index, byte in enumerate(column) if byte < 128)
    for offset in shape.stop:
        if count <= 0:
            return 0
        column = data[position + offset : position + offset + stride * count : stride]
        if not column.isascii():
            count = next(index for index, byte in enumerate(column) if byte > 127)
    return max(count, 0)


def _shape(data: bytes, start: int, fields: Fields) -> _Shape:
    """The form of the message at ``start``, which was scanned."""
    end, stop, key_start, key_end, flags = fields
    shape = _Shape()
    shape.flags = flags
    shape.metadata_end = end - start
    shape.stride = stop - start
    shape.key_start = key_start - start
    shape.key_end = key_end - start
    position = start + SIZE_BYTES
    _fix(shape, data, start, start, position)
    while position < end:
        tag_at = position
        tag, position = read_varint(data, position, end)
        kind = tag & 7
        if kind == 1 or kind == 5:
            _fix(shape, data, start, tag_at, position)
            position += 8 if kind == 1 else 4
            continue
        value_at = position
        value, position = read_varint(data, position, end)
        if kind == 0 and tag != PAYLOAD_SIZE and tag not in FLAG_OF_TAG:
            # Its value is free: only where it ends belongs to the shape.
            _fix(shape, data, start, tag_at, value_at)
            shape.more.extend(range(value_at - start, position - start - 1))
            shape.stop.append(position - start - 1)
        else:
            _fix(shape, data, start, tag_at, position)
            if kind == 2:
                position += value
    return shape


def _fix(shape: _Shape, data: bytes, start: int, first: int, end: int) -> None:
    for at in range(first, end):
        shape.fixed.append((at - start, data[at : at + 1]))


def _uniform(position: int, count: int, shape: _Shape) -> BatchLayout:
    stride = shape.stride
    end = position + count * stride

    def column(offset: int) -> range:
        return range(position + offset, end + offset, stride)

    has_key = shape.flags & HAS_KEY
    return BatchLayout(
        column(SIZE_BYTES),
        column(shape.metadata_end),
        column(shape.metadata_end),
        column(stride),
        column(shape.key_start) if has_key else None,
        column(shape.key_end) if has_key else None,
        bytes((shape.flags,)) * count,
        bool(shape.flags & IS_COMPACTED_OUT),
    )


def _add_run(columns: Columns, position: int, count: int, shape: _Shape) -> None:
    stride = shape.stride
    end = position + count * stride
    columns.metadata_starts.extend(range(position + SIZE_BYTES, end + SIZE_BYTES, stride))
    columns.metadata_ends.extend(range(position + shape.metadata_end, end + shape.metadata_end, stride))
    columns.payload_ends.extend(range(position + stride, end + stride, stride))
    if shape.flags & HAS_KEY:
        columns.key_starts.extend(range(position + shape.key_start, end + shape.key_start, stride))
        columns.key_ends.extend(range(position + shape.key_end, end + shape.key_end, stride))
    else:
        columns.key_starts.extend((0,) * count)
        columns.key_ends.extend((0,) * count)
    columns.flags += bytes((shape.flags,)) * count
    columns.seen_flags |= shape.flags


def _layout(columns: Columns) -> BatchLayout:
    has_key = columns.seen_flags & HAS_KEY
    return BatchLayout(
        columns.metadata_starts,
        columns.metadata_ends,
        columns.metadata_ends,
        columns.payload_ends,
        columns.key_starts if has_key else None,
        columns.key_ends if has_key else None,
        bytes(columns.flags),
        bool(columns.seen_flags & IS_COMPACTED_OUT),
    )
