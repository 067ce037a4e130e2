"""Version 3 of the bookie protocol: one protobuf message a frame. docs/formats/bookkeeper-protocol.md has the facts.

Adds and reads are encoded and decoded by hand as long as their fields are in the order and form that every known
encoder writes; what looks otherwise goes by the generated classes, with the same outcome.

``decode_*`` take one frame as ``data[start:end]``. :func:`decode_request` gives None for what is no message of version
3 at all: the connection speaks an older one (``request_decoder``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError, Message

from geminga.model.bookie_port import ID_MAX
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper.codes import (
    ENTRY_ID_LAST,
    HIGH_PRIORITY,
    VERSION_3,
    WRITE_FLAG_DEFERRED_SYNC,
    OperationType,
    StatusCode,
)
from geminga.wire.bookkeeper.requests import (
    AddRequest,
    AuthRequest,
    BookieInfoRequest,
    EntryReadRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    RefusedRequest,
    Request,
    StartTlsRequest,
    TracedRequest,
    WriteLacRequest,
)
from geminga.wire.bookkeeper.v2 import ENTRY_HEAD_BYTES, plugin_of
from geminga.wire.pulsar.varint import decode_varint, encode_varint, signed64

_IDS: Final = Struct(">qq")
_SIZE: Final = Struct(">I")

_HEADER_TAG: Final = 0x0A
#: version 3, then the tag of the operation.
_HEADER_START: Final = b"\x08\x03\x10"
_TXN_ID_TAG: Final = 0x18
_PRIORITY_TAG: Final = 0x20
_STATUS_TAG: Final = b"\x10"
#: Fields 100 and 101: a read's message and an add's, in requests and in answers.
_READ_TAG: Final = b"\xa2\x06"
_ADD_TAG: Final = b"\xaa\x06"
#: Field 100 of both requests as a varint.
_FLAG_TAG: Final = b"\xa0\x06"

#: Apache's bookie looks at the version of everything but these.
_ANY_VERSION: Final = (int(OperationType.AUTH), int(OperationType.START_TLS))
_READ_OPERATION: Final = int(OperationType.READ_ENTRY)
_ADD_OPERATION: Final = int(OperationType.ADD_ENTRY)
_EOK: Final = int(StatusCode.EOK)

#: Of a request's context, which Apache's client fills with what its logging knows of the thread (MDC) and its bookie
#: gives to its own, both with ``preserveMdcForTaskExecution``. The key is that of OpenTelemetry's logging for Java.
TRACE_KEY: Final = "trace_id"
_TRACE: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")


# ---- requests in --------------------------------------------------------------------------------------------------


def decode_request(data: bytes, start: int, end: int) -> Request | None:
    """One request, or None if these bytes are no request of version 3. Never raises."""
    request = _fast_request(data, start, end)
    if request is not None:
        return request
    try:
        message = pb.Request.FromString(data[start:end])
    except DecodeError:
        return None
    # Python's parser lets required fields be absent, Java's does not.
    if not message.IsInitialized():
        return None
    request = _slow_request(message)
    for pair in message.requestContext:
        if pair.key == TRACE_KEY and _TRACE.fullmatch(pair.value):
            return TracedRequest(pair.value, request)
    return request


def _fast_request(data: bytes, start: int, end: int) -> Request | None:
    """An add or a read in the usual form; None for everything else."""
    try:
        if data[start] != _HEADER_TAG or end - start < 2:
            return None
        position = start + 2
        header_end = position + data[start + 1]
        if not data.startswith(_HEADER_START, position) or data[position + 4] != _TXN_ID_TAG:
            return None
        operation = data[position + 3]
        txn_id, position = decode_varint(data, position + 5)
        priority = 0
        if position != header_end:
            if data[position] != _PRIORITY_TAG:
                return None
            priority, position = decode_varint(data, position + 1)
            if position != header_end:
                return None
        if operation == _ADD_OPERATION and data.startswith(_ADD_TAG, position):
            return _fast_add(data, position + 2, end, txn_id, priority & 0xFFFFFFFF != 0)
        if operation == _READ_OPERATION and data.startswith(_READ_TAG, position):
            return _fast_read(data, position + 2, end, txn_id, priority & 0xFFFFFFFF != 0)
    except (IndexError, ValueError):
        pass
    return None


def _fast_add(data: bytes, position: int, end: int, txn_id: int, is_high: bool) -> Request | None:
    size, position = decode_varint(data, position)
    if position + size != end or data[position] != 0x08:
        return None
    ledger_id, position = decode_varint(data, position + 1)
    if data[position] != 0x10:
        return None
    entry_id, position = decode_varint(data, position + 1)
    if data[position] != 0x1A:
        return None
    size, position = decode_varint(data, position + 1)
    key_end = position + size
    if key_end >= end or data[key_end] != 0x22:
        return None
    key = data[position:key_end]
    size, position = decode_varint(data, key_end + 1)
    stop = position + size
    if stop > end or size < ENTRY_HEAD_BYTES or ledger_id > ID_MAX or entry_id > ID_MAX:
        return None
    if _IDS.unpack_from(data, position) != (ledger_id, entry_id):
        return None
    entry = data[position:stop]
    flags = recovery = 0
    if stop < end and data[stop] == 0x28:
        flags, stop = decode_varint(data, stop + 1)
    if stop < end and data.startswith(_FLAG_TAG, stop):
        recovery, stop = decode_varint(data, stop + 2)
    if stop != end or recovery > 1:
        return None
    is_deferred = flags & WRITE_FLAG_DEFERRED_SYNC != 0
    return AddRequest(VERSION_3, txn_id, ledger_id, entry_id, key, entry, recovery == 1, is_deferred, is_high)


def _fast_read(data: bytes, position: int, end: int, txn_id: int, is_high: bool) -> Request | None:
    size, position = decode_varint(data, position)
    if position + size != end or data[position] != 0x08:
        return None
    ledger_id, position = decode_varint(data, position + 1)
    if data[position] != 0x10:
        return None
    number, position = decode_varint(data, position + 1)
    entry_id = signed64(number)
    if position != end or ledger_id > ID_MAX or entry_id < ENTRY_ID_LAST:
        return None
    return EntryReadRequest(VERSION_3, txn_id, ledger_id, entry_id, high_priority=is_high)


def _slow_request(message: pb.Request) -> Request:
    header = message.header
    if header.version != VERSION_3 and int(header.operation) not in _ANY_VERSION:
        return _refused(message, StatusCode.EBADVERSION, "version 3 was expected")
    decode = _DECODERS.get(header.operation)
    if decode is None:
        return _refused(message, StatusCode.EBADREQ, "no bookie does this in version 3")
    return decode(message, header.txnId, header.priority > 0)


def _add(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    add = message.addRequest
    if not message.HasField("addRequest") or add.ledgerId < 0 or add.entryId < 0:
        return _refused(message, StatusCode.EBADREQ, "no add, or of ids below 0")
    if len(add.body) < ENTRY_HEAD_BYTES or _IDS.unpack_from(add.body) != (add.ledgerId, add.entryId):
        return _refused(message, StatusCode.EBADREQ, f"an entry of {len(add.body)} bytes that has not these ids")
    is_deferred = add.writeFlags & WRITE_FLAG_DEFERRED_SYNC != 0
    recovery = add.HasField("flag")
    return AddRequest(
        VERSION_3, txn_id, add.ledgerId, add.entryId, add.masterKey, add.body, recovery, is_deferred, is_high
    )


def _read(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    read = message.readRequest
    if not message.HasField("readRequest") or read.ledgerId < 0 or read.entryId < ENTRY_ID_LAST:
        return _refused(message, StatusCode.EBADREQ, "no read, or of ids below 0")
    fence = read.HasField("flag") and read.flag == pb.ReadRequest.FENCE_LEDGER
    piggyback = read.HasField("flag") and read.flag == pb.ReadRequest.ENTRY_PIGGYBACK
    if piggyback and (not read.HasField("previousLAC") or read.entryId != ENTRY_ID_LAST):
        return _refused(message, StatusCode.EBADREQ, "an entry along with the LAC, without previousLAC or of an entry")
    return EntryReadRequest(
        VERSION_3,
        txn_id,
        read.ledgerId,
        read.entryId,
        fence,
        read.masterKey if read.HasField("masterKey") else None,
        read.previousLAC if read.HasField("previousLAC") else None,
        read.timeOut if read.HasField("timeOut") else None,
        piggyback,
        is_high,
    )


def _auth(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    # A bookie without authentication answers before it looks at the message.
    return AuthRequest(VERSION_3, txn_id, plugin_of(message.authRequest), message.authRequest.payload)


def _start_tls(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    return StartTlsRequest(VERSION_3, txn_id)


def _write_lac(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    write = message.writeLacRequest
    if not message.HasField("writeLacRequest") or write.ledgerId < 0 or len(write.body) < _IDS.size:
        return _refused(message, StatusCode.EBADREQ, "no announcement, or of a ledger below 0")
    if _IDS.unpack_from(write.body) != (write.ledgerId, write.lac):
        return _refused(message, StatusCode.EBADREQ, "an announcement whose body says something else")
    return WriteLacRequest(VERSION_3, txn_id, write.ledgerId, write.lac, write.masterKey, write.body)


def _of_ledger(message: pb.Request, field: str, make: Callable[[int, int, int], Request], txn_id: int) -> Request:
    inner = getattr(message, field)
    if not message.HasField(field) or inner.ledgerId < 0:
        return _refused(message, StatusCode.EBADREQ, f"no {field}, or of a ledger below 0")
    return make(VERSION_3, txn_id, inner.ledgerId)


def _read_lac(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    return _of_ledger(message, "readLacRequest", ReadLacRequest, txn_id)


def _force(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    return _of_ledger(message, "forceLedgerRequest", ForceLedgerRequest, txn_id)


def _list(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    return _of_ledger(message, "getListOfEntriesOfLedgerRequest", ListEntriesRequest, txn_id)


def _info(message: pb.Request, txn_id: int, is_high: bool) -> Request:
    requested = message.getBookieInfoRequest.requested
    flags = pb.GetBookieInfoRequest
    return BookieInfoRequest(
        VERSION_3, txn_id, requested & flags.TOTAL_DISK_CAPACITY != 0, requested & flags.FREE_DISK_SPACE != 0
    )


_DECODERS: Final[dict[int, Callable[[pb.Request, int, bool], Request]]] = {
    OperationType.READ_ENTRY: _read,
    OperationType.ADD_ENTRY: _add,
    OperationType.AUTH: _auth,
    OperationType.WRITE_LAC: _write_lac,
    OperationType.READ_LAC: _read_lac,
    OperationType.GET_BOOKIE_INFO: _info,
    OperationType.START_TLS: _start_tls,
    OperationType.FORCE_LEDGER: _force,
    OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER: _list,
}


def _refused(message: pb.Request, status: StatusCode, why: str) -> RefusedRequest:
    header = message.header
    answer = pb.Response(status=status)  # type: ignore[arg-type]
    answer.header.CopyFrom(header)
    answer.header.ClearField("priority")
    answer.header.version = pb.VERSION_THREE
    operation = pb.OperationType.Name(header.operation)
    story = f"{operation} of version {header.version} with txnId {header.txnId}: {status.name}: {why}"
    return RefusedRequest(framed(answer), story)


def framed(message: Message) -> bytes:
    """A message as a frame."""
    data = message.SerializeToString()
    return _SIZE.pack(len(data)) + data


# ---- requests out, answers of adds and reads ----------------------------------------------------------------------


def _header(operation: int, txn_id: int, priority: int = 0) -> bytes:
    number = encode_varint(txn_id)
    tail = b" " + encode_varint(priority) if priority else b""
    size = 5 + len(number) + len(tail)
    return b"".join((bytes((_HEADER_TAG, size)), _HEADER_START, bytes((operation, _TXN_ID_TAG)), number, tail))


def encode_add(
    txn_id: int,
    ledger_id: int,
    entry_id: int,
    master_key: bytes,
    entry: bytes,
    *,
    recovery: bool,
    deferred_sync: bool = False,
    high_priority: bool = False,
) -> bytes:
    """An add."""
    header = _header(_ADD_OPERATION, txn_id, HIGH_PRIORITY if high_priority else 0)
    head = b"".join(
        (b"\x08", encode_varint(ledger_id), b"\x10", encode_varint(entry_id), b"\x1a", encode_varint(len(master_key)))
    )
    body_size = encode_varint(len(entry))
    tail = (b"\x28\x01" if deferred_sync else b"") + (b"\xa0\x06\x01" if recovery else b"")
    inner = len(head) + len(master_key) + 1 + len(body_size) + len(entry) + len(tail)
    inner_size = encode_varint(inner)
    size = len(header) + 2 + len(inner_size) + inner
    return b"".join((_SIZE.pack(size), header, _ADD_TAG, inner_size, head, master_key, b"\x22", body_size, entry, tail))


def encode_read(txn_id: int, ledger_id: int, entry_id: int, *, high_priority: bool = False) -> bytes:
    """A read of one entry; -1 is the last one. A fence or a long poll: :func:`encode_other`."""
    header = _header(_READ_OPERATION, txn_id, HIGH_PRIORITY if high_priority else 0)
    inner = b"".join((b"\x08", encode_varint(ledger_id), b"\x10", encode_varint(entry_id)))
    size = len(header) + 3 + len(inner)
    return b"".join((_SIZE.pack(size), header, _READ_TAG, bytes((len(inner),)), inner))


def encode_request(operation: OperationType, txn_id: int, *, high_priority: bool = False, **fields: Message) -> bytes:
    """Any request, by the message of its operation: ``readLacRequest=pb.ReadLacRequest(ledgerId=3)``."""
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=txn_id)  # type: ignore[arg-type]
    if high_priority:
        header.priority = HIGH_PRIORITY
    return framed(pb.Request(header=header, **fields))  # type: ignore[arg-type]


def with_trace(frame: bytes, trace: str) -> bytes:
    """A request's frame, with the trace id of what caused it."""
    pair = pb.Request(requestContext=[pb.ContextPair(key=TRACE_KEY, value=trace)]).SerializePartialToString()
    return b"".join((_SIZE.pack(len(frame) - _SIZE.size + len(pair)), frame[_SIZE.size :], pair))


