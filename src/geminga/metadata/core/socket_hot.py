"""The messages of a metadata socket that come by the thousand, to bytes and back in a few steps. Pure.

Gets, puts and their answers, and what watches tell: each topic that is loaded takes ten of them. Whatever is not of the
plainest kind, or not well-formed, is None here, and goes the long way of :mod:`.socket_codec`, which knows what is
wrong with it; what both of them take is the same.
"""

from __future__ import annotations

import struct
from typing import Final

from geminga.metadata.core.socket_messages import (
    FromClient,
    FromServer,
    StoreOperation,
    StoreRequest,
    StoreResponse,
)
from geminga.metadata.ports import ChangeKind, Node, Notification, PutResult, Stat
from geminga.model.limits import METADATA_VALUE_BYTES_MAX

#: Bytes of a text.
TEXT_BYTES_MAX: Final = 0xFFFF
DONE: Final = 144
NODE: Final = 145
WRITTEN: Final = 148
NOTIFICATION: Final = 160

EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
EXPECTED: Final = 4
IS_EPHEMERAL: Final = 1
IS_OWN: Final = 2
CHANGES: Final = (ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.DELETED, ChangeKind.CHILDREN_CHANGED)

#: Requests that have nothing but a path.
_PLAIN: Final = {
    int(operation): operation
    for operation in (StoreOperation.GET, StoreOperation.EXISTS, StoreOperation.CHILDREN, StoreOperation.NEXT_SEQUENCE)
}
_PUT_FLAGS: Final = EPHEMERAL | SEQUENTIAL | EXPECTED
#: Looked up once: in Python 3.11 each look at a member of an enum is a call.
_PUT: Final = StoreOperation.PUT

# Whole frames up to the first field of any length; a frame's size does not count itself.
_PLAIN_FRAME: Final = struct.Struct(">IBIH")
_PUT_FRAME: Final = struct.Struct(">IBIBqH")
_DONE_FRAME: Final = struct.Struct(">IBI")
_NODE_FRAME: Final = struct.Struct(">IBIqqqBI")
_WRITTEN_FRAME: Final = struct.Struct(">IBIqqqBH")
_NOTIFICATION_FRAME: Final = struct.Struct(">IBBH")
_SIZE_BYTES: Final = 4

# What follows the kind.
_PLAIN_FIELDS: Final = struct.Struct(">IH")
_PUT_FIELDS: Final = struct.Struct(">IBqH")
_DONE_FIELDS: Final = struct.Struct(">I")
_NODE_FIELDS: Final = struct.Struct(">IqqqBI")
_WRITTEN_FIELDS: Final = struct.Struct(">IqqqBH")
_NOTIFICATION_FIELDS: Final = struct.Struct(">BH")
_U32: Final = struct.Struct(">I")


def encode_request(request: StoreRequest, request_id: int) -> bytes | None:
    """The frame of a get or a put, under this number; None: it goes the long way."""
    path = _text(request.path)
    if path is None:
        return None
    operation, size = request.operation, len(path)
    if operation is _PUT:
        value, expected = request.value, request.expected_version
        if len(value) > METADATA_VALUE_BYTES_MAX:
            return None
        flags = request.ephemeral * EPHEMERAL | request.sequential * SEQUENTIAL
        if expected is not None:
            flags |= EXPECTED
        frame_bytes = _PUT_FRAME.size - _SIZE_BYTES + size + _U32.size + len(value)
        head = _PUT_FRAME.pack(frame_bytes, operation, request_id, flags, expected or 0, size)
        return b"".join((head, path, _U32.pack(len(value)), value))
    if operation not in _PLAIN:
        return None
    return _PLAIN_FRAME.pack(_PLAIN_FRAME.size - _SIZE_BYTES + size, operation, request_id, size) + path


