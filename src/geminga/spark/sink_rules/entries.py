"""Columns of messages become entries: the heads of many messages are made column by column, then joined.

The bytes are those that :func:`geminga.wire.pulsar.batch.single_message_head` gives, message by message (held by a
property test), at a fraction of its cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from operator import add
from struct import Struct
from typing import Final, TypedDict, cast

from geminga.client.producer_rules.encoded_batch import EncodedBatch
from geminga.client.producer_rules.message import EncodedMessage
from geminga.spark.sink_rules.message_columns import MessageColumns
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch
from geminga.wire.pulsar.metadata import texts_of
from geminga.wire.pulsar.varint import encode_varint

#: What a producer sends: a batch, or a message that travels alone.
Entry = EncodedBatch | EncodedMessage

_UINT32: Final = Struct(">I")
#: Different values whose encoded form a table keeps.
_TABLE_MAX: Final = 8192
#: Entries whose heads are made together.
_ENTRIES_AT_ONCE: Final = 16
_LOW_BITS: Final = 14
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_EVENT_TIME: Final = b"\x28"
_SEQUENCE_ID: Final = b"\x40"
_IS_BASE64: Final = b"\x30\x01"
_IS_NULL: Final = b"\x48\x01"


class _Table(dict[int, bytes]):
    """Number -> tag and varint of the number; bounded."""

    __slots__ = ("_tag",)

    def __init__(self, tag: bytes) -> None:
        super().__init__()
        self._tag = tag

    def __missing__(self, value: int) -> bytes:
        encoded = self._tag + encode_varint(value)
        if len(self) < _TABLE_MAX:
            self[value] = encoded
        return encoded


class _Sizes(dict[int, bytes]):
    """Size of a message's metadata -> the four bytes before it; bounded by the sizes there are."""

    __slots__ = ()

    def __missing__(self, size: int) -> bytes:
        encoded = _UINT32.pack(size)
        if len(self) < _TABLE_MAX:
            self[size] = encoded
        return encoded


_key_heads: Final = _Table(b"\x12")
_payload_sizes: Final = _Table(b"\x18")
_ordering_key_heads: Final = _Table(b"\x3a")
_metadata_sizes: Final = _Sizes()


_event_time_highs: Final = _Table(b"")


@cache
def _low_bits(tag: bytes) -> list[bytes]:
    """A tag, and the lowest 14 bits of a larger number as the first two bytes of its varint."""
    return [tag + bytes((bits & 127 | 128, bits >> 7 | 128)) for bits in range(1 << _LOW_BITS)]


def _times(values: Sequence[int]) -> list[bytes]:
    """The event time fields: neighbours in time share their high bits."""
    if min(values) <= _LOW_MASK:
        return [_EVENT_TIME + encode_varint(value) for value in values]
    low, high = _low_bits(_EVENT_TIME), _event_time_highs
    return [low[value & _LOW_MASK] + high[value >> _LOW_BITS] for value in values]


def _sequence_ids(first: int, count: int) -> list[bytes]:
    """The fields of ``count`` sequence ids from ``first`` on, in blocks that differ in their lowest 14 bits only."""
    low = _low_bits(_SEQUENCE_ID)
    encoded: list[bytes] = []
    value = first
    while len(encoded) < count:
        end = min(first + count, (value | _LOW_MASK) + 1)
        bits = value >> _LOW_BITS
        if bits:
            high = encode_varint(bits)
            start = value & _LOW_MASK
            encoded += [one + high for one in low[start : start + end - value]]
        else:
            encoded += [_SEQUENCE_ID + encode_varint(one) for one in range(value, end)]
        value = end
    return encoded


def _sized(table: _Table, values: Sequence[bytes | None], has_null: bool) -> list[bytes]:
    if has_null:
        return [b"" if value is None else table[len(value)] + value for value in values]
    known = cast("Sequence[bytes]", values)
    return list(map(add, map(table.__getitem__, map(len, known)), known))


def _no_nulls(payloads: Sequence[bytes | None], has_null: bool) -> Sequence[bytes]:
    """A null is an empty payload; whether there is one is known, so that most are not looked at."""
    return [payload or b"" for payload in payloads] if has_null else cast("Sequence[bytes]", payloads)


