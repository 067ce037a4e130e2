"""Batched payloads and the SEND side of the data path, written by hand: a batch costs what joining its parts costs.

The payload of a batch is its messages back to back, all integers big endian:

==== ============================ =======================================
size what                         of
==== ============================ =======================================
4    size of the metadata         each message
..   ``SingleMessageMetadata``    "
..   payload                      " (``payload_size`` of its metadata)
==== ============================ =======================================

Example: payload ``hi`` with sequence id 5 and nothing else is ``00000004 1802 4005 6869``.

Encoders write exactly what the generated classes would (held by property tests).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from geminga.model.crc32c import crc32c
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import MAGIC_CHECKSUM
from geminga.wire.pulsar.varint import decode_varint, encode_varint, signed64

_UINT32: Final = Struct(">I")
_HEAD: Final = Struct(">II")
_RECEIPT_PREFIX: Final = b"\x08\x07\x3a"
_SEND_PREFIX: Final = b"\x08\x06\x32"

#: The last byte of a varint, and any other, by the seven bits they carry.
_LAST_BYTE: Final = [bytes((bits,)) for bits in range(128)]
_OTHER_BYTE: Final = [bytes((bits | 128,)) for bits in range(128)]
#: Payload sizes whose heads are remembered, per length of the sequence id.
HEADS_CACHED_MAX: Final = 4096


class _Heads(dict[int, bytes]):
    """Payload size -> metadata size and the metadata up to the sequence id's value, which has a fixed length."""

    __slots__ = ("_sequence_size",)

    def __init__(self, sequence_size: int) -> None:
        super().__init__()
        self._sequence_size = sequence_size

    def __missing__(self, payload_size: int) -> bytes:
        size = encode_varint(payload_size)
        head = _UINT32.pack(len(size) + 2 + self._sequence_size) + b"\x18" + size + b"\x40"
        if len(self) < HEADS_CACHED_MAX:
            self[payload_size] = head
        return head


_heads: Final = [_Heads(size) for size in range(11)]


def encode_batch(payloads: Sequence[bytes], first_sequence_id: int, heads: Mapping[int, bytes] | None = None) -> bytes:
    """The payload of a batch whose messages have consecutive sequence ids.

    ``heads``: index -> what stands before that payload instead (:func:`single_message_head`), of messages that have
    more than a payload and a sequence id.
    """
    count = len(payloads)
    parts: list[bytes] = [b""] * (4 * count)
    parts[3::4] = payloads
    position = 0
    while position < count:  # a block: sequence ids that differ in their last seven bits only
        low, high = (first_sequence_id + position) & 127, (first_sequence_id + position) >> 7
        end = min(count, position + 128 - low)
        length = end - position
        suffix = encode_varint(high) if high else b""
        block = payloads[position:end]
        start, stop = 4 * position, 4 * end
        parts[start:stop:4] = map(_heads[1 + len(suffix)].__getitem__, map(len, block))
        parts[start + 1 : stop : 4] = (_OTHER_BYTE if high else _LAST_BYTE)[low : low + length]
        if high:
            parts[start + 2 : stop : 4] = [suffix] * length
        position = end
    if heads:
        for index, head in heads.items():
            parts[4 * index] = head
            parts[4 * index + 1] = parts[4 * index + 2] = b""
    return b"".join(parts)


def single_message_head(
    payload_size: int,
    sequence_id: int,
    *,
    properties: Mapping[str, str] | None = None,
    partition_key: str | None = None,
    is_key_base64: bool = False,
    ordering_key: bytes | None = None,
    event_time_ms: int | None = None,
    is_null: bool = False,
) -> bytes:
    """Metadata size and ``SingleMessageMetadata`` of one message of a batch."""
    if (
        partition_key is not None
        and not (properties or is_key_base64 or is_null)
        and ordering_key is None
        and event_time_ms is None
    ):  # a key and nothing else
        key = partition_key.encode()
        metadata = b"\x12%b%b\x18%b\x40%b" % (
            encode_varint(len(key)),
            key,
            encode_varint(payload_size),
            encode_varint(sequence_id),
        )
        return _UINT32.pack(len(metadata)) + metadata
    parts: list[bytes] = []
    if properties:
        for name, value in properties.items():
            name_bytes, value_bytes = name.encode(), value.encode()
            pair = b"\x0a%b%b\x12%b%b" % (
                encode_varint(len(name_bytes)),
                name_bytes,
                encode_varint(len(value_bytes)),
                value_bytes,
            )
            parts += (b"\x0a", encode_varint(len(pair)), pair)
    if partition_key is not None:
        key = partition_key.encode()
        parts += (b"\x12", encode_varint(len(key)), key)
    parts += (b"\x18", encode_varint(payload_size))
    if event_time_ms is not None:
        parts += (b"\x28", encode_varint(event_time_ms))
    if is_key_base64:
        parts.append(b"\x30\x01")
    if ordering_key is not None:
        parts += (b"\x3a", encode_varint(len(ordering_key)), ordering_key)
    parts += (b"\x40", encode_varint(sequence_id))
    if is_null:
        parts.append(b"\x48\x01")
    metadata = b"".join(parts)
    return _UINT32.pack(len(metadata)) + metadata