def encode_answer(answer: StoreResponse) -> bytes | None:
    """The frame of what was got or put; None: it goes the long way."""
    number, result = answer
    if result is None:
        return _DONE_FRAME.pack(_DONE_FRAME.size - _SIZE_BYTES, DONE, number)
    if type(result) is Node:
        (value, stat), frame = result, _NODE_FRAME
        if len(value) > METADATA_VALUE_BYTES_MAX:
            return None
        kind, last = NODE, value
    elif type(result) is PutResult:
        (text, stat), frame = result, _WRITTEN_FRAME
        path = _text(text)
        if path is None:
            return None
        kind, last = WRITTEN, path
    else:
        return None
    version, created_ms, modified_ms, is_ephemeral, is_own = stat
    flags = is_ephemeral * IS_EPHEMERAL | is_own * IS_OWN
    frame_bytes = frame.size - _SIZE_BYTES + len(last)
    return frame.pack(frame_bytes, kind, number, version, created_ms, modified_ms, flags, len(last)) + last


def encode_notification(notification: Notification) -> bytes | None:
    """The frame of what a watch tells; None: it goes the long way."""
    path = _text(notification.path)
    if path is None:
        return None
    change, size = 1 + CHANGES.index(notification.kind), len(path)
    return _NOTIFICATION_FRAME.pack(_NOTIFICATION_FRAME.size - _SIZE_BYTES + size, NOTIFICATION, change, size) + path


def decode_from_client(frame: bytes) -> FromClient | None:
    """A get or a put, out of a frame without its size; None: it goes the long way."""
    if not frame:
        return None
    operation = _PLAIN.get(frame[0])
    try:
        if operation is not None:
            request_id, size = _PLAIN_FIELDS.unpack_from(frame, 1)
            path = frame[1 + _PLAIN_FIELDS.size :]
            return StoreRequest(request_id, operation, path.decode()) if len(path) == size else None
        if frame[0] != _PUT:
            return None
        request_id, flags, number, size = _PUT_FIELDS.unpack_from(frame, 1)
        end = 1 + _PUT_FIELDS.size + size
        (value_bytes,) = _U32.unpack_from(frame, end)
        value = frame[end + _U32.size :]
        if flags & ~_PUT_FLAGS or len(value) != value_bytes:
            return None
        return StoreRequest(
            request_id,
            _PUT,
            frame[1 + _PUT_FIELDS.size : end].decode(),
            value,
            number if flags & EXPECTED else None,
            flags & EPHEMERAL != 0,
            flags & SEQUENTIAL != 0,
        )
    except (struct.error, UnicodeDecodeError):
        return None


def decode_from_server(frame: bytes) -> FromServer | None:
    """What was got or put, or what a watch tells, out of a frame without its size; None: it goes the long way."""
    if not frame:
        return None
    kind = frame[0]
    try:
        if kind in (NODE, WRITTEN):
            fields = _NODE_FIELDS if kind == NODE else _WRITTEN_FIELDS
            number, version, created_ms, modified_ms, flags, size = fields.unpack_from(frame, 1)
            last = frame[1 + fields.size :]
            if len(last) != size:
                return None
            stat = Stat(version, created_ms, modified_ms, flags & IS_EPHEMERAL != 0, flags & IS_OWN != 0)
            return StoreResponse(number, Node(last, stat) if kind == NODE else PutResult(last.decode(), stat))
        if kind == DONE:
            return StoreResponse(_DONE_FIELDS.unpack(frame[1:])[0], None)
        if kind == NOTIFICATION:
            change, size = _NOTIFICATION_FIELDS.unpack_from(frame, 1)
            path = frame[1 + _NOTIFICATION_FIELDS.size :]
            if len(path) == size and 1 <= change <= len(CHANGES):
                return Notification(CHANGES[change - 1], path.decode())
    except (struct.error, UnicodeDecodeError):
        pass
    return None


def _text(text: str) -> bytes | None:
    """None: not one that can be sent."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return None
    return data if len(data) <= TEXT_BYTES_MAX else None