def message_heads(columns: MessageColumns, first_sequence_id: int) -> list[bytes]:
    """What stands before each payload in a batch: size of the metadata, and SingleMessageMetadata."""
    parts: list[Sequence[bytes]] = []
    if columns.properties is not None:
        parts.append(columns.properties)
    if columns.keys is not None:
        parts.append(_sized(_key_heads, columns.keys, columns.has_null("keys")))
    is_any_null = columns.has_null("payloads")
    parts.append(list(map(_payload_sizes.__getitem__, map(len, _no_nulls(columns.payloads, is_any_null)))))
    if columns.event_times_ms is not None:
        times = columns.event_times_ms
        if columns.has_null("event_times_ms"):
            parts.append([b"" if time is None else _EVENT_TIME + encode_varint(time) for time in times])
        else:
            parts.append(_times(cast("Sequence[int]", times)))
    if columns.base64_keys is not None:
        parts.append([_IS_BASE64 if is_base64 else b"" for is_base64 in columns.base64_keys])
    if columns.ordering_keys is not None:
        parts.append(_sized(_ordering_key_heads, columns.ordering_keys, columns.has_null("ordering_keys")))
    parts.append(_sequence_ids(first_sequence_id, len(columns)))
    if is_any_null:
        parts.append([_IS_NULL if payload is None else b"" for payload in columns.payloads])
    metadata = list(map(b"".join, zip(*parts, strict=True)))
    return list(map(add, map(_metadata_sizes.__getitem__, map(len, metadata)), metadata))


def encode_entries(
    columns: MessageColumns, cuts: Sequence[tuple[int, int]], first_sequence_id: int, alone_above: int = 0
) -> Iterator[Entry]:
    """The entries of rows that are numbered from ``first_sequence_id`` on; ``cuts`` are consecutive.

    ``alone_above``: a payload of more bytes is a message of its own instead of a batch of one, so that it can be
    chunked; 0: none. Some entries are encoded at a time, so that the first leave while the last are still rows.
    """
    is_plain = (
        columns.keys is None
        and columns.event_times_ms is None
        and columns.properties is None
        and columns.ordering_keys is None
    )
    for index in range(0, len(cuts), _ENTRIES_AT_ONCE):
        some = cuts[index : index + _ENTRIES_AT_ONCE]
        first, last = some[0][0], some[-1][1]
        part = columns if len(some) == len(cuts) and last - first == len(columns) else columns.part(first, last)
        heads = []
        if not is_plain or part.has_null("payloads"):
            heads = message_heads(part, first_sequence_id + first)
        for start, end in some:
            if alone_above and end - start == 1 and len(part.payloads[start - first] or b"") > alone_above:
                yield _alone(part, start - first, first_sequence_id + start)
                continue
            yield _entry(part, heads, start - first, end - first, first_sequence_id + start)


def _entry(columns: MessageColumns, heads: list[bytes], start: int, end: int, sequence_id: int) -> Entry:
    """The entry of some of the rows; without ``heads``, rows have nothing but a payload."""
    if columns.deliver_at_ms is not None and columns.deliver_at_ms[start] is not None:
        return _alone(columns, start, sequence_id)
    payloads = columns.payloads[start:end]
    if not heads:
        return EncodedBatch(encode_batch(_no_nulls(payloads, False), sequence_id), end - start, sequence_id)
    pieces: list[bytes] = [b""] * (2 * (end - start))
    pieces[::2] = heads[start:end]
    pieces[1::2] = _no_nulls(payloads, columns.has_null("payloads"))
    return EncodedBatch(b"".join(pieces), end - start, sequence_id, **_keys(columns, start))


class _Keys(TypedDict):
    partition_key: str | None
    is_key_base64: bool
    ordering_key: bytes | None


def _keys(columns: MessageColumns, row: int) -> _Keys:
    key = columns.keys[row] if columns.keys is not None else None
    return {
        "partition_key": None if key is None else key.decode(),
        "is_key_base64": columns.base64_keys is not None and columns.base64_keys[row],
        "ordering_key": columns.ordering_keys[row] if columns.ordering_keys is not None else None,
    }


def _alone(columns: MessageColumns, row: int, sequence_id: int) -> EncodedMessage:
    """A row whose delivery is delayed or that may be chunked: both go by fields that only a message of its own has."""
    payload = columns.payloads[row]
    properties = None
    if columns.properties is not None and columns.properties[row]:
        # The metadata of a single message has one field that must be there.
        decoded = pb.SingleMessageMetadata.FromString(columns.properties[row] + b"\x18\x00")
        properties = texts_of(decoded.properties)
    return EncodedMessage(
        payload or b"",
        properties=properties,
        **_keys(columns, row),
        sequence_id=sequence_id,
        event_time_ms=columns.event_times_ms[row] if columns.event_times_ms is not None else None,
        deliver_at_ms=columns.deliver_at_ms[row] if columns.deliver_at_ms is not None else None,
        is_null=payload is None,
    )


def encode_properties(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The ``properties`` fields of one message, sorted by name: the order of a map is nobody's promise."""
    parts: list[bytes] = []
    for name, value in sorted(pairs):
        pair = b"\x0a%b%b\x12%b%b" % (encode_varint(len(name)), name, encode_varint(len(value)), value)
        parts += (b"\x0a", encode_varint(len(pair)), pair)
    return b"".join(parts)
