"""The consumer's side of the data path, written by hand: ACK and FLOW out, heads of MESSAGE in.

Encoders write exactly what the generated classes would (held by property tests). The MESSAGE commands one consumer
gets differ in the entry id alone, as a rule: :class:`MessageHeadDecoder` decodes one of them with the generated class,
remembers the bytes around the entry id, and reads only that id from those that are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import ProtocolError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.varint import decode_varint, encode_varint, signed64

_HEAD: Final = Struct(">II")
_ACK_PREFIX: Final = b"\x08\x0a\x52"
_FLOW_PREFIX: Final = b"\x08\x0b\x5a"
#: Seven bits of a varint that goes on.
_LOW: Final = [bytes((low | 128,)) for low in range(128)]
#: Ids of one ACK: more of them go into another command.
ACK_IDS_MAX: Final = 1000

#: ((ledger id, entry id), words of what is left of the batch or None).
AckId = tuple[tuple[int, int], Sequence[int] | None]


def encode_ack(
    consumer_id: int,
    ids: Iterable[AckId],
    *,
    is_cumulative: bool = False,
    request_id: int | None = None,
    properties: Mapping[str, int] | None = None,
) -> bytes:
    """An ACK frame; ``properties``: names and int64 numbers."""
    parts: list[bytes] = [b"\x08", encode_varint(consumer_id), b"\x10\x01" if is_cumulative else b"\x10\x00"]
    ledger_id = high = -2
    ledger = head = tail = b""
    for (ledger_of, entry_id), words in ids:
        if ledger_of != ledger_id:
            ledger_id = ledger_of
            ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
            high = -2
        if words is None and entry_id > 127:
            # Entries that lie close together differ in the low seven bits of their ids, which come first.
            if entry_id >> 7 != high:
                high = entry_id >> 7
                tail = encode_varint(high)
                head = b"\x1a" + encode_varint(len(ledger) + 1 + len(tail)) + ledger
            parts.append(head + _LOW[entry_id & 127] + tail)
            continue
        body = ledger + encode_varint(entry_id)
        if words is not None:
            body += b"".join([b"\x28" + encode_varint(word) for word in words])
        parts.append(b"\x1a" + encode_varint(len(body)))
        parts.append(body)
    for name, number in (properties or {}).items():
        key = name.encode()
        pair = b"\x0a" + encode_varint(len(key)) + key + b"\x10" + encode_varint(number)
        parts.append(b"\x2a" + encode_varint(len(pair)) + pair)
    if request_id is not None:
        parts.append(b"\x40" + encode_varint(request_id))
    fields = b"".join(parts)
    command = _ACK_PREFIX + encode_varint(len(fields)) + fields
    return _HEAD.pack(len(command) + 4, len(command)) + command


def encode_flow(consumer_id: int, permits: int) -> bytes:
    """A FLOW frame."""
    fields = b"\x08" + encode_varint(consumer_id) + b"\x10" + encode_varint(permits)
    command = _FLOW_PREFIX + encode_varint(len(fields)) + fields
    return _HEAD.pack(len(command) + 4, len(command)) + command


class MessageHead(NamedTuple):
    """Fields of a MESSAGE command; ``consumer_epoch`` None: not given."""

    ledger_id: int
    entry_id: int
    partition: int
    redelivery_count: int
    ack_set: Sequence[int]
    consumer_epoch: int | None


class MessageHeadDecoder:
    """Decodes the MESSAGE commands of one consumer."""

    __slots__ = ("_entry_at", "_prefix", "_size", "_suffix", "_width", "template")

    def __init__(self) -> None:
        self._prefix = b"\0"
        self._suffix = b""
        self._entry_at = 0
        self._size = -1
        #: Bytes of the entry id.
        self._width = 0
        #: What was decoded last of those whose entry id can be told apart.
        self.template = MessageHead(-1, -1, -1, 0, (), None)

    def decode(self, command: bytes) -> MessageHead:
        """The fields; raises ProtocolError for what is no MESSAGE."""
        entry_id = self.entry_id(command)
        if entry_id >= 0:
            template = self.template
            return MessageHead(template[0], entry_id, template[2], template[3], template[4], template[5])
        return self._decode(command)

    def entry_id(self, command: bytes) -> int:
        """The entry of a command whose other fields are those of :attr:`template`; -1: :meth:`decode` must tell."""
        if len(command) != self._size or not command.startswith(self._prefix) or not command.endswith(self._suffix):
            return -1
        # Exactly one varint between the two: only its last byte ends one.
        at = self._entry_at
        value = command[at]
        if self._width == 1:
            return value if value < 128 else -1
        if self._width == 2:
            last = command[at + 1]
            return value & 127 | last << 7 if value > 127 >= last else -1
        number = command[at : at + self._width]
        if min(number[:-1]) < 128 or number[-1] > 127:
            return -1
        value = shift = 0
        for byte in number:
            value |= (byte & 127) << shift
            shift += 7
        return value

    def _decode(self, command: bytes) -> MessageHead:
        try:
            message = pb.BaseCommand.FromString(command).message
        except DecodeError as error:
            raise ProtocolError("a MESSAGE command that can not be read") from error
        if not message.IsInitialized():
            raise ProtocolError("a MESSAGE command with required fields missing")
        message_id = message.message_id
        head = MessageHead(
            signed64(message_id.ledgerId),
            signed64(message_id.entryId),
            message_id.partition,
            message.redelivery_count,
            tuple(message.ack_set) or tuple(message_id.ack_set),
            message.consumer_epoch if message.HasField("consumer_epoch") else None,
        )
        self._remember(command, head)
        return head

    def _remember(self, command: bytes, head: MessageHead) -> None:
        self._size = -1
        if head.ack_set or head.entry_id < 0:
            return
        try:
            _, position = decode_varint(command, 3)
            if command[position] != 0x08:
                return
            _, position = decode_varint(command, position + 1)
            if command[position] != 0x12:
                return
            _, position = decode_varint(command, position + 1)
            if command[position] != 0x08:
                return
            _, position = decode_varint(command, position + 1)
            if command[position] != 0x10:
                return
            entry_id, end = decode_varint(command, position + 1)
        except (IndexError, ValueError):
            return
        if entry_id == head.entry_id:
            self._entry_at = position + 1
            self._prefix = command[: position + 1]
            self._suffix = command[end:]
            self._size = len(command)
            self._width = end - position - 1
            self.template = head
