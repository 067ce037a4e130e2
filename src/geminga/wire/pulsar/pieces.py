"""Long commands in pieces, so that they can be read in several turns of the loop.

An ACK or REDELIVER_UNACKNOWLEDGED_MESSAGES may name hundreds of thousands of message ids. Its body is walked field by
field without decoding them, and cut between two of them; each piece, with the fields that are there once in front of
it, is a message of the same type (protobuf: fields of a message may come in any order, and bytes of two messages behind
each other are the merged message).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from geminga.model.errors import ProtocolError
from geminga.wire.pulsar.varint import decode_varint

#: Fields walked over between two steps.
FIELDS_PER_STEP: Final = 5_000
#: What the fields that are there once may have together, bytes.
SINGLE_FIELDS_BYTES_MAX: Final = 16 * 1024
_WIRE_TYPE: Final = 7
_FIXED_BYTES: Final = {1: 8, 5: 4}


class Pieces(NamedTuple):
    """Where a long command can be cut."""

    #: The fields that are there once.
    single: bytes
    #: (start, end) of stretches of the body, in order.
    stretches: list[tuple[int, int]]


def cut(command: bytes, repeated_tag: int, piece_bytes: int) -> Iterator[Pieces | None]:
    """Find the pieces of a command (``BaseCommand`` with a type and one message): None between two steps, then they.

    ``repeated_tag``: the one-byte tag of the field that makes it long. A piece has no more than ``piece_bytes`` of
    them, unless a single one is larger. ProtocolError if it is no such command, or long for another reason.
    """
    stretches: list[tuple[int, int]] = []
    single = bytearray()
    try:
        position = _body_start(command)
        end = len(command)
        start = position
        fields = 0
        while position < end:
            field = position
            tag, position = decode_varint(command, position)
            position = _behind(command, tag, position)
            if tag != repeated_tag:
                if field > start:
                    stretches.append((start, field))
                start = position
                single += command[field:position]
                if len(single) > SINGLE_FIELDS_BYTES_MAX:
                    raise ProtocolError(
                        f"more than {SINGLE_FIELDS_BYTES_MAX} bytes of a command beside its message ids"
                    )
            elif position - start > piece_bytes and field > start:
                stretches.append((start, field))
                start = field
            fields += 1
            if fields % FIELDS_PER_STEP == 0:
                yield None
        if position > start:
            stretches.append((start, position))
        if position != end:
            raise ProtocolError("a field of a command ends behind the command")
    except (IndexError, ValueError) as error:
        raise ProtocolError(f"a command that can not be decoded: {error}") from None
    yield Pieces(bytes(single), stretches)


def _body_start(command: bytes) -> int:
    """Where the only message of a command begins: behind the type, the message's tag and its length."""
    if command[:1] != b"\x08":
        raise ProtocolError("a long command whose type is not first")
    _, position = decode_varint(command, 1)
    tag, position = decode_varint(command, position)
    length, position = decode_varint(command, position)
    if tag & _WIRE_TYPE != 2 or position + length != len(command):
        raise ProtocolError("a long command with more than one message")
    return position


def _behind(command: bytes, tag: int, position: int) -> int:
    """The position behind the value of a field."""
    wire_type = tag & _WIRE_TYPE
    if wire_type == 2:
        length, position = decode_varint(command, position)
        return position + length
    if wire_type == 0:
        return decode_varint(command, position)[1]
    if wire_type not in _FIXED_BYTES:
        raise ProtocolError(f"a field of wire type {wire_type}")
    return position + _FIXED_BYTES[wire_type]
