"""Version 3 of the bookie protocol: answers as a client reads them, and those of a bookie that are no add or read.

A client takes the status of the whole, and that of the operation's own message where the whole says EOK.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from geminga.model.bookie_port import ID_MAX
from geminga.model.errors import ProtocolError
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper.answers import (
    AddAnswer,
    Answer,
    AuthAnswer,
    BareAnswer,
    BookieInfoAnswer,
    LedgerAnswer,
    ListEntriesAnswer,
    ReadAnswer,
    ReadLacAnswer,
)
from geminga.wire.bookkeeper.codes import OperationType, StatusCode
from geminga.wire.bookkeeper.requests import (
    AuthRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    StartTlsRequest,
    WriteLacRequest,
)
from geminga.wire.bookkeeper.v2 import plugin_of
from geminga.wire.bookkeeper.v3 import framed
from geminga.wire.pulsar.varint import decode_varint

_EOK: Final = int(StatusCode.EOK)
#: Header of an answer to an add or a read with a txnId, up to the operation.
_HEADER_START: Final = b"\x08\x03\x10"
#: Status EOK of the whole, then the tag of the message.
_EOK_ADD: Final = b"\x10\x00\xaa\x06"
_EOK_READ: Final = b"\x10\x00\xa2\x06"


# ---- answers out --------------------------------------------------------------------------------------------------


def _response(operation: OperationType, txn_id: int, status: int) -> pb.Response:
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=txn_id)  # type: ignore[arg-type]
    return pb.Response(header=header, status=status)  # type: ignore[arg-type]


def encode_write_lac_answer(request: WriteLacRequest, status: int) -> bytes:
    """The answer of WRITE_LAC."""
    answer = _response(OperationType.WRITE_LAC, request.txn_id, status)
    answer.writeLacResponse.status = status  # type: ignore[assignment]
    answer.writeLacResponse.ledgerId = request.ledger_id
    return framed(answer)


def encode_force_answer(request: ForceLedgerRequest, status: int) -> bytes:
    """The answer of FORCE_LEDGER."""
    answer = _response(OperationType.FORCE_LEDGER, request.txn_id, status)
    answer.forceLedgerResponse.status = status  # type: ignore[assignment]
    answer.forceLedgerResponse.ledgerId = request.ledger_id
    return framed(answer)


def encode_read_lac_answer(
    request: ReadLacRequest, status: int, lac: bytes | None = None, last_entry: bytes | None = None
) -> bytes:
    """The answer of READ_LAC; ENOENTRY belongs to neither being there."""
    answer = _response(OperationType.READ_LAC, request.txn_id, status)
    inner = answer.readLacResponse
    inner.status = status  # type: ignore[assignment]
    inner.ledgerId = request.ledger_id
    if lac is not None:
        inner.lacBody = lac
    if last_entry is not None:
        inner.lastEntryBody = last_entry
    return framed(answer)


def encode_list_answer(request: ListEntriesRequest, status: int, availability: bytes | None = None) -> bytes:
    """The answer of GET_LIST_OF_ENTRIES_OF_LEDGER."""
    answer = _response(OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER, request.txn_id, status)
    inner = answer.getListOfEntriesOfLedgerResponse
    inner.status = status  # type: ignore[assignment]
    inner.ledgerId = request.ledger_id
    if availability is not None:
        inner.availabilityOfEntriesOfLedger = availability
    return framed(answer)


def encode_info_answer(
    request: BookieInfoRequest,
    status: int,
    *,
    total_bytes: int = 0,
    free_bytes: int = 0,
    added_bytes: int | None = None,
) -> bytes:
    """The answer of GET_BOOKIE_INFO: what was asked for, if it is known."""
    answer = _response(OperationType.GET_BOOKIE_INFO, request.txn_id, status)
    inner = answer.getBookieInfoResponse
    inner.status = status  # type: ignore[assignment]
    if status == _EOK and request.total:
        inner.totalDiskCapacity = total_bytes
    if status == _EOK and request.free:
        inner.freeDiskSpace = free_bytes
    if status == _EOK and added_bytes is not None:
        inner.gemingaAddedBytes = added_bytes
    return framed(answer)


def encode_auth_answer(request: AuthRequest, status: int, plugin: str, payload: bytes) -> bytes:
    """The answer of a step of a handshake."""
    answer = _response(OperationType.AUTH, request.txn_id, status)
    if status == _EOK:
        answer.authResponse.authPluginName = plugin
        answer.authResponse.payload = payload
    return framed(answer)


def encode_start_tls_answer(request: StartTlsRequest, status: int) -> bytes:
    """The answer of START_TLS; EBADREQ where there is no TLS."""
    answer = _response(OperationType.START_TLS, request.txn_id, status)
    if status == _EOK:
        answer.startTLSResponse.SetInParent()
    return framed(answer)


# ---- answers in ---------------------------------------------------------------------------------------------------


def decode_answer(data: bytes, start: int, end: int) -> Answer:
    """One answer. Raises ProtocolError for what is none."""
    answer = _fast_answer(data, start, end)
    if answer is not None:
        return answer
    try:
        message = pb.Response.FromString(data[start:end])
    except DecodeError as error:
        raise ProtocolError(f"an answer of {end - start} bytes that is none: {error}") from None
    if not message.IsInitialized():
        raise ProtocolError(f"an answer of {end - start} bytes without a required field")
    return _slow_answer(message)


def _fast_answer(data: bytes, start: int, end: int) -> Answer | None:
    """An add or a read that went well, in the usual form; None for everything else."""
    try:
        position = start + 2
        if data[start] != 0x0A or not data.startswith(_HEADER_START, position) or data[position + 4] != 0x18:
            return None
        operation = data[position + 3]
        txn_id, after = decode_varint(data, position + 5)
        if after != position + data[start + 1]:
            return None
        if operation == OperationType.ADD_ENTRY and data.startswith(_EOK_ADD, after):
            return _fast_add(data, after + len(_EOK_ADD), end, txn_id)
        if operation == OperationType.READ_ENTRY and data.startswith(_EOK_READ, after):
            return _fast_read(data, after + len(_EOK_READ), end, txn_id)
    except (IndexError, ValueError):
        pass
    return None


def _fast_add(data: bytes, position: int, end: int, txn_id: int) -> Answer | None:
    size, position = decode_varint(data, position)
    if position + size != end or not data.startswith(b"\x08\x00\x10", position):
        return None
    ledger_id, position = decode_varint(data, position + 3)
    if data[position] != 0x18:
        return None
    entry_id, position = decode_varint(data, position + 1)
    if position != end or ledger_id > ID_MAX or entry_id > ID_MAX:
        return None
    return AddAnswer(txn_id, _EOK, ledger_id, entry_id)


def _fast_read(data: bytes, position: int, end: int, txn_id: int) -> Answer | None:
    size, position = decode_varint(data, position)
    if position + size != end or not data.startswith(b"\x08\x00\x10", position):
        return None
    ledger_id, position = decode_varint(data, position + 3)
    if data[position] != 0x18:
        return None
    entry_id, position = decode_varint(data, position + 1)
    if data[position] != 0x22:
        return None
    size, position = decode_varint(data, position + 1)
    stop = position + size
    if stop > end:
        return None
    entry = data[position:stop]
    max_lac = None
    if stop < end and data[stop] == 0x28:
        max_lac, stop = decode_varint(data, stop + 1)
    if stop != end or ledger_id > ID_MAX or entry_id > ID_MAX or (max_lac or 0) > ID_MAX:
        return None
    return ReadAnswer(txn_id, _EOK, ledger_id, entry_id, entry, max_lac)


def _slow_answer(message: pb.Response) -> Answer:
    operation, txn_id, status = int(message.header.operation), message.header.txnId, int(message.status)
    field = _FIELDS.get(operation)
    if field is None or not message.HasField(field):
        return BareAnswer(operation, txn_id, status)
    inner = getattr(message, field)
    if operation == OperationType.AUTH:
        return AuthAnswer(txn_id, status, plugin_of(inner), inner.payload)
    status = status if status != _EOK else int(inner.status)
    if operation == OperationType.ADD_ENTRY:
        return AddAnswer(txn_id, status, inner.ledgerId, inner.entryId)
    if operation == OperationType.READ_ENTRY:
        return _read(inner, txn_id, status)
    if operation == OperationType.READ_LAC:
        lac = inner.lacBody if inner.HasField("lacBody") else None
        last_entry = inner.lastEntryBody if inner.HasField("lastEntryBody") else None
        return ReadLacAnswer(txn_id, status, inner.ledgerId, lac, last_entry)
    if operation == OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER:
        return ListEntriesAnswer(txn_id, status, inner.ledgerId, inner.availabilityOfEntriesOfLedger)
    if operation == OperationType.GET_BOOKIE_INFO:
        total = inner.totalDiskCapacity if inner.HasField("totalDiskCapacity") else None
        free = inner.freeDiskSpace if inner.HasField("freeDiskSpace") else None
        added = inner.gemingaAddedBytes if inner.HasField("gemingaAddedBytes") else None
        return BookieInfoAnswer(txn_id, status, total, free, added)
    return LedgerAnswer(operation, txn_id, status, inner.ledgerId)


def _read(inner: pb.ReadResponse, txn_id: int, status: int) -> ReadAnswer:
    return ReadAnswer(
        txn_id,
        status,
        inner.ledgerId,
        inner.entryId,
        inner.body if inner.HasField("body") else None,
        inner.maxLAC if inner.HasField("maxLAC") else None,
        inner.lacUpdateTimestamp if inner.HasField("lacUpdateTimestamp") else None,
    )


_FIELDS: Final[dict[int, str]] = {
    OperationType.READ_ENTRY: "readResponse",
    OperationType.ADD_ENTRY: "addResponse",
    OperationType.AUTH: "authResponse",
    OperationType.WRITE_LAC: "writeLacResponse",
    OperationType.READ_LAC: "readLacResponse",
    OperationType.GET_BOOKIE_INFO: "getBookieInfoResponse",
    OperationType.FORCE_LEDGER: "forceLedgerResponse",
    OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedgerResponse",
}
