"""Hand-written codecs of the commands on the data path, SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW, and of the answer to
what each client asks first, PARTITIONED_METADATA_RESPONSE.

They read and write exactly what the generated classes would (held by property tests). Each ``decode_*``
returns None for anything it does not know well, broken bytes included: the caller then decodes with
:mod:`.commands`, which gives the full command or the error. Ids are signed (-1 as it is meant).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from geminga.wire.pulsar.numbers import BATCH_MESSAGES_MAX
from geminga.wire.pulsar.varint import decode_varint, encode_varint, signed64

_HEAD: Final = Struct(">II")

# BaseCommand.type = 1 (varint), and the field of the same number as the type, length-delimited.
SEND_PREFIX: Final = b"\x08\x06\x32"
ACK_PREFIX: Final = b"\x08\x0a\x52"
FLOW_PREFIX: Final = b"\x08\x0b\x5a"
_RECEIPT_PREFIX: Final = b"\x08\x07\x3a"
_MESSAGE_PREFIX: Final = b"\x08\x09\x4a"
_PARTITIONS_PREFIX: Final = b"\x08\x16\xb2\x01"

#: A receipt's frame up to the producer id, and its message id up to the ledger id.
_RECEIPT_HEAD: Final = Struct(">II3sBB")
_RECEIPT_ID_HEAD: Final = Struct("BBB")
#: So many receipts in a row are encoded at once; fewer are faster one by one.
_RECEIPTS_AT_ONCE_MIN: Final = 8
_BYTES: Final = bytes(range(256))

#: Entry ids below take three bytes at most.
_SHORT_ENTRY_ID: Final = 1 << 21

#: Flags of a decoded SEND.
SEND_IS_CHUNK: Final = 1
SEND_IS_MARKER: Final = 2

#: Where the lowest seven bits of the sequence id are in the SENDs of :func:`send_likeness`.
SEND_LOW_BITS_AT: Final = 7

#: producer id, sequence id, highest sequence id (0: not given), number of messages, flags, transaction (most and least
#: significant bits of its id; None: none).
SendFields = tuple[int, int, int, int, int, tuple[int, int] | None]


class AckedId(NamedTuple):
    """One message id of an ACK; ``ack_set`` are the words of what is left in the batch, None for all of it."""

    ledger_id: int
    entry_id: int
    ack_set: tuple[int, ...] | None


class AckFields(NamedTuple):
    """An ACK without transaction, properties or validation error."""

    consumer_id: int
    is_cumulative: bool
    ids: list[AckedId]
    #: The client wants a response under this id.
    request_id: int | None


def decode_send(command: bytes) -> SendFields | None:
    """Fields of a SEND command; None if it has a message id, or is not such a command."""
    size = len(command)
    # Only the short form: a SEND longer than 127 bytes carries something this codec does not know.
    if not 4 < size < 132 or command[3] != size - 4 or command[:3] != SEND_PREFIX:
        return None
    producer_id = sequence_id = -1
    highest_sequence_id = flags = 0
    messages = 1
    transaction: tuple[int, int] | None = None
    position = 4
    try:
        while position < size:
            tag = command[position]
            value = command[position + 1]
            position += 2
            if value > 127:
                value &= 127
                shift = 7
                while True:
                    byte = command[position]
                    position += 1
                    value |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                if value >> 63:
                    return None
            if tag == 0x08:
                producer_id = value
            elif tag == 0x10:
                sequence_id = value
            elif tag == 0x18:
                messages = value
            elif tag == 0x30:
                highest_sequence_id = value
            elif tag == 0x20:
                transaction = (transaction[0] if transaction is not None else 0, value)
            elif tag == 0x28:
                transaction = (value, transaction[1] if transaction is not None else 0)
            elif tag == 0x38:
                flags = flags & ~SEND_IS_CHUNK | (SEND_IS_CHUNK if value else 0)
            elif tag == 0x40:
                flags = flags & ~SEND_IS_MARKER | (SEND_IS_MARKER if value else 0)
            else:
                return None
    except IndexError:
        return None
    if producer_id < 0 or sequence_id < 0 or messages > BATCH_MESSAGES_MAX:
        return None
    return producer_id, sequence_id, highest_sequence_id, messages, flags, transaction


def send_likeness(command: bytes, sequence_id: int) -> tuple[bytes | None, bytes, int]:
    """What SENDs in a row have in common that differ in the lowest seven bits of the sequence id, and in nothing else.

    ``command`` is one that :func:`decode_send` read. Given are the bytes behind the eighth (None: there are no others
    like it), those before it, and what the eighth, which is above 127, is added to for the sequence id.
    """
    if command[4] != 0x08 or command[5] > 127 or command[6] != 0x10 or command[SEND_LOW_BITS_AT] < 128:
        return None, b"", 0
    end = SEND_LOW_BITS_AT + 1
    while command[end] > 127:
        end += 1
    if 0x10 in command[end + 1 :]:
        return None, b"", 0  # perhaps another sequence id, which would count
    low = command[SEND_LOW_BITS_AT]
    return command[SEND_LOW_BITS_AT + 1 :], command[:SEND_LOW_BITS_AT], sequence_id - low


#: How a REDELIVER_UNACKNOWLEDGED_MESSAGES begins.
REDELIVER_PREFIX: Final = b"\x08\x14"


def decode_flow(command: bytes) -> tuple[int, int] | None:
    """Consumer id and permits of a FLOW command."""
    if command[:3] != FLOW_PREFIX:
        return None
    consumer_id = permits = -1
    size = len(command)
    try:
        length, position = decode_varint(command, 3)
        if position + length != size:
            return None
        while position < size:
            tag = command[position]
            value, position = decode_varint(command, position + 1)
            if tag == 0x08:
                consumer_id = value
            elif tag == 0x10:
                permits = value
            else:
                return None
    except (IndexError, ValueError):
        return None
    if consumer_id < 0 or not 0 <= permits <= 0xFFFFFFFF:
        return None
    return consumer_id, permits


def decode_ack(command: bytes) -> AckFields | None:
    """Fields of an ACK command; None if it has a transaction, properties or a validation error."""
    if command[:3] != ACK_PREFIX:
        return None
    consumer_id = ack_type = -1
    request_id: int | None = None
    ids: list[AckedId] = []
    size = len(command)
    try:
        length, position = decode_varint(command, 3)
        if position + length != size:
            return None
        while position < size:
            tag = command[position]
            start = position
            value, position = decode_varint(command, position + 1)
            if tag == 0x1A:
                acked = _decode_acked_id(command, position, position + value)
                if acked is None:
                    return None
                ids.append(acked)
                position += value
                if command[position : position + 1] == b"\x1a":
                    position = _decode_alike(command, start, position, acked, ids)
            elif tag == 0x08:
                consumer_id = value
            elif tag == 0x10:
                ack_type = value
            elif tag == 0x40:
                request_id = value
            else:
                return None
    except (IndexError, ValueError):
        return None
    if consumer_id < 0 or not 0 <= ack_type <= 1 or position != size:
        return None
    return AckFields(consumer_id, ack_type == 1, ids, request_id)


def _decode_acked_id(command: bytes, position: int, end: int) -> AckedId | None:
    if end > len(command):
        return None
    ledger_id = entry_id = -1
    words: list[int] | None = None
    seen = 0
    while position < end:
        tag = command[position]
        value, position = decode_varint(command, position + 1)
        if tag == 0x08:
            ledger_id = value
            seen |= 1
        elif tag == 0x10:
            entry_id = value
            seen |= 2
        elif tag == 0x28:
            if words is None:
                words = []
            words.append(signed64(value))
        elif tag not in (0x18, 0x20, 0x30):  # partition, batch_index, batch_size: known from the entry
            return None
    if position != end or seen != 3:
        return None
    return AckedId(signed64(ledger_id), signed64(entry_id), None if words is None else tuple(words))


def _decode_alike(command: bytes, start: int, end: int, acked: AckedId, ids: list[AckedId]) -> int:
    """Append the ids from ``end`` on that differ from the one before (``start`` to ``end``) in the entry only.

    Clients acknowledge many entries of one ledger at once. The position of the first byte that is not theirs.
    """
    ledger_id, entry_id, words = acked
    if words is not None or not 0 <= entry_id < _SHORT_ENTRY_ID or ledger_id < 0:
        return end
    fields = b"\x08" + encode_varint(ledger_id) + b"\x10"
    body = start + 2  # the length of an id is one byte, or it is not alike
    entry_at = body + len(fields)
    if not command.startswith(fields, body) or command[start + 1] != end - body:
        return end
    found, tail_at = decode_varint(command, entry_at)
    tail = command[tail_at:end]
    if found != entry_id or not _is_known_tail(tail):
        return end
    head, head_size, tail_size, id_size = command[start:entry_at], entry_at - start, end - tail_at, end - start
    new, append = tuple.__new__, ids.append
    while command.startswith(head, end):
        position = end + head_size
        entry_id = command[position]
        position += 1
        if entry_id > 127:
            byte = command[position]
            entry_id = entry_id & 127 | (byte & 127) << 7
            position += 1
            if byte > 127:
                byte = command[position]
                if byte > 127:
                    break
                entry_id |= byte << 14
                position += 1
        if position + tail_size != end + id_size or (tail and not command.startswith(tail, position)):
            break
        append(new(AckedId, (ledger_id, entry_id, None)))
        end += id_size
    return end


def _is_known_tail(tail: bytes) -> bool:
    """Whether it is whole fields that an entry knows by itself: partition, index in the batch, size of the batch."""
    position, size = 0, len(tail)
    while position < size:
        if tail[position] not in (0x18, 0x20, 0x30):
            return False
        position = decode_varint(tail, position + 1)[1]
    return True


def encode_send_receipts(
    producer_id: int,
    ledger_id: int,
    first_entry_id: int,
    entry_step: int,
    sequence_ids: Sequence[tuple[int, int]],
) -> bytes:
    """SEND_RECEIPT frames for consecutive entries of one ledger, as one buffer to write.

    ``sequence_ids`` are pairs (sequence id, highest sequence id); ``entry_step`` is 1, or 0 to give every
    receipt the same id (duplicates and non-persistent topics, which have -1:-1 or 0:0).
    """
    count = len(sequence_ids)
    producer = encode_varint(producer_id)
    ledger = encode_varint(ledger_id)
    if count >= _RECEIPTS_AT_ONCE_MIN and entry_step == 1 and first_entry_id >= 0:
        first, highest = sequence_ids[0]
        if first == highest and sequence_ids == [(each, each) for each in range(first, first + count)]:
            return _receipts_in_a_row(producer, ledger, first_entry_id, first, count)
    out: list[bytes] = []
    head = middle = b""
    entry_id = first_entry_id
    sizes: tuple[int, int, int] = (0, 0, 0)
    for sequence_id, highest_sequence_id in sequence_ids:
        sequence = encode_varint(sequence_id)
        entry = encode_varint(entry_id)
        last = sequence if highest_sequence_id == sequence_id else encode_varint(highest_sequence_id)
        now = (len(sequence), len(entry), len(last))
        if now != sizes:
            sizes = now
            head, middle = _around_receipt_ids(producer, ledger, now)
        out += (head, sequence, middle, entry, b"\x20", last)
        entry_id += entry_step
    return b"".join(out)


def _around_receipt_ids(producer: bytes, ledger: bytes, sizes: tuple[int, int, int]) -> tuple[bytes, bytes]:
    """A receipt's bytes before its sequence id and between that and its entry id; ``sizes`` of sequence id, entry id
    and highest sequence id."""
    id_size = 2 + len(ledger) + sizes[1]
    size = 1 + len(producer) + 1 + sizes[0] + 2 + id_size + 1 + sizes[2]
    # Every size stays below 128 (at most 10 bytes a varint), so each length is one byte.
    head = _RECEIPT_HEAD.pack(size + 8, size + 4, _RECEIPT_PREFIX, size, 0x08) + producer + b"\x10"
    return head, _RECEIPT_ID_HEAD.pack(0x1A, id_size, 0x08) + ledger + b"\x10"


def _receipts_in_a_row(producer: bytes, ledger: bytes, entry_id: int, sequence_id: int, count: int) -> bytes:
    """Receipts whose sequence ids are consecutive too: copies of one, as far as only the lowest bits of both differ."""
    out = bytearray()
    while count:
        alike = min(count, 128 - (sequence_id & 127), 128 - (entry_id & 127))
        sequence, entry = encode_varint(sequence_id), encode_varint(entry_id)
        head, middle = _around_receipt_ids(producer, ledger, (len(sequence), len(entry), len(sequence)))
        receipt = b"".join((head, sequence, middle, entry, b"\x20", sequence))
        size, sequence_at = len(receipt), len(head)
        entry_at = sequence_at + len(sequence) + len(middle)
        highest_at = entry_at + len(entry) + 1
        receipts = bytearray(receipt) * alike
        low = _BYTES[sequence[0] : sequence[0] + alike]
        receipts[sequence_at::size] = low
        receipts[highest_at::size] = low
        receipts[entry_at::size] = _BYTES[entry[0] : entry[0] + alike]
        out += receipts
        sequence_id += alike
        entry_id += alike
        count -= alike
    return bytes(out)


def encode_partitions(request_id: int, count: int) -> bytes:
    """PARTITIONED_METADATA_RESPONSE of success, as one frame."""
    body = b"".join((b"\x08", encode_varint(count), b"\x10", encode_varint(request_id), b"\x18\x00"))
    size = len(_PARTITIONS_PREFIX) + 1 + len(body)  # of the body: one byte
    return b"".join((_HEAD.pack(size + 4, size), _PARTITIONS_PREFIX, _BYTES[len(body) : len(body) + 1], body))


def encode_message_head(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    payload_size_bytes: int,
    redelivery_count: int = 0,
    ack_set: Sequence[int] | None = None,
    consumer_epoch: int | None = None,
) -> bytes:
    """A MESSAGE frame up to its payload: write the entry's bytes (``payload_size_bytes`` of them) behind it."""
    ids = b"\x08" + encode_varint(ledger_id) + b"\x10" + encode_varint(entry_id)
    if partition >= 0:
        ids += b"\x18" + encode_varint(partition)
    body = b"\x08" + encode_varint(consumer_id) + b"\x12" + encode_varint(len(ids)) + ids
    if redelivery_count:
        body += b"\x18" + encode_varint(redelivery_count)
    if ack_set:
        body += b"".join([b"\x20" + encode_varint(word) for word in ack_set])
    if consumer_epoch is not None:
        body += b"\x28" + encode_varint(consumer_epoch)
    command = _MESSAGE_PREFIX + encode_varint(len(body)) + body
    size = len(command)
    return _HEAD.pack(size + 4 + payload_size_bytes, size) + command