def encode_fence(txn_id: int, ledger_id: int, master_key: bytes) -> bytes:
    """A read of the last entry that fences the ledger before."""
    read = pb.ReadRequest(
        ledgerId=ledger_id, entryId=ENTRY_ID_LAST, masterKey=master_key, flag=pb.ReadRequest.FENCE_LEDGER
    )
    return encode_request(OperationType.READ_ENTRY, txn_id, readRequest=read)


def encode_add_answers(requests: Iterable[AddRequest], status: int) -> bytes:
    """The answers of adds that ended alike, one behind the other."""
    code = encode_varint(status)
    outer_status, inner_status = _STATUS_TAG + code, b"\x08" + code + b"\x10"
    parts: list[bytes] = []
    for request in requests:
        inner = b"".join((inner_status, encode_varint(request.ledger_id), b"\x18", encode_varint(request.entry_id)))
        head = _header(_ADD_OPERATION, request.txn_id) + outer_status + _ADD_TAG
        parts += (_SIZE.pack(len(head) + 1 + len(inner)), head, bytes((len(inner),)), inner)
    return b"".join(parts)


def encode_read_answer(
    request: EntryReadRequest,
    status: int,
    entry: bytes | None = None,
    *,
    entry_id: int | None = None,
    max_lac: int | None = None,
    lac_update_ms: int | None = None,
) -> bytes:
    """The answer of a read. ``entry_id``: of the entry, where a long poll gives one; the one asked for otherwise."""
    number = request.entry_id if entry_id is None else entry_id
    code = encode_varint(status)
    inner = [b"\x08", code, b"\x10", encode_varint(request.ledger_id), b"\x18", encode_varint(number)]
    if entry is not None:
        inner += (b"\x22", encode_varint(len(entry)), entry)
    if max_lac is not None:
        inner += (b"\x28", encode_varint(max_lac))
    if lac_update_ms is not None:
        inner += (b"\x30", encode_varint(lac_update_ms))
    inner_bytes = sum(map(len, inner))
    inner_size = encode_varint(inner_bytes)
    head = _header(_READ_OPERATION, request.txn_id) + _STATUS_TAG + code + _READ_TAG + inner_size
    return b"".join((_SIZE.pack(len(head) + inner_bytes), head, *inner))
