"""Versions 0 to 2 of the bookie protocol: hand-laid bytes. docs/formats/bookkeeper-protocol.md has the tables.

A request begins with a packet header (int32): version, operation, flags; in version 0 it is the operation alone. All
numbers are big endian. Answers have the header without flags, an error code, the ids, and what was read.

``decode_*`` take one frame as ``data[start:end]`` and raise ProtocolError for what a bookie closes the connection for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from geminga.model.bookie_port import EntryData
from geminga.model.errors import ProtocolError
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper.answers import AddAnswer, Answer, AuthAnswer, BatchReadAnswer, ReadAnswer
from geminga.wire.bookkeeper.codes import (
    ENTRY_ID_LAST,
    MASTER_KEY_BYTES,
    VERSION_2,
    StatusCode,
    V2Flag,
    V2Operation,
    status_of_v2_code,
    v2_code,
)
from geminga.wire.bookkeeper.requests import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    EntryReadRequest,
    RefusedRequest,
    Request,
)

_INT: Final = Struct(">I")
_IDS: Final = Struct(">qq")
_SIZED_HEADER: Final = Struct(">II")
#: Frame size, header, ledger id, entry id.
_READ: Final = Struct(">IIqq")
#: The same and request id, count, bytes.
_BATCH_READ: Final = Struct(">IIqqqiq")
_BATCH_READ_TAIL: Final = Struct(">qiq")
#: Frame size, header, error code, ledger id, entry id: what every answer but that of AUTH begins with.
_ANSWER: Final = Struct(">IIiqq")
_ANSWER_BODY: Final = Struct(">iqq")
_LONG: Final = Struct(">q")

_HEADER_BYTES: Final = 4
_IDS_BYTES: Final = _IDS.size
#: Of an answer, without the frame's size.
ANSWER_BYTES: Final = _ANSWER.size - 4
#: Of the answer to a batch read, and in front of each entry in it.
BATCH_ANSWER_BYTES: Final = ANSWER_BYTES + _LONG.size
ENTRY_SIZE_BYTES: Final = 4
#: An entry of so many bytes in a batch read is a view of the answer: who takes its payload out copies it anyway.
VIEW_BYTES_MIN: Final = 2048
#: What an entry begins with and every bookie reads: ids and last add confirmed.
ENTRY_HEAD_BYTES: Final = 24

_ADD: Final = int(V2Operation.ADD_ENTRY)
_READ_OPERATION: Final = int(V2Operation.READ_ENTRY)
_BATCH: Final = int(V2Operation.BATCH_READ_ENTRY)
_AUTH: Final = int(V2Operation.AUTH)
_FENCING: Final = int(V2Flag.DO_FENCING)
_RECOVERY: Final = int(V2Flag.RECOVERY_ADD)
_HIGH: Final = int(V2Flag.HIGH_PRIORITY)


def packet_header(version: int, operation: int, flags: int = 0) -> int:
    """The packet header: version 0 has room for the operation only."""
    return operation if version == 0 else version << 24 | operation << 16 | flags


# ---- requests -----------------------------------------------------------------------------------------------------


def decode_request(data: bytes, start: int, end: int) -> Request:
    """One request. Raises ProtocolError: an operation that nobody knows, or a frame cut short."""
    if end - start < _HEADER_BYTES:
        raise ProtocolError(f"a request of {end - start} bytes: a packet header has {_HEADER_BYTES}")
    (header,) = _INT.unpack_from(data, start)
    version = header >> 24
    operation = header >> 16 & 0xFF if version else header & 0xFF
    flags = header & 0xFFFF if version else 0
    position = start + _HEADER_BYTES
    if operation == _ADD:
        return _add(data, position, end, version, flags)
    if operation == _READ_OPERATION:
        return _read(data, position, end, version, flags)
    if operation == _BATCH:
        return _batch_read(data, position, end, version, flags)
    if operation == _AUTH:
        message = _auth_message(data, position, end)
        return AuthRequest(version, 0, plugin_of(message), message.payload)
    raise ProtocolError(f"operation {operation} of version {version}: 1, 2, 3 or 7 was expected")


def _add(data: bytes, position: int, end: int, version: int, flags: int) -> Request:
    entry_start = position + MASTER_KEY_BYTES
    if end - entry_start < _IDS_BYTES:
        raise ProtocolError(f"an add of {end - position} bytes: master key and ids have {MASTER_KEY_BYTES + 16}")
    ledger_id, entry_id = _IDS.unpack_from(data, entry_start)
    if version > VERSION_2:
        return _refused(version, _ADD, StatusCode.EBADVERSION, ledger_id, entry_id)
    if ledger_id < 0 or entry_id < 0 or end - entry_start < ENTRY_HEAD_BYTES:
        return _refused(version, _ADD, StatusCode.EBADREQ, ledger_id, entry_id)
    return AddRequest(
        version,
        0,
        ledger_id,
        entry_id,
        data[position:entry_start],
        data[entry_start:end],
        flags & _RECOVERY != 0,
        False,
        flags & _HIGH != 0,
    )


def _read(data: bytes, position: int, end: int, version: int, flags: int) -> Request:
    if end - position < _IDS_BYTES:
        raise ProtocolError(f"a read of {end - position} bytes: its ids have {_IDS_BYTES}")
    ledger_id, entry_id = _IDS.unpack_from(data, position)
    fence = flags & _FENCING != 0
    key = _fencing_key(data, position + _IDS_BYTES, end, version) if fence else None
    if version > VERSION_2:
        return _refused(version, _READ_OPERATION, StatusCode.EBADVERSION, ledger_id, entry_id)
    if ledger_id < 0 or entry_id < ENTRY_ID_LAST:
        return _refused(version, _READ_OPERATION, StatusCode.EBADREQ, ledger_id, entry_id)
    return EntryReadRequest(version, 0, ledger_id, entry_id, fence, key, high_priority=flags & _HIGH != 0)


def _batch_read(data: bytes, position: int, end: int, version: int, flags: int) -> Request:
    if end - position < _IDS_BYTES + _BATCH_READ_TAIL.size:
        raise ProtocolError(f"a batch read of {end - position} bytes: {_IDS_BYTES + _BATCH_READ_TAIL.size} at least")
    ledger_id, entry_id = _IDS.unpack_from(data, position)
    request_id, entries_max, bytes_max = _BATCH_READ_TAIL.unpack_from(data, position + _IDS_BYTES)
    fence = flags & _FENCING != 0
    key = _fencing_key(data, position + _IDS_BYTES + _BATCH_READ_TAIL.size, end, version) if fence else None
    if version > VERSION_2:
        return _refused(version, _BATCH, StatusCode.EBADVERSION, ledger_id, entry_id, request_id)
    if ledger_id < 0 or entry_id < ENTRY_ID_LAST:
        return _refused(version, _BATCH, StatusCode.EBADREQ, ledger_id, entry_id, request_id)
    high = flags & _HIGH != 0
    return BatchReadRequest(version, request_id, ledger_id, entry_id, entries_max, bytes_max, fence, key, high)


def _fencing_key(data: bytes, position: int, end: int, version: int) -> bytes | None:
    if version < VERSION_2:
        return None  # versions before had none: such a fence is refused (EUA)
    if end - position < MASTER_KEY_BYTES:
        raise ProtocolError(f"a fence with {end - position} bytes of master key: it has {MASTER_KEY_BYTES}")
    return data[position : position + MASTER_KEY_BYTES]


def _auth_message(data: bytes, start: int, end: int) -> pb.AuthMessage:
    try:
        message = pb.AuthMessage.FromString(data[start:end])
    except DecodeError as error:
        raise ProtocolError(f"an AuthMessage of {end - start} bytes that is none: {error}") from None
    if not message.IsInitialized():
        raise ProtocolError(f"an AuthMessage of {end - start} bytes without plugin or payload")
    return message


def plugin_of(message: pb.AuthMessage) -> str:
    """The plugin's name; Python's protobuf gives the bytes of one that is no UTF-8."""
    name: str | bytes = message.authPluginName
    return name if isinstance(name, str) else name.decode(errors="replace")


def _refused(
    version: int, operation: int, status: StatusCode, ledger_id: int, entry_id: int, request_id: int | None = None
) -> RefusedRequest:
    size = ANSWER_BYTES if request_id is None else BATCH_ANSWER_BYTES
    answer = _ANSWER.pack(size, packet_header(version, operation), v2_code(status), ledger_id, entry_id)
    if request_id is not None:
        answer += _LONG.pack(request_id)
    story = f"operation {operation} of version {version} for ledger {ledger_id}, entry {entry_id}: {status.name}"
    return RefusedRequest(answer, story)


def encode_add(
    master_key: bytes, entry: bytes, *, recovery: bool, high_priority: bool = False, version: int = VERSION_2
) -> bytes:
    """An add; ``master_key`` has 20 bytes, ``entry`` begins with the two ids."""
    flags = (_RECOVERY if recovery else 0) | (_HIGH if high_priority else 0)
    size = _HEADER_BYTES + len(master_key) + len(entry)
    return b"".join((_SIZED_HEADER.pack(size, packet_header(version, _ADD, flags)), master_key, entry))


def encode_read(ledger_id: int, entry_id: int, *, fence_key: bytes | None = None, high_priority: bool = False) -> bytes:
    """A read in version 2; with ``fence_key`` one that fences."""
    key = fence_key or b""
    flags = (_FENCING if fence_key is not None else 0) | (_HIGH if high_priority else 0)
    header = packet_header(VERSION_2, _READ_OPERATION, flags)
    return _READ.pack(_READ.size - 4 + len(key), header, ledger_id, entry_id) + key


def encode_batch_read(
    request_id: int,
    ledger_id: int,
    entry_id: int,
    *,
    entries_max: int,
    bytes_max: int,
    fence_key: bytes | None = None,
    high_priority: bool = False,
) -> bytes:
    """A batch read in version 2."""
    key = fence_key or b""
    flags = (_FENCING if fence_key is not None else 0) | (_HIGH if high_priority else 0)
    header = packet_header(VERSION_2, _BATCH, flags)
    size = _BATCH_READ.size - 4 + len(key)
    return _BATCH_READ.pack(size, header, ledger_id, entry_id, request_id, entries_max, bytes_max) + key


def encode_auth(plugin: str, payload: bytes) -> bytes:
    """A step of a handshake in version 2, in either direction."""
    message = pb.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return _SIZED_HEADER.pack(_HEADER_BYTES + len(message), packet_header(VERSION_2, _AUTH)) + message


# ---- answers ------------------------------------------------------------------------------------------------------


def encode_add_answers(requests: Iterable[AddRequest], status: int) -> bytes:
    """The answers of adds that ended alike, one behind the other."""
    pack = _ANSWER.pack
    code = v2_code(status)
    return b"".join(
        [
            pack(ANSWER_BYTES, packet_header(request.version, _ADD), code, request.ledger_id, request.entry_id)
            for request in requests
        ]
    )


def encode_read_answer(request: EntryReadRequest, status: int, entry: bytes = b"") -> bytes:
    """The answer of a read: the entry, or nothing behind an error."""
    header = packet_header(request.version, _READ_OPERATION)
    size = ANSWER_BYTES + len(entry)
    return _ANSWER.pack(size, header, v2_code(status), request.ledger_id, request.entry_id) + entry


def batch_read_answer_parts(
    request: BatchReadRequest, status: int, entries: Sequence[EntryData] = ()
) -> list[EntryData]:
    """The answer of a batch read, to be written one behind the other: each entry behind its size."""
    header = packet_header(request.version, _BATCH)
    size = BATCH_ANSWER_BYTES + sum(map(len, entries)) + ENTRY_SIZE_BYTES * len(entries)
    head = _ANSWER.pack(size, header, v2_code(status), request.ledger_id, request.entry_id)
    parts: list[EntryData] = [head + _LONG.pack(request.txn_id)]
    for entry in entries:
        parts += (_INT.pack(len(entry)), entry)
    return parts


def encode_batch_read_answer(request: BatchReadRequest, status: int, entries: Sequence[EntryData] = ()) -> bytes:
    """The same as one."""
    return b"".join(batch_read_answer_parts(request, status, entries))


def decode_answer(data: bytes, start: int, end: int) -> Answer:
    """One answer. Raises ProtocolError for what a client closes the connection for."""
    if end - start < _HEADER_BYTES:
        raise ProtocolError(f"an answer of {end - start} bytes: a packet header has {_HEADER_BYTES}")
    (header,) = _INT.unpack_from(data, start)
    operation = header >> 16 & 0xFF if header >> 24 else header & 0xFF
    if operation == _AUTH:
        message = _auth_message(data, start + _HEADER_BYTES, end)
        return AuthAnswer(0, StatusCode.EOK, plugin_of(message), message.payload)
    if operation not in (_ADD, _READ_OPERATION, _BATCH):
        raise ProtocolError(f"an answer to operation {operation}: 1, 2, 3 or 7 was expected")
    if end - start < ANSWER_BYTES:
        raise ProtocolError(f"an answer of {end - start} bytes: one to operation {operation} has {ANSWER_BYTES}")
    code, ledger_id, entry_id = _ANSWER_BODY.unpack_from(data, start + _HEADER_BYTES)
    status = status_of_v2_code(code)
    position = start + ANSWER_BYTES
    if operation == _ADD:
        return AddAnswer(0, status, ledger_id, entry_id)
    if operation == _READ_OPERATION:
        entry = data[position:end] if status == StatusCode.EOK else None
        return ReadAnswer(0, status, ledger_id, entry_id, entry)
    if end - position < _LONG.size:
        raise ProtocolError(f"an answer to a batch read of {end - start} bytes: {BATCH_ANSWER_BYTES} at least")
    (request_id,) = _LONG.unpack_from(data, position)
    return BatchReadAnswer(request_id, status, ledger_id, entry_id, _entries(data, position + _LONG.size, end))


def _entries(data: bytes, position: int, end: int) -> list[EntryData]:
    entries: list[EntryData] = []
    while position < end:
        if end - position < ENTRY_SIZE_BYTES:
            raise ProtocolError(f"{end - position} bytes at the end of a batch: no size of an entry fits")
        (size,) = _INT.unpack_from(data, position)
        position += ENTRY_SIZE_BYTES
        if size > end - position:
            raise ProtocolError(f"an entry of {size} bytes where {end - position} are left of a batch")
        stop = position + size
        entries.append(data[position:stop] if size < VIEW_BYTES_MIN else memoryview(data)[position:stop])
        position = stop
    return entries
