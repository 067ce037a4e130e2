"""Event times, sequence ids and "has properties" of batched messages, found in columns of bytes.

Producers write the metadata of one message like that of the other. Messages whose ``SingleMessageMetadata`` has the
same length are laid into a matrix; its first row says where fields lie, all rows that agree are decoded with it at
once, those that do not form the next matrix. Odd ones are parsed one by one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from geminga.wire._generated import pulsar_api_pb2 as pb

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

#: Groups smaller than this are parsed one by one.
GROUP_MIN: Final = 8
#: Tags of SingleMessageMetadata.
_PROPERTIES: Final = 0x0A
_EVENT_TIME: Final = 0x28
_SEQUENCE_ID: Final = 0x40
#: Bytes of the longest varint.
_VARINT_MAX: Final = 10


class SingleFields(NamedTuple):
    """Of each message; -1 where a number is not given."""

    event_times_ms: Longs
    sequence_ids: Longs
    has_properties: NDArray[np.bool_]


def single_fields(data: Bytes, starts: Longs, ends: Longs) -> SingleFields:
    """The fields of the metadata that lie at ``data[starts[i]:ends[i]]``."""
    count = len(starts)
    found = SingleFields(np.full(count, -1, np.int64), np.full(count, -1, np.int64), np.zeros(count, np.bool_))
    lengths = ends - starts
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order])) + 1
    groups = [group for group in np.split(order, bounds) if len(group)]
    while groups:
        rows = groups.pop()
        if len(rows) < GROUP_MIN:
            _one_by_one(data, starts, ends, rows, found)
            continue
        matrix = data[starts[rows][:, None] + np.arange(lengths[rows[0]])]
        agree = _decode(matrix, rows, found)
        rest = rows[~agree]
        if len(rest) == len(rows):  # the first row is not even readable by itself
            _one_by_one(data, starts, ends, rows, found)
        elif len(rest):
            groups.append(rest)
    return found


def _one_by_one(data: Bytes, starts: Longs, ends: Longs, rows: Longs, found: SingleFields) -> None:
    for row in rows.tolist():
        try:
            metadata = pb.SingleMessageMetadata.FromString(data[starts[row] : ends[row]].tobytes())
        except DecodeError:  # where payload and key lie was found all the same
            continue
        if metadata.HasField("event_time"):
            found.event_times_ms[row] = signed(metadata.event_time)
        if metadata.HasField("sequence_id"):
            found.sequence_ids[row] = signed(metadata.sequence_id)
        found.has_properties[row] = bool(metadata.properties)


def signed(value: int) -> int:
    """An unsigned number of 64 bits as Java reads it."""
    return value - (1 << 64) if value >> 63 else value


def _decode(matrix: Bytes, rows: Longs, found: SingleFields) -> NDArray[np.bool_]:
    """Decode the rows that have the form of the first one; which they are (none, if it can not be read)."""
    width = matrix.shape[1]
    agree = np.ones(len(matrix), np.bool_)
    fields: list[tuple[int, Longs]] = []
    at = 0
    while at < width:
        tag = int(matrix[0, at])
        kind = tag & 7
        agree &= matrix[:, at] == tag
        at += 1
        if tag > 127 or kind not in (0, 2):
            return np.zeros(len(matrix), np.bool_)
        end = at
        while end < width and matrix[0, end] > 127:
            agree &= matrix[:, end] > 127
            end += 1
        if end >= width or end - at >= _VARINT_MAX:
            return np.zeros(len(matrix), np.bool_)
        agree &= matrix[:, end] < 128
        values = np.zeros(len(matrix), np.int64)
        for index, column in enumerate(range(at, end + 1)):
            values |= (matrix[:, column].astype(np.int64) & 127) << (7 * index)
        at = end + 1
        if kind == 2:
            length = int(values[0])
            agree &= values == values[0]
            at += length
        fields.append((tag, values))
    if at != width:
        return np.zeros(len(matrix), np.bool_)
    chosen = rows[agree]
    for tag, values in fields:
        if tag == _EVENT_TIME:
            found.event_times_ms[chosen] = values[agree]
        elif tag == _SEQUENCE_ID:
            found.sequence_ids[chosen] = values[agree]
        elif tag == _PROPERTIES:
            found.has_properties[chosen] = True
    return agree
