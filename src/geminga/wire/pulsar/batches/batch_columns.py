"""The messages of a batch one by one, as flat arrays of offsets: for batches whose messages differ.

:meth:`Columns.scan_unlike` reads a message's own metadata with the generated class, into one object that is used
again and again, and finds the bytes of key and properties by their place: writers put fields in the order of their
numbers, properties (1), key (2), size of the payload (3). What is written otherwise is read by :func:`scan`, slower.
"""

from __future__ import annotations

from array import array
from struct import Struct
from struct import error as StructError
from typing import Final

from google.protobuf.message import DecodeError

from geminga.wire._generated import pulsar_api_pb2 as pb

#: Bytes in front of a message's metadata that say its size.
SIZE_BYTES: Final = 4

#: Flags of a message.
KEY_IS_BASE64: Final = 1
IS_NULL_VALUE: Final = 2
IS_COMPACTED_OUT: Final = 4
HAS_KEY: Final = 8

_PROPERTY: Final = 0x0A
_PARTITION_KEY: Final = 0x12
PAYLOAD_SIZE: Final = 0x18
#: Boolean fields that matter: tag -> flag.
FLAG_OF_TAG: Final = {0x20: IS_COMPACTED_OUT, 0x30: KEY_IS_BASE64, 0x48: IS_NULL_VALUE}
_UINT32: Final = Struct(">I")


class BatchFormatError(ValueError):
    """The bytes are no batch of that many messages."""


#: End of the metadata, end of the payload, start and end of the key, flags.
Fields = tuple[int, int, int, int, int]


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Its value and where it ends; raises BatchFormatError if that is behind ``end``."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise BatchFormatError(f"a varint without end at {position}")


def scan(data: bytes, start: int) -> Fields:
    """The fields of the message at ``start``, in whatever order they are; raises BatchFormatError."""
    size_bytes = len(data)
    position = start + SIZE_BYTES
    if position > size_bytes:
        raise BatchFormatError(f"a batch ends at {start} before a message")
    end = position + int.from_bytes(data[start:position], "big")
    if end > size_bytes:
        raise BatchFormatError(f"metadata to {end} in a batch of {size_bytes} bytes")
    key_start = key_end = flags = 0
    payload_size = -1
    while position < end:
        tag = data[position]
        position += 1
        if tag > 127:
            tag, position = read_varint(data, position - 1, end)
        kind = tag & 7
        if kind == 0 or kind == 2:
            if position >= end:
                raise BatchFormatError(f"metadata ends behind a tag at {position}")
            value = data[position]
            position += 1
            if value > 127:
                value, position = read_varint(data, position - 1, end)
            if kind == 2:
                if tag == _PARTITION_KEY:
                    key_start = position
                    key_end = position + value
                    flags |= HAS_KEY
                position += value
            elif tag == PAYLOAD_SIZE:
                payload_size = value
            elif tag in FLAG_OF_TAG:
                flag = FLAG_OF_TAG[tag]
                flags = flags | flag if value else flags & ~flag
        elif kind == 1 or kind == 5:
            position += 8 if kind == 1 else 4
        else:
            raise BatchFormatError(f"field {tag >> 3} before {position} has the impossible wire type {kind}")
    if position != end or not 0 <= payload_size <= size_bytes - end:
        raise BatchFormatError(f"metadata at {start + SIZE_BYTES} does not fit: payload of {payload_size} bytes")
    return end, end + payload_size, key_start, key_end, flags


class Columns:
    """The layout of a batch whose messages differ, as it grows."""

    __slots__ = (
        "_single",
        "flags",
        "key_ends",
        "key_starts",
        "metadata_ends",
        "metadata_starts",
        "payload_ends",
        "seen_flags",
    )

    def __init__(self) -> None:
        self.metadata_starts = array("I")
        self.metadata_ends = array("I")
        self.payload_ends = array("I")
        #: 0 where there is no key.
        self.key_starts = array("I")
        self.key_ends = array("I")
        self.flags = bytearray()
        self.seen_flags = 0
        self._single = pb.SingleMessageMetadata()

    def scan_unlike(self, data: bytes, position: int, count: int, least: int) -> tuple[int, int]:
        """Add messages from ``position`` on, at most ``count``: how many, and where the next one begins.

        Behind the first ``least`` it stops at one that is as long as the two before: that may be a run of messages
        alike. Raises BatchFormatError.
        """
        try:
            return self._scan_unlike(data, position, count, least)
        except (DecodeError, IndexError, StructError) as error:
            raise BatchFormatError(f"a batch of {len(data)} bytes whose metadata can not be read") from error

    def _scan_unlike(self, data: bytes, position: int, count: int, least: int) -> tuple[int, int]:
        size_bytes = len(data)
        single = self._single
        parse, has_field = single.ParseFromString, single.HasField
        unpack = _UINT32.unpack_from
        add_start, add_end = self.metadata_starts.append, self.metadata_ends.append
        add_key_start, add_key_end = self.key_starts.append, self.key_ends.append
        add_stop, add_flags = self.payload_ends.append, self.flags.append
        seen = before = scanned = alike = 0
        while scanned < count:
            start = at = position + SIZE_BYTES
            end = start + unpack(data, position)[0]
            parse(data[start:end])
            flags = key_start = key_end = 0
            while data[at] == _PROPERTY and at < end:
                size = data[at + 1]
                if size > 127:
                    size, at = read_varint(data, at + 1, end)
                    at += size
                else:
                    at += 2 + size
            if data[at] == _PARTITION_KEY:
                size = data[at + 1]
                key_start = at + 2
                if size > 127:
                    size, key_start = read_varint(data, at + 1, end)
                at = key_end = key_start + size
                flags = HAS_KEY
            stop = end + single.payload_size
            if data[at] != PAYLOAD_SIZE or at >= end or (not flags and has_field("partition_key")):
                end, stop, key_start, key_end, flags = scan(data, position)
            elif not end <= stop <= size_bytes:
                raise BatchFormatError(f"metadata at {start} does not fit: payload of {single.payload_size} bytes")
            else:
                if single.partition_key_b64_encoded:
                    flags |= KEY_IS_BASE64
                if single.null_value:
                    flags |= IS_NULL_VALUE
                if single.compacted_out:
                    flags |= IS_COMPACTED_OUT
            add_start(start)
            add_end(end)
            add_stop(stop)
            add_key_start(key_start)
            add_key_end(key_end)
            add_flags(flags)
            seen |= flags
            scanned += 1
            length = stop - position
            position = stop
            if length != before:
                before = length
                alike = 0
                continue
            alike += 1
            if alike > 1 and scanned > least:
                break
        self.seen_flags |= seen
        return scanned, position

    def last(self) -> tuple[int, Fields]:
        """Where the message added last begins, and its fields."""
        fields = (
            self.metadata_ends[-1],
            self.payload_ends[-1],
            self.key_starts[-1],
            self.key_ends[-1],
            self.flags[-1],
        )
        return self.metadata_starts[-1] - SIZE_BYTES, fields


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    size = data[at] if at < end else 128
    return (size, at + 1) if size < 128 else read_varint(data, at, end)