def decode_batch(
    payload: bytes, count: int, *, heads_bytes_max: int | None = None
) -> list[tuple[pb.SingleMessageMetadata, bytes]]:
    """The messages of a batch; raises ValueError if the bytes do not hold ``count`` of them.

    ``heads_bytes_max``: more bytes of metadata are not taken apart, which takes many times their size; ValueError.
    """
    messages = []
    position = 0
    left = len(payload) if heads_bytes_max is None else heads_bytes_max
    for _ in range(count):
        start = position + 4
        end = start + int.from_bytes(payload[position:start], "big")
        if end > len(payload) or start > len(payload):
            raise ValueError(f"a batch of {count} messages ends within its metadata")
        left -= end - start
        if left < 0:
            raise ValueError(f"a batch with more than {heads_bytes_max} bytes of metadata")
        try:
            metadata = pb.SingleMessageMetadata.FromString(payload[start:end])
        except DecodeError as error:
            raise ValueError("a batch with metadata that can not be read") from error
        position = end + max(metadata.payload_size, 0)
        if position > len(payload):
            raise ValueError(f"a batch of {count} messages ends within a payload")
        messages.append((metadata, payload[end:position]))
    return messages


def send_txn_fields(most: int, least: int) -> bytes:
    """The fields of a SEND command that say its transaction."""
    return b"\x20" + encode_varint(least) + b"\x28" + encode_varint(most)


def metadata_txn_fields(most: int, least: int) -> bytes:
    """The fields of ``MessageMetadata`` that say the message's transaction."""
    return b"\xb0\x01" + encode_varint(least) + b"\xb8\x01" + encode_varint(most)


#: Field of the command that says that its entry is a marker.
SEND_MARKER: Final = b"\x40\x01"


class SendEncoder:
    """SEND frames of one producer id."""

    __slots__ = ("_prefix",)

    def __init__(self, producer_id: int) -> None:
        self._prefix = b"\x08" + encode_varint(producer_id) + b"\x10"

    def encode(
        self,
        metadata: bytes,
        payload: bytes,
        sequence_id: int,
        *,
        highest_sequence_id: int,
        messages: int = 1,
        is_chunk: bool = False,
        txn_fields: bytes = b"",
    ) -> bytes:
        """A whole frame around encoded ``MessageMetadata`` and the payload behind it.

        ``txn_fields``: of the command: :func:`send_txn_fields`, if it is sent in a transaction, or ``SEND_MARKER``.
        """
        fields = self._prefix + encode_varint(sequence_id)
        if messages != 1:
            fields += b"\x18" + encode_varint(messages)
        if txn_fields:
            fields += txn_fields
        if highest_sequence_id != sequence_id:
            fields += b"\x30" + encode_varint(highest_sequence_id)
        if is_chunk:
            fields += b"\x38\x01"
        command = _SEND_PREFIX + encode_varint(len(fields)) + fields
        rest = _UINT32.pack(len(metadata)) + metadata
        checksum = crc32c(payload, crc32c(rest))
        size = len(command)
        total = size + 10 + len(rest) + len(payload)
        head = _HEAD.pack(total, size) + command + MAGIC_CHECKSUM + _UINT32.pack(checksum) + rest
        return head + payload


def decode_send_receipt(command: bytes) -> tuple[int, int, int, int, int] | None:
    """Producer id, sequence id, highest sequence id, ledger id, entry id (-1:-1 without) of a SEND_RECEIPT.

    None for anything unusual: the caller decodes it with :mod:`.commands` then.
    """
    if command[:3] != _RECEIPT_PREFIX:
        return None
    producer_id = sequence_id = ledger_id = entry_id = -1
    highest_sequence_id = 0
    size = len(command)
    try:
        length, position = decode_varint(command, 3)
        if position + length != size:
            return None
        while position < size:
            tag = command[position]
            value = command[position + 1]
            position += 2
            if value > 127:
                value, position = decode_varint(command, position - 1)
            if tag == 0x08:
                producer_id = value
            elif tag == 0x10:
                sequence_id = value
            elif tag == 0x20:
                highest_sequence_id = value
            elif tag == 0x1A:
                end = position + value
                ledger_id = entry_id = -2
                while position < end:
                    tag = command[position]
                    value = command[position + 1]
                    position += 2
                    if value > 127:
                        value, position = decode_varint(command, position - 1)
                    if tag == 0x08:
                        ledger_id = signed64(value)
                    elif tag == 0x10:
                        entry_id = signed64(value)
                    elif tag not in (0x18, 0x20):
                        return None
                if position != end or ledger_id == -2 or entry_id == -2:
                    return None
            else:
                return None
    except (IndexError, ValueError):
        return None
    if producer_id < 0 or sequence_id < 0 or position != size:
        return None
    return producer_id, sequence_id, highest_sequence_id, ledger_id, entry_id


def message_consumer_id(command: bytes) -> int:
    """The consumer of a MESSAGE command whose first field is the consumer's id, as every broker writes it; else -1."""
    try:
        if command[3] < 128 and command[4] == 0x08 and command[5] < 128:  # nearly always
            return command[5]
        _, position = decode_varint(command, 3)
        return decode_varint(command, position + 1)[0] if command[position] == 0x08 else -1
    except (IndexError, ValueError):
        return -1
