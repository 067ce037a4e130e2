"""Messages of a metadata socket to bytes and back (``docs/formats/metadata-socket.md``). Pure.

Bytes may come in any pieces, from anybody: what is no message raises BrokenMessageError, and nothing is kept beyond one
frame of the largest size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from geminga.metadata.core import socket_hot as hot
from geminga.metadata.core.socket_hot import (
    CHANGES,
    DONE,
    EPHEMERAL,
    EXPECTED,
    IS_EPHEMERAL,
    IS_OWN,
    NODE,
    NOTIFICATION,
    SEQUENTIAL,
    TEXT_BYTES_MAX,
    WRITTEN,
)
from geminga.metadata.core.socket_messages import (
    SECRET_BYTES,
    VERSION,
    BrokenMessageError,
    CallFailure,
    Expired,
    FromClient,
    FromServer,
    Numbers,
    Ping,
    Pong,
    Reason,
    Refused,
    Result,
    SessionHello,
    StoreOperation,
    StoreRequest,
    StoreResponse,
    Watch,
    Welcome,
)
from geminga.metadata.ports import Node, Notification, PutResult, Stat
from geminga.model.limits import METADATA_VALUE_BYTES_MAX

T = TypeVar("T")

MAGIC: Final = b"GMDS"
#: Of a frame, without its size.
CLIENT_FRAME_BYTES_MAX: Final = METADATA_VALUE_BYTES_MAX + 128 * 1024
SERVER_FRAME_BYTES_MAX: Final = 16 * 1024 * 1024

_HELLO: Final = 1
_PING: Final = 2
_WATCH: Final = 32
_WELCOME: Final = 129
_REFUSED: Final = 130
_PONG: Final = 131
_EXPIRED: Final = 132
_NUMBER: Final = 146
_NAMES: Final = 147
_FAILED: Final = 149
_NUMBERS: Final = 150

_SIZE: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IB")
_ID: Final = struct.Struct(">I")
_HELLO_FIELDS: Final = struct.Struct(f">4sHQ{SECRET_BYTES}sI")
_WELCOME_FIELDS: Final = struct.Struct(f">Q{SECRET_BYTES}sI")
_REFUSED_FIELDS: Final = struct.Struct(">BH")
_CHANGE_FIELDS: Final = struct.Struct(">IBq")
_STAT: Final = struct.Struct(">qqqB")
_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")

_CHILDREN: Final = 1
_END: Final = 2
_TOLD: Final = 4

_OPERATIONS: Final = {int(operation): operation for operation in StoreOperation}


def encode(message: FromClient | FromServer) -> bytes:
    """The frame of a message. Raises BrokenMessageError: a text of more than 64 KiB, or a frame beyond its limit."""
    quick: bytes | None = None
    if isinstance(message, StoreResponse):
        quick = hot.encode_answer(message)
    elif isinstance(message, StoreRequest):
        quick = hot.encode_request(message, message.request_id)
    elif isinstance(message, Notification):
        quick = hot.encode_notification(message)
    return quick if quick is not None else encode_slowly(message)


def encode_numbered(request: StoreRequest, request_id: int) -> bytes:
    """The frame of a request under this number; raises as :func:`encode`."""
    quick = hot.encode_request(request, request_id)
    return quick if quick is not None else encode_slowly(request._replace(request_id=request_id))


def encode_slowly(message: FromClient | FromServer) -> bytes:
    """:func:`encode` of any message."""
    is_of_server = isinstance(message, Welcome | Refused | Pong | Expired | StoreResponse | Notification)
    kind, *fields = _fields(message)
    size_bytes = 1 + sum(map(len, fields))
    limit = SERVER_FRAME_BYTES_MAX if is_of_server else CLIENT_FRAME_BYTES_MAX
    if size_bytes > limit:
        raise BrokenMessageError(f"a metadata message of {size_bytes} bytes, at most {limit} are sent")
    return b"".join((_SIZE.pack(size_bytes), kind, *fields))


def _fields(message: FromClient | FromServer) -> tuple[bytes, ...]:
    match message:
        case StoreRequest():
            return _request_fields(message)
        case StoreResponse():
            return _answer_fields(message)
        case Watch():
            flags = message.of_children * _CHILDREN | message.is_end * _END | message.is_told * _TOLD
            return _kind(_WATCH), _U8.pack(flags), _text(message.path)
        case Notification():
            return _kind(NOTIFICATION), _U8.pack(1 + CHANGES.index(message.kind)), _text(message.path)
        case SessionHello():
            fixed = _HELLO_FIELDS.pack(MAGIC, message.version, message.session, message.secret, message.timeout_ms)
            return _kind(_HELLO), fixed, _text(message.token), _text(message.name)
        case Welcome():
            return _kind(_WELCOME), _WELCOME_FIELDS.pack(*message)
        case Refused():
            return _kind(_REFUSED), _REFUSED_FIELDS.pack(message.reason, message.version), _text(message.why)
        case Ping():
            return (_kind(_PING),)
        case Pong():
            return (_kind(_PONG),)
        case Expired():
            return (_kind(_EXPIRED),)


def _request_fields(request: StoreRequest) -> tuple[bytes, ...]:
    kind = _kind(request.operation)
    if request.operation is StoreOperation.TAKE_SEQUENCES:
        return kind, _ID.pack(request.request_id), _U32.pack(request.how_many), _text(request.path)
    if request.operation not in (StoreOperation.PUT, StoreOperation.DELETE):
        return kind, _ID.pack(request.request_id), _text(request.path)
    flags = request.ephemeral * EPHEMERAL | request.sequential * SEQUENTIAL
    expected = request.expected_version
    if expected is not None:
        flags |= EXPECTED
    fixed = _CHANGE_FIELDS.pack(request.request_id, flags, expected or 0)
    if request.operation is StoreOperation.DELETE:
        return kind, fixed, _text(request.path)
    return kind, fixed, _text(request.path), _U32.pack(len(request.value)), request.value


def _answer_fields(answer: StoreResponse) -> tuple[bytes, ...]:
    number, result = _ID.pack(answer.request_id), answer.result
    match result:
        case None:
            return _kind(DONE), number
        case Node():
            return _kind(NODE), number, _stat(result.stat), _U32.pack(len(result.value)), result.value
        case PutResult():
            return _kind(WRITTEN), number, _stat(result.stat), _text(result.path)
        case CallFailure():
            sentence = result.sentence.encode("utf-8", "replace")
            return _kind(_FAILED), number, _U8.pack(result.code), _U32.pack(len(sentence)), sentence
        case int():
            return _kind(_NUMBER), number, _U64.pack(result)
        case Numbers():
            taken = result.taken
            return _kind(_NUMBERS), number, _U32.pack(len(taken)), *map(_U64.pack, taken)
        case _:
            return _kind(_NAMES), number, _U32.pack(len(result)), *map(_text, result)


def _kind(kind: int) -> bytes:
    return _U8.pack(kind)


def _text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise BrokenMessageError(f"not a text that can be sent: {text[:80]!r}") from None
    if len(data) > TEXT_BYTES_MAX:
        raise BrokenMessageError(f"a text of {len(data)} bytes, at most {TEXT_BYTES_MAX} are sent: {text[:80]!r}...")
    return _U16.pack(len(data)) + data


def _stat(stat: Stat) -> bytes:
    flags = stat.is_ephemeral * IS_EPHEMERAL | stat.is_own * IS_OWN
    return _STAT.pack(stat.version, stat.created_ms, stat.modified_ms, flags)


class _Reader:
    """The fields of one frame, in order."""

    __slots__ = ("_data", "_place")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def unpack(self, fields: struct.Struct) -> tuple[int, ...]:
        """Numbers; raises BrokenMessageError."""
        return fields.unpack(self.take(fields.size))

    def number(self, field: struct.Struct) -> int:
        """One number; raises BrokenMessageError."""
        value: int = field.unpack(self.take(field.size))[0]
        return value

    def flags(self, known: int) -> int:
        """One byte of flags; raises BrokenMessageError for one that is not ``known``."""
        flags = self.number(_U8)
        if flags & ~known:
            raise BrokenMessageError(f"metadata message with flags {flags:#x}, of which {known:#x} are known")
        return flags

    def text(self) -> str:
        """Raises BrokenMessageError."""
        return _decoded(self.take(self.number(_U16)))

    def sized(self) -> bytes:
        """Bytes behind their number; raises BrokenMessageError."""
        return self.take(self.number(_U32))

    def stat(self) -> Stat:
        """Raises BrokenMessageError."""
        version, created_ms, modified_ms, flags = self.unpack(_STAT)
        return Stat(version, created_ms, modified_ms, bool(flags & IS_EPHEMERAL), bool(flags & IS_OWN))

    def take(self, size_bytes: int) -> bytes:
        """The next bytes; raises BrokenMessageError if there are fewer."""
        end = self._place + size_bytes
        if end > len(self._data):
            raise BrokenMessageError(
                f"metadata message ends in a field: {len(self._data) - self._place} of {size_bytes}"
            )
        taken = self._data[self._place : end]
        self._place = end
        return taken

    def end(self) -> None:
        """Raise BrokenMessageError unless that was all."""
        if self._place != len(self._data):
            raise BrokenMessageError(f"metadata message with {len(self._data) - self._place} bytes too many")


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BrokenMessageError(f"metadata message with a text that is no UTF-8: {error}") from None


def decode_from_client(frame: bytes) -> FromClient:
    """The message of a frame without its size; raises BrokenMessageError.

    A ``hello`` of another version has nothing but that.
    """
    return hot.decode_from_client(frame) or decode_slowly_from_client(frame)


def decode_slowly_from_client(frame: bytes) -> FromClient:
    """:func:`decode_from_client` of any frame."""
    reader = _Reader(frame)
    kind = reader.number(_U8)
    message: FromClient
    if kind in _OPERATIONS:
        message = _request(reader, _OPERATIONS[kind])
    elif kind == _WATCH:
        flags = reader.flags(_CHILDREN | _END | _TOLD)
        message = Watch(reader.text(), bool(flags & _CHILDREN), bool(flags & _END), bool(flags & _TOLD))
    elif kind == _PING:
        message = Ping()
    elif kind == _HELLO:
        if reader.take(len(MAGIC)) != MAGIC:
            raise BrokenMessageError("not a client of a metadata socket")
        version = reader.number(_U16)
        if version != VERSION:
            return SessionHello(version, 0, bytes(SECRET_BYTES), 0, "", "")
        session, secret, timeout_ms = reader.number(_U64), reader.take(SECRET_BYTES), reader.number(_U32)
        message = SessionHello(version, session, secret, timeout_ms, reader.text(), reader.text())
    else:
        raise BrokenMessageError(f"metadata message of unknown kind {kind}")
    reader.end()
    return message


def _request(reader: _Reader, operation: StoreOperation) -> StoreRequest:
    request_id = reader.number(_ID)
    if operation is StoreOperation.TAKE_SEQUENCES:
        count = reader.number(_U32)
        return StoreRequest(request_id, operation, reader.text(), how_many=count)
    if operation not in (StoreOperation.PUT, StoreOperation.DELETE):
        return StoreRequest(request_id, operation, reader.text())
    flags = reader.flags(EPHEMERAL | SEQUENTIAL | EXPECTED if operation is StoreOperation.PUT else EXPECTED)
    (number,) = reader.unpack(_I64)
    expected = number if flags & EXPECTED else None
    path = reader.text()
    value = reader.sized() if operation is StoreOperation.PUT else b""
    return StoreRequest(request_id, operation, path, value, expected, bool(flags & EPHEMERAL), bool(flags & SEQUENTIAL))


_I64: Final = struct.Struct(">q")


def decode_from_server(frame: bytes) -> FromServer:
    """The message of a frame without its size; raises BrokenMessageError."""
    return hot.decode_from_server(frame) or decode_slowly_from_server(frame)


def decode_slowly_from_server(frame: bytes) -> FromServer:
    """:func:`decode_from_server` of any frame."""
    reader = _Reader(frame)
    kind = reader.number(_U8)
    message: FromServer
    if DONE <= kind <= _NUMBERS:
        message = StoreResponse(reader.number(_ID), _RESULTS[kind](reader))
    elif kind == NOTIFICATION:
        change = reader.number(_U8)
        if not 1 <= change <= len(CHANGES):
            raise BrokenMessageError(f"metadata notification of unknown kind {change}")
        message = Notification(CHANGES[change - 1], reader.text())
    elif kind == _PONG:
        message = Pong()
    elif kind == _EXPIRED:
        message = Expired()
    elif kind == _WELCOME:
        message = Welcome(reader.number(_U64), reader.take(SECRET_BYTES), reader.number(_U32))
    elif kind == _REFUSED:
        number, version = reader.unpack(_REFUSED_FIELDS)
        reason = Reason(number) if number in _REASONS else Reason.NOT_NOW
        message = Refused(reason, version, reader.text())
    else:
        raise BrokenMessageError(f"metadata message of unknown kind {kind}")
    reader.end()
    return message


_REASONS: Final = frozenset(int(reason) for reason in Reason)


def _names(reader: _Reader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.number(_U32)))


def _numbers(reader: _Reader) -> Numbers:
    return Numbers(tuple(reader.number(_U64) for _ in range(reader.number(_U32))))


def _node(reader: _Reader) -> Node:
    stat = reader.stat()
    return Node(reader.sized(), stat)


def _written(reader: _Reader) -> PutResult:
    stat = reader.stat()
    return PutResult(reader.text(), stat)


def _failure(reader: _Reader) -> CallFailure:
    return CallFailure(reader.number(_U8), _decoded(reader.sized()))


_RESULTS: Final[dict[int, Callable[[_Reader], Result]]] = {
    DONE: lambda _: None,
    NODE: _node,
    _NUMBER: lambda reader: reader.number(_U64),
    _NAMES: _names,
    WRITTEN: _written,
    _FAILED: _failure,
    _NUMBERS: _numbers,
}


class Decoder(Generic[T]):
    """The messages of one connection, out of bytes in any pieces."""

    __slots__ = ("_buffer", "_decode", "_frame_bytes_max", "is_broken")

    def __init__(self, decode: Callable[[bytes], T], frame_bytes_max: int) -> None:
        self._buffer = bytearray()
        self._decode = decode
        self._frame_bytes_max = frame_bytes_max
        #: After an error nothing more is taken.
        self.is_broken = False

    @property
    def buffered_bytes(self) -> int:
        """Of a message that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> tuple[list[T], BrokenMessageError | None]:
        """The messages that are whole with ``data``, in order, and what is wrong behind them, if anything is."""
        messages: list[T] = []
        if self.is_broken:
            return messages, None
        # Mostly there is nothing before it, and it is whole messages: then they are cut out of it as they are.
        buffer = self._buffer
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        place, length = 0, len(source)
        try:
            while length - place >= _SIZE.size:
                (size_bytes,) = _SIZE.unpack_from(source, place)
                if not 1 <= size_bytes <= self._frame_bytes_max:
                    raise BrokenMessageError(
                        f"metadata message of {size_bytes} bytes, expected 1 to {self._frame_bytes_max}"
                    )
                end = place + _SIZE.size + size_bytes
                if length < end:
                    break
                frame = source[place + _SIZE.size : end]
                messages.append(self._decode(frame if isinstance(frame, bytes) else bytes(frame)))
                place = end
        except BrokenMessageError as error:
            self.is_broken = True
            buffer.clear()
            return messages, error
        if source is buffer:
            del buffer[:place]
        elif place < length:
            buffer += source[place:]
        return messages, None

    def pass_on(self, data: bytes, handle: Callable[[T], None]) -> BrokenMessageError | None:
        """Hand on the messages of :meth:`feed`, up to the one that ``handle`` refuses; what is wrong, or None."""
        messages, error = self.feed(data)
        try:
            for message in messages:
                handle(message)
        except BrokenMessageError as broken:
            return broken
        return error


def client_decoder() -> Decoder[FromServer]:
    """For a client."""
    return Decoder(decode_from_server, SERVER_FRAME_BYTES_MAX)


def server_decoder() -> Decoder[FromClient]:
    """For a server."""
    return Decoder(decode_from_client, CLIENT_FRAME_BYTES_MAX)
